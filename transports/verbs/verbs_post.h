/*
 * verbs_post.h: posts work requests of a connection, and looks at what the peer's have written.
 * What data calls need for each message is inline.
 */
#ifndef COLLI_TRANSPORTS_VERBS_POST_H
#define COLLI_TRANSPORTS_VERBS_POST_H

#include <arpa/inet.h>

#include "transports/verbs/verbs_internal.h"

/* Prepares what all sends of a connection have in common. */
void verbs_post_init(verbs_conn *conn);

/* Ends a connection whose device refuses a work request; returns the status. */
int verbs_post_failed(verbs_conn *conn, int error);

/* Tells the peer of memory that it may use again. */
void verbs_post_credit(verbs_conn *conn);

/* Tells the peer that this side leaves; false if that cannot be sent. */
bool verbs_post_farewell(verbs_conn *conn);

/*
 * Tells the peer, if it does not know yet, that this rank sleeps until a completion wakes it. The
 * completion of this notice ends the first sleep, so that this rank finds what the peer sent before
 * it knew. If the send queue is full, its completions end the sleep.
 */
void verbs_post_sleep(verbs_conn *conn);

/* Work requests in flight. */
static inline uint32_t verbs_in_flight(const verbs_conn *conn) {
  return (uint32_t)(conn->posted - conn->completed);
}

/* Whether a work request may be posted without using what is reserved for credit. */
static inline bool verbs_may_post(const verbs_conn *conn) {
  return conn->posted - conn->completed + 2 < VERBS_SENDS;
}

/* The bits of every message that say which memory of the ring, and which adverts, the peer may use
 * again. */
static inline uint32_t verbs_credit_bits(verbs_conn *conn) {
  return verbs_rx_credit(&conn->rx) | (uint32_t)(conn->there.made % VERBS_TARGETS_COUNTED)
                                          << VERBS_IMM_COPIED;
}

/* Posts conn->write with `parts` parts, as a plain write; DONE or an error. */
static inline int verbs_post_plain(verbs_conn *conn, int parts, unsigned flags) {
  struct ibv_send_wr *bad;
  conn->write.wr_id = ++conn->posted;
  if (conn->posted - conn->signalled >= VERBS_SIGNAL_EVERY)
    flags |= IBV_SEND_SIGNALED;
  if (flags & IBV_SEND_SIGNALED)
    conn->signalled = conn->posted;
  conn->write.num_sge = parts;
  conn->write.send_flags = flags;
  int error = ibv_post_send(conn->qp, &conn->write, &bad);
  return __builtin_expect(error == 0, 1) ? COLL_T_DONE : verbs_post_failed(conn, error);
}

/* The same with immediate bits, credit among them. */
static inline int verbs_post(verbs_conn *conn, int parts, uint32_t bits, unsigned flags) {
  conn->write.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  conn->write.imm_data = htonl(bits | verbs_credit_bits(conn));
  int status = verbs_post_plain(conn, parts, flags);
  conn->write.opcode = IBV_WR_RDMA_WRITE;
  return status;
}

/* Applies these bits of a message from the peer: see verbs_credit_bits(). */
static inline void verbs_take_credit(verbs_conn *conn, uint32_t bits) {
  bool broken;
  verbs_tx_credit(&conn->tx, bits & VERBS_IMM_UNITS, &broken);
  if (__builtin_expect(broken, 0))
    verbs_conn_reject(conn, "credit for what was not sent", bits);
  if (__builtin_expect(!verbs_targets_copied(&conn->here, bits >> VERBS_IMM_COPIED), 0))
    verbs_conn_reject(conn, "a copy of what was not advertised", bits);
}

/* Looks for the next short message; false if it has not arrived. */
static inline bool verbs_take_short(verbs_conn *conn) {
  uint32_t credit;
  if (!verbs_rx_poll(&conn->rx, conn->rx_memory, &credit))
    return false;
  verbs_take_credit(conn, credit);
  return true;
}

/* Aims conn->write at the place of a long message; the bytes of the tag that goes with it, or 0. */
static inline uint32_t verbs_aim(verbs_conn *conn, const coll_tag *tag, const verbs_place *place) {
  uint32_t tag_bytes = verbs_tx_needs_tag(&conn->tx, tag) ? sizeof(*tag) : 0;
  conn->write.wr.rdma.remote_addr =
      conn->peer_memory + (uint64_t)place->first * VERBS_UNIT - tag_bytes;
  return tag_bytes;
}

#endif
