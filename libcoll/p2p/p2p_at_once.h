/*
 * p2p_at_once.h: messages that end in the call that starts them, without a post: an eager send for
 * which the connection has room, and a receive whose message has arrived. Only where nothing goes
 * before them, so that the order stays the same as with posts. Whatever else there is to do, errors
 * included, is left to an operation with posts.
 */
#ifndef COLLI_P2P_P2P_AT_ONCE_H
#define COLLI_P2P_P2P_AT_ONCE_H

#include "libcoll/base/assert.h"
#include "libcoll/p2p/p2p.h"

/* Counts a message that the connection accepted, and returns its number. */
static inline uint64_t p2p_count_sent(colli_p2p *p2p, const colli_p2p_peer *peer, size_t bytes) {
  colli_link *link = &p2p->exec->links[peer->rank];
  *link->sent_bytes += bytes;
  return ++link->posted[COLLI_CHANNEL_P2P];
}

/* p2p_send_copy() in two calls of the transport, with a copy in between. */
int p2p_send_by_slot(colli_p2p *p2p, colli_p2p_peer *peer, const coll_tag *tag, const void *data,
                     size_t bytes);

/* Copies a message to a slot of the transport and sends it: DONE, BLOCKED, or a transport's error.
 */
static inline int p2p_send_copy(colli_p2p *p2p, colli_p2p_peer *peer, const coll_tag *tag,
                                const void *data, size_t bytes) {
  const coll_transport_ops *ops = peer->conn->ops;
  if (!(ops->caps & COLL_CAP_SEND_COPIES))
    return p2p_send_by_slot(p2p, peer, tag, data, bytes);
  int status = ops->send(peer->conn, tag, data, bytes);
  COLLI_ASSERT_RANK(status != COLL_T_PENDING, p2p->exec->rank); /* it would be sent again */
  if (__builtin_expect(status == COLL_T_DONE, 1))
    p2p_count_sent(p2p, peer, bytes);
  return status == COLL_T_AGAIN ? COLLI_STEP_BLOCKED : status;
}

/* Sends an eager message if it can be sent at once. False: nothing happened, start an operation.
 * Only through shared memory, where the message is with its receiver then. Elsewhere it may wait in
 * the transport, and a blocking send waits for that. */
static inline bool colli_p2p_send_at_once(colli_p2p *p2p, int rank, const coll_tag *tag,
                                          const void *buf, size_t bytes) {
  colli_p2p_peer *peer = p2p->peers[rank];
  if (!peer || !peer->conn || peer->out.head || bytes > p2p->exec->slot_bytes)
    return false;
  if (!(peer->conn->ops->caps & COLL_CAP_SHARED_MEMORY))
    return false;
  return p2p_send_copy(p2p, peer, tag, buf, bytes) == COLLI_STEP_DONE;
}

/* Takes the next message from a rank, not any, if it has arrived and no other receive comes before;
 * what has arrived for those is read first. False: not taken, start an operation. */
bool colli_p2p_recv_at_once(colli_p2p *p2p, const colli_p2p_wanted *wanted);

#endif
