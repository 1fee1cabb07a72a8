/*
 * p2p_tag.h: how the messages of point-to-point operations look.
 *
 * Tag: word 0: elements of a message, or an offset (48 bits), and the size of a type of the
 * caller's own (16 bits). Word 1: the user's tag (high half), and a check (16 bits): a message
 * whose tag is damaged would wait for a receive that never comes. Word 2: COLLI_SENDRECV, type and
 * kind (a byte each), and a number (32 bits): the sender's for a rendezvous, or that of a window.
 * The other bits are left to those who wrap messages (libcoll/comm/mux/mux.h), and zero here.
 */
#ifndef COLLI_P2P_P2P_TAG_H
#define COLLI_P2P_P2P_TAG_H

#include "libcoll/p2p/p2p.h"

enum {
  P2P_EAGER,         /* a whole message */
  P2P_RENDEZVOUS,    /* the first slice of a long one */
  P2P_CLEAR_TO_SEND, /* to its sender: the receiver is ready */
  P2P_SLICE,         /* a further slice; word: its offset */
  P2P_PUT,           /* word: offset in the window */
  P2P_SIGNAL,
  P2P_END,
  P2P_KINDS
};

#define P2P_USER_TYPE 0xffu /* its size is in word 0, as in the tags of all operations */

/* The check of a tag. */
static inline uint64_t p2p_tag_check(const coll_tag *tag) {
  uint64_t hash = (tag->word[0] ^ (tag->word[1] >> 32)) * 0x9e3779b97f4a7c15ull;
  return ((hash ^ tag->word[2]) * 0xbf58476d1ce4e5b9ull) >> 48;
}

/* The tag of a message. */
static inline coll_tag p2p_tag_make(int kind, int tag, int type, uint64_t word, uint32_t number) {
  uint64_t code = (uint64_t)type, size = 0;
  if (type >= COLL_TYPE_USER_BASE)
    code = P2P_USER_TYPE, size = (uint64_t)(type - COLL_TYPE_USER_BASE);
  coll_tag out = {
      {word | size << 48, (uint64_t)(uint32_t)tag << 32,
       (uint64_t)COLLI_SENDRECV | code << 8 | (uint64_t)kind << 16 | (uint64_t)number << 24}};
  out.word[1] |= p2p_tag_check(&out);
  return out;
}

/* Reads a tag; false if no sender makes such a one. */
static inline bool p2p_tag_read(const coll_tag *tag, colli_p2p_header *head) {
  unsigned code = tag->word[2] >> 8 & 0xff;
  head->kind = (int)(tag->word[2] >> 16 & 0xff);
  head->tag = (int)(tag->word[1] >> 32);
  head->type = code == P2P_USER_TYPE ? COLL_TYPE_USER_BASE + (int)(tag->word[0] >> 48) : (int)code;
  head->word = tag->word[0] & 0xffffffffffffull;
  head->number = (uint32_t)(tag->word[2] >> 24);
  return (tag->word[2] & 0xff) == COLLI_SENDRECV && tag->word[2] >> 56 == 0 &&
         (tag->word[1] & 0xffffffffu) == p2p_tag_check(tag) && head->kind < P2P_KINDS &&
         head->tag >= 0;
}

#endif
