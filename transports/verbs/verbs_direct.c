/*
 * verbs_direct.c: long messages that are written straight to their target (verbs_target.h).
 *
 * Each end decides for itself: the receiver advertises registered memory, and the sender writes
 * there what lies in registered memory of its own. Everything else goes through the ring.
 */
#include <string.h>

#include "transports/verbs/verbs_poll.h"
#include "transports/verbs/verbs_post.h"

#define DIRECT_LEAST 16384u /* it is faster to copy fewer bytes than to advertise */

/*
 * Advertises a target to the peer, unless it is for earlier messages than one that the peer knows.
 * The data calls report errors.
 */
static void advertise(verbs_conn *conn, const verbs_advert *advert) {
  uint64_t at = conn->here.made % VERBS_TARGETS;
  if (!verbs_targets_add(&conn->here, advert))
    return;
  verbs_advert *from = &conn->adverts[VERBS_TARGETS + at];
  *from = *advert;
  conn->part[0] = (struct ibv_sge){(uintptr_t)from, sizeof(*from), conn->slab.mr->lkey};
  conn->write.wr.rdma.remote_addr = conn->peer_adverts + at * sizeof(*from);
  unsigned flags = sizeof(*from) <= conn->port->inline_bytes ? IBV_SEND_INLINE : 0;
  (void)verbs_post(conn, 1, VERBS_IMM_CREDIT | VERBS_IMM_PLACED, flags);
}

/* Messages that may yet arrive in targets and have not been taken. */
static uint64_t count_expected(const verbs_conn *conn) {
  uint64_t count = 0;
  for (uint64_t i = conn->here.over; i < conn->here.made; i++)
    count += verbs_advert_count(&conn->here.advert[i % VERBS_TARGETS]);
  return count;
}

int verbs_expect(coll_conn *base, uint64_t ahead, const coll_tag *tag, void *buf, size_t bytes,
                 size_t slice) {
  verbs_conn *conn = (verbs_conn *)base;
  verbs_advert advert = {.first = conn->rx.taken + ahead,
                         .address = (uintptr_t)buf,
                         .bytes = bytes,
                         .slice = (uint32_t)slice,
                         .tag = *tag};
  if (slice < DIRECT_LEAST || conn->gate & VERBS_GATE_GONE)
    return COLL_T_DONE; /* the data calls report what is wrong */
  verbs_targets_pass(&conn->here, conn->rx.taken);
  uint64_t count = verbs_advert_count(&advert);
  if (conn->gate || !verbs_targets_free(&conn->here) ||
      count_expected(conn) + count > VERBS_PLACED || !verbs_may_post(conn))
    return COLL_T_AGAIN;
  if (advert.first + count <= conn->rx.arrived)
    return COLL_T_DONE; /* all has come already */
  const struct ibv_mr *mr = verbs_cache_find(&conn->port->cache, buf, bytes, VERBS_USE_WRITE);
  if (!mr)
    return COLL_T_DONE;
  advert.key = mr->rkey;
  advertise(conn, &advert);
  return COLL_T_DONE;
}

int verbs_direct_send(verbs_conn *conn, const coll_tag *tag, const void *buf, size_t bytes,
                      const struct ibv_mr *mr) {
  uint64_t offset;
  size_t capacity;
  verbs_poll(conn->ep, conn->port); /* an advert may have come */
  if (conn->gate)
    return COLL_T_DONE;
  const verbs_advert *advert = verbs_targets_find(&conn->there, conn->tx.sent, &offset, &capacity);
  if (!advert || capacity != bytes || memcmp(&advert->tag, tag, sizeof(*tag)) != 0)
    return COLL_T_DONE;
  if (conn->refs_posted - conn->refs_done == VERBS_REFERENCES || !verbs_may_post(conn))
    return COLL_T_AGAIN;
  uint32_t ring_key = conn->write.wr.rdma.rkey;
  conn->part[0] = (struct ibv_sge){(uintptr_t)buf, (uint32_t)bytes, mr->lkey};
  conn->write.wr.rdma.remote_addr = advert->address + offset;
  conn->write.wr.rdma.rkey = advert->key;
  int status = verbs_post(conn, 1, VERBS_IMM_PLACED, IBV_SEND_SIGNALED);
  conn->write.wr.rdma.rkey = ring_key;
  if (status != COLL_T_DONE)
    return status;
  verbs_tx_placed(&conn->tx, tag);
  conn->references[conn->refs_posted++ % VERBS_REFERENCES] =
      (verbs_reference){conn->tx.sent, conn->posted};
  verbs_targets_pass(&conn->there, conn->tx.sent);
  return COLL_T_PENDING;
}
