/*
 * p2p_tag.h: the tags of point-to-point and one-sided messages (bits: libcoll/sched/tag.h). The
 * check detects a damaged tag, which would otherwise make the message wait for a receive that never
 * comes.
 */
#ifndef COLLI_P2P_P2P_TAG_H
#define COLLI_P2P_P2P_TAG_H

#include "libcoll/p2p/p2p.h"
#include "libcoll/sched/tag.h"

#define P2P_TARGET_SLICE ((size_t)1 << 20) /* of what a device sends to targets, at least */

enum {
  P2P_EAGER,         /* a whole message */
  P2P_RENDEZVOUS,    /* the first slice of a long one */
  P2P_CLEAR_TO_SEND, /* to its sender: the receiver is ready; word: 1 if it has offered a target */
  P2P_SLICE,         /* a further slice; word: its offset */
  P2P_PUT,           /* word: offset in the window */
  P2P_SIGNAL,
  P2P_END,
  P2P_LENT,   /* a rendezvous from memory of a GPU that is lent: its rest is not copied */
  P2P_TARGET, /* a further slice, which is in the receiver's target */
  P2P_KINDS
};

/* The check of a tag. */
static inline uint64_t p2p_tag_check(const coll_tag *tag) {
  uint64_t user_tag = colli_tag_get(tag, COLLI_TAG_P2P_TAG);
  uint64_t hash = (tag->word[0] ^ user_tag) * 0x9e3779b97f4a7c15ull;
  return ((hash ^ tag->word[2]) * 0xbf58476d1ce4e5b9ull) >> 48;
}

/* The tag of a message. */
static inline coll_tag p2p_tag_make(int kind, int tag, int type, uint64_t word, uint32_t number) {
  coll_tag out = {{0}};
  colli_tag_put_elements(&out, type, word);
  colli_tag_put(&out, COLLI_TAG_P2P_TAG, (uint64_t)tag);
  colli_tag_put(&out, COLLI_TAG_COLL, COLLI_SENDRECV);
  colli_tag_put(&out, COLLI_TAG_P2P_KIND, (uint64_t)kind);
  colli_tag_put(&out, COLLI_TAG_P2P_NUMBER, number);
  colli_tag_put(&out, COLLI_TAG_P2P_CHECK, p2p_tag_check(&out));
  return out;
}

/* The tag of all slices that go to the target of a rendezvous. */
static inline coll_tag p2p_tag_target(uint32_t number) {
  return p2p_tag_make(P2P_TARGET, 0, 0, 0, number);
}

/* How long those slices are, of which there are `bytes` bytes: as long as slots if they are copied.
 */
static inline size_t p2p_target_slice(size_t bytes, size_t slot_bytes, bool copied) {
  const size_t least = (bytes + COLL_DEVICE_MESSAGES - 1) / COLL_DEVICE_MESSAGES;
  if (copied)
    return slot_bytes;
  return least > P2P_TARGET_SLICE ? least : P2P_TARGET_SLICE;
}

/* The tag by which errors and the flight record show an operation. */
static inline coll_tag p2p_tag_shown(size_t count, int type) {
  coll_tag tag = {{0}};
  colli_tag_put_elements(&tag, type, count);
  colli_tag_put(&tag, COLLI_TAG_COLL, COLLI_SENDRECV);
  return tag;
}

/* The tag of the eager message that fills a receive. Of any tag it is that of no valid message, so
 * one that has it must not be taken. */
static inline coll_tag p2p_tag_expected(int tag, int type, size_t count) {
  return p2p_tag_make(P2P_EAGER, tag, type, count, 0);
}

static inline bool p2p_tag_equal(const coll_tag *a, const coll_tag *b) {
  return a->word[1] == b->word[1] && a->word[0] == b->word[0] && a->word[2] == b->word[2];
}

/* Decodes a tag; false if it is invalid. */
static inline bool p2p_tag_read(const coll_tag *tag, colli_p2p_header *head) {
  head->kind = (int)colli_tag_get(tag, COLLI_TAG_P2P_KIND);
  head->tag = (int)colli_tag_get(tag, COLLI_TAG_P2P_TAG);
  head->type = colli_tag_type(tag);
  head->word = colli_tag_get(tag, colli_tag_count_field(tag));
  head->number = (uint32_t)colli_tag_get(tag, COLLI_TAG_P2P_NUMBER);
  return colli_tag_get(tag, COLLI_TAG_COLL) == COLLI_SENDRECV &&
         !colli_tag_get(tag, COLLI_TAG_VARYING) && !colli_tag_get(tag, COLLI_TAG_COMM_NUMBER) &&
         !colli_tag_get(tag, COLLI_TAG_SHARED) &&
         colli_tag_get(tag, COLLI_TAG_P2P_CHECK) == p2p_tag_check(tag) && head->kind < P2P_KINDS &&
         head->tag != COLL_ANY_TAG;
}

#endif
