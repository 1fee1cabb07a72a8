/*
 * p2p_internal.h: the interfaces between the files of this folder. Each file calls only files above
 * it in this header; p2p.c calls all of them.
 */
#ifndef COLLI_P2P_P2P_INTERNAL_H
#define COLLI_P2P_P2P_INTERNAL_H

#include "libcoll/base/assert.h"
#include "libcoll/p2p/p2p_at_once.h"
#include "libcoll/p2p/p2p_tag.h"

/* ---- p2p_peer.c: peers, lists of posts, and how posts end ------------------------------------ */

/* The state of a peer, created and connected on first use; NULL after events->failed. */
colli_p2p_peer *p2p_peer_get(colli_p2p *p2p, coll_request *op, int rank);

/* Reports a transport call that failed for operation `op`. Returns FAILED. */
int p2p_fail(colli_p2p *p2p, coll_request *op, int rank, int status);

static inline void p2p_append(colli_posts *list, colli_post *post) {
  COLLI_ASSERT(!list->head || (!list->tail->next && list->tail != post));
  post->next = NULL;
  if (list->head)
    list->tail->next = post;
  else
    list->head = post;
  list->tail = post;
}

/* Removes the post after `before`, or the first if that is NULL. */
static inline colli_post *p2p_take(colli_posts *list, colli_post *before) {
  colli_post **at = before ? &before->next : &list->head;
  COLLI_ASSERT(*at && (list->tail != *at || !(*at)->next));
  colli_post *post = *at;
  *at = post->next;
  if (list->tail == post)
    list->tail = before;
  return post;
}

/* Marks a post as complete, and its operation if this was the last post. */
void p2p_finish(colli_p2p *p2p, colli_post *post);

/* ---- probes ---------------------------------------------------------------------------------- */

/* Whether a probe of `peer` and `tag` sees a message. */
static inline bool p2p_sees(int peer, int tag, int source, int its_tag) {
  return (peer == source || peer == COLL_ANY_SOURCE) &&
         (tag == its_tag || (tag == COLL_ANY_TAG && its_tag >= 0));
}

/* Whether the probe under way looks for such a message. */
static inline bool p2p_probes(const colli_p2p *p2p, int source, int tag) {
  return p2p->probe && p2p_sees(p2p->probe->peer, p2p->probe->tag, source, tag);
}

/* The same for a look that does not wait. */
static inline bool p2p_seeks(const colli_p2p *p2p, int source, int tag) {
  return p2p->sought && p2p_sees(p2p->sought->peer, p2p->sought->tag, source, tag);
}

/* ---- p2p_kept.c: messages that are kept ------------------------------------------------------ */

/* Takes a kept message of `bytes` from the pool (NULL if out of memory), and puts one back. */
colli_p2p_kept *p2p_kept_get(colli_p2p *p2p, size_t bytes);
void p2p_kept_put(colli_p2p *p2p, colli_p2p_kept *message);

/* Keeps a message for which no receive was posted: DONE, BLOCKED if the peer has reached its limit,
 * or FAILED. sender: the send, if it is a rendezvous of this rank with itself, or NULL. */
int p2p_keep(colli_p2p *p2p, colli_p2p_peer *peer, const colli_p2p_header *head, const char *data,
             size_t bytes, colli_post *sender);

/* Removes an unexpected message from the lists; it must still be put back into the pool. */
void p2p_kept_remove(colli_p2p *p2p, colli_p2p_peer *peer, colli_p2p_kept *message);

/* Replaces a send in the queue by a copy; false if out of memory or at the limit. The original post
 * is then in no list. */
bool p2p_buffer(colli_p2p *p2p, colli_p2p_peer *peer, colli_post **at);

/* Releases a buffered send that is no longer in a list. */
void p2p_unbuffer(colli_p2p *p2p, colli_p2p_peer *peer, colli_post *post);

/* Releases all unexpected messages of a peer. */
void p2p_drop_unexpected(colli_p2p *p2p, colli_p2p_peer *peer);

/* ---- p2p_probe.c: looking at unexpected messages --------------------------------------------- */

/* The last message that was kept is there for a probe to see: one such message beyond the limit is
 * enough. */
void p2p_probe_kept(colli_p2p *p2p);

/* Begins a probe, which may end at once. */
void p2p_start_probe(colli_p2p *p2p, colli_post *post);

/* Removes a message from the list of those taken. */
void p2p_untake(colli_p2p *p2p, colli_p2p_kept *message);

/* ---- p2p_match.c: which receive takes which message ------------------------------------------ */

/* Removes and returns the posted receive that matches a peer's message, or NULL. */
colli_post *p2p_match(colli_p2p *p2p, colli_p2p_peer *peer, int tag);

/* Delivers a message to the receive that was posted first, if it fills that. */
bool p2p_deliver_expected(colli_p2p *p2p, colli_p2p_peer *peer, const coll_tag *tag,
                          const char *data, size_t bytes);

/* Delivers a message, or its first slice, to the matched receive: DONE or FAILED. */
int p2p_deliver(colli_p2p *p2p, colli_p2p_peer *peer, colli_post *post,
                const colli_p2p_header *head, const char *data, size_t bytes);

/* Posts a receive, which takes a matching unexpected message at once, or the one in `from`. */
int p2p_post_recv(colli_p2p *p2p, colli_post *post);

/* ---- p2p_window.c: what others do to this rank's windows ------------------------------------- */

/* Handles PUT, SIGNAL and END. Returns NULL, or what is wrong with the message. */
const char *p2p_window_message(colli_p2p *p2p, int rank, const colli_p2p_header *head,
                               const char *data, size_t bytes);

/* Begins to wait for signals. */
void p2p_wait_signals(colli_p2p *p2p, colli_post *post);

/* ---- p2p_send.c: what goes out --------------------------------------------------------------- */

/* Sends as much as possible to a peer: 1 if anything was sent, 0, or FAILED. */
int p2p_send(colli_p2p *p2p, colli_p2p_peer *peer);

/* The same for the rank itself. */
int p2p_send_self(colli_p2p *p2p, colli_p2p_peer *peer);

/* ---- p2p_recv.c: what comes in --------------------------------------------------------------- */

/* Nothing more comes from a peer. */
void p2p_note_end(colli_p2p *p2p, colli_p2p_peer *peer, int status);

/* Releases the message that was read, and notes if nothing more comes: the transport's status. */
static inline int p2p_release(colli_p2p *p2p, colli_p2p_peer *peer) {
  int status = peer->conn->ops->slot_release(peer->conn);
  if (__builtin_expect(status > 0, 0))
    p2p_note_end(p2p, peer, status);
  return status;
}

/* Reads what has arrived from a peer: 1 if there was anything, 0, or FAILED. */
int p2p_read(colli_p2p *p2p, colli_p2p_peer *peer);

#endif
