/*
 * p2p_internal.h: what the files of the mail share, and how its messages look.
 *
 * Tag: word 0: elements of a message, or an offset (48 bits), and the size of a type of the
 * caller's own (16 bits). Word 1: the user's tag (high half), and a check (16 bits): a message
 * whose tag is damaged would wait for a receive that never comes. Word 2: COLLI_SENDRECV, type and
 * kind (a byte each), and a number (32 bits): the sender's for a long message, or that of a window.
 * The other bits are left to those who wrap messages (libcoll/comm/mux/mux.h), and zero here.
 */
#ifndef COLLI_P2P_P2P_INTERNAL_H
#define COLLI_P2P_P2P_INTERNAL_H

#include "libcoll/exec/exec.h"

enum {
  P2P_EAGER,         /* a whole message */
  P2P_RENDEZVOUS,    /* the first slice of a long one */
  P2P_CLEAR_TO_SEND, /* to the sender of a long one: its receiver is ready */
  P2P_SLICE,         /* a further slice; word: its offset */
  P2P_PUT,           /* word: offset in the window */
  P2P_SIGNAL,
  P2P_END,
  P2P_KINDS
};

/* The check of a tag. */
static inline uint64_t p2p_check(const coll_tag *tag) {
  uint64_t hash = (tag->word[0] ^ (tag->word[1] >> 32)) * 0x9e3779b97f4a7c15ull;
  return ((hash ^ tag->word[2]) * 0xbf58476d1ce4e5b9ull) >> 48;
}

/* ---- p2p.c ----------------------------------------------------------------------------------
 */

/* The mailbox of a peer, made and connected when first used; NULL after events->failed. */
colli_p2p_peer *p2p_peer_get(colli_exec *exec, coll_request *op, int peer);

void p2p_append(colli_posts *list, colli_post *post);

/* Takes out the post behind `before`, or the first (NULL). */
colli_post *p2p_take(colli_posts *list, colli_post *before);

/* Marks a post as complete, and its operation when it was the last. */
void p2p_finish(colli_exec *exec, colli_post *post);

/* ---- p2p_match.c ----------------------------------------------------------------------------
 */

/* Takes out the posted receive that a message of `box` goes to, or NULL. */
colli_post *p2p_match(colli_exec *exec, colli_p2p_peer *box, int tag);

/* Gives a matched receive its message, or the beginning of it: DONE or FAILED. */
int p2p_deliver(colli_exec *exec, colli_p2p_peer *box, colli_post *post,
                const colli_p2p_header *head, const char *data, size_t bytes);

/* Keeps a message for later: DONE, or BLOCKED where the peer has as many as it may, or FAILED.
 * from: a long message of this rank itself, or NULL. */
int p2p_keep(colli_exec *exec, colli_p2p_peer *box, const colli_p2p_header *head, const char *data,
             size_t bytes, colli_post *from);

/* Posts a receive: a letter that fits is taken at once. */
int p2p_post_recv(colli_exec *exec, colli_post *post);

/* A letter with room for `bytes`, or NULL without memory; and back to the pool. */
colli_unexpected *p2p_unexpected_get(colli_p2p *mail, size_t bytes);
void p2p_unexpected_put(colli_p2p *mail, colli_unexpected *letter);

/* Releases all letters that wait for a receive. */
void p2p_drop_unexpected(colli_p2p *mail, colli_p2p_peer *box);

/* ---- p2p_send.c -----------------------------------------------------------------------------
 */

/* Sends what can go to a peer: 1 if something went, 0, or FAILED. */
int p2p_send(colli_exec *exec, colli_p2p_peer *box);

/* The same for the rank itself. */
int p2p_send_self(colli_exec *exec, colli_p2p_peer *box);

/* ---- p2p_recv.c -----------------------------------------------------------------------------
 */

/* Reads what has come from a peer: 1 if something came, 0, or FAILED. */
int p2p_read(colli_exec *exec, colli_p2p_peer *box);

/* ---- p2p_window.c ---------------------------------------------------------------------------
 */

/* Handles PUT, SIGNAL, END: NULL, or what is wrong with the message. */
const char *p2p_window_message(colli_exec *exec, int peer, const colli_p2p_header *head,
                               const char *data, size_t bytes);

/* Begins to wait for signals. */
void p2p_wait_signals(colli_exec *exec, colli_post *post);

#endif
