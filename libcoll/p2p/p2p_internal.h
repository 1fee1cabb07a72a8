/*
 * p2p_internal.h: what the files of this folder give each other. Each one calls only those that
 * come before it here; p2p.c calls them all.
 */
#ifndef COLLI_P2P_P2P_INTERNAL_H
#define COLLI_P2P_P2P_INTERNAL_H

#include "libcoll/p2p/p2p_tag.h"

/* ---- p2p_peer.c: peers, lists of posts, and how posts end ------------------------------------ */

/* What is open with a peer, made and connected when first used; NULL after events->failed. */
colli_p2p_peer *p2p_peer_get(colli_p2p *p2p, coll_request *op, int rank);

/* Reports a failed transport call; `op`: the operation that it was for. Returns FAILED. */
int p2p_fail(colli_p2p *p2p, coll_request *op, int rank, int status);

void p2p_append(colli_posts *list, colli_post *post);

/* Takes out the post behind `before`, or the first (NULL). */
colli_post *p2p_take(colli_posts *list, colli_post *before);

/* Marks a post as complete, and its operation when it was the last. */
void p2p_finish(colli_p2p *p2p, colli_post *post);

/* ---- p2p_kept.c: messages that are kept ------------------------------------------------------ */

/* A kept message of `bytes`, or NULL without memory; and back to the pool. */
colli_p2p_kept *p2p_kept_get(colli_p2p *p2p, size_t bytes);
void p2p_kept_put(colli_p2p *p2p, colli_p2p_kept *message);

/* Keeps a message that no receive was posted for: DONE, or BLOCKED where the peer has as many as it
 * may, or FAILED. sender: the send, if it is a rendezvous of this rank with itself, or NULL. */
int p2p_keep(colli_p2p *p2p, colli_p2p_peer *peer, const colli_p2p_header *head, const char *data,
             size_t bytes, colli_post *sender);

/* Takes an unexpected message out of the lists; it still has to be put back. */
void p2p_kept_remove(colli_p2p *p2p, colli_p2p_peer *peer, colli_p2p_kept *message);

/* Puts a copy of a send into its place in the queue: false without memory or beyond the bounds.
 * The post that it was is in no list then. */
bool p2p_buffer(colli_p2p *p2p, colli_p2p_peer *peer, colli_post **at);

/* Releases a buffered send, which is in no list any more. */
void p2p_unbuffer(colli_p2p *p2p, colli_p2p_peer *peer, colli_post *post);

/* Releases all unexpected messages of a peer. */
void p2p_drop_unexpected(colli_p2p *p2p, colli_p2p_peer *peer);

/* ---- p2p_match.c: which receive takes which message ------------------------------------------ */

/* Takes out the posted receive that a message of a peer goes to, or NULL. */
colli_post *p2p_match(colli_p2p *p2p, colli_p2p_peer *peer, int tag);

/* Gives a matched receive its message, or the beginning of it: DONE or FAILED. */
int p2p_deliver(colli_p2p *p2p, colli_p2p_peer *peer, colli_post *post,
                const colli_p2p_header *head, const char *data, size_t bytes);

/* Posts a receive: an unexpected message that fits is taken at once. */
int p2p_post_recv(colli_p2p *p2p, colli_post *post);

/* ---- p2p_window.c: what others do to this rank's windows ------------------------------------- */

/* Handles PUT, SIGNAL, END: NULL, or what is wrong with the message. */
const char *p2p_window_message(colli_p2p *p2p, int rank, const colli_p2p_header *head,
                               const char *data, size_t bytes);

/* Begins to wait for signals. */
void p2p_wait_signals(colli_p2p *p2p, colli_post *post);

/* ---- p2p_send.c: what goes out --------------------------------------------------------------- */

/* Sends what can go to a peer: 1 if something went, 0, or FAILED. */
int p2p_send(colli_p2p *p2p, colli_p2p_peer *peer);

/* The same for the rank itself. */
int p2p_send_self(colli_p2p *p2p, colli_p2p_peer *peer);

/* ---- p2p_recv.c: what comes in --------------------------------------------------------------- */

/* Reads what has come from a peer: 1 if something came, 0, or FAILED. */
int p2p_read(colli_p2p *p2p, colli_p2p_peer *peer);

#endif
