/*
 * verbs_direct.c: long messages that the device reads where they lie, and those that are written
 * straight to their target (verbs_target.h).
 *
 * Each end decides for itself: the receiver advertises registered memory, and the sender writes
 * there what lies in registered memory of its own. Everything else goes through the ring. A target
 * in memory of a GPU is the exception: its receiver has told the sender, which waits for the
 * advert.
 */
#include <string.h>

#include "libcoll/base/assert.h"
#include "transports/verbs/verbs_poll.h"
#include "transports/verbs/verbs_post.h"

_Static_assert(VERBS_REFERENCES >= VERBS_SENDS, "what may be posted may read memory");
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

/* Messages without a place in the ring that may yet arrive in a target. */
static uint64_t count_outside(const verbs_advert *advert) {
  return advert->offered == VERBS_OFFERED_COPIES ? 0 : verbs_advert_count(advert);
}

/* The same of all targets, and those that have not been taken. */
static uint64_t count_expected(const verbs_conn *conn) {
  uint64_t count = 0;
  for (uint64_t i = conn->here.over; i < conn->here.made; i++)
    count += count_outside(&conn->here.advert[i % VERBS_TARGETS]);
  return count;
}

/* Whether one more target, for so many messages without a place in the ring, can be advertised. */
static bool has_room(const verbs_conn *conn, uint64_t count) {
  return !conn->gate && verbs_targets_free(&conn->here) &&
         count_expected(conn) + count <= VERBS_PLACED && verbs_may_post(conn);
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
  verbs_targets_pass(&conn->here, verbs_next_taken(conn));
  uint64_t count = verbs_advert_count(&advert);
  if (!has_room(conn, count))
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

/* Writes a message that lies in registered memory to a part of a target: PENDING, AGAIN or an
 * error. */
static int write_to_target(verbs_conn *conn, const verbs_advert *part, const coll_tag *tag,
                           struct ibv_sge from) {
  if (!verbs_may_post(conn))
    return COLL_T_AGAIN;
  uint32_t ring_key = conn->write.wr.rdma.rkey;
  conn->part[0] = from;
  conn->write.wr.rdma.remote_addr = part->address;
  conn->write.wr.rdma.rkey = part->key;
  int status = verbs_post(conn, 1, VERBS_IMM_PLACED, IBV_SEND_SIGNALED);
  conn->write.wr.rdma.rkey = ring_key;
  if (status != COLL_T_DONE)
    return status;
  verbs_tx_placed(&conn->tx, tag);
  conn->references[conn->refs_posted++ % VERBS_REFERENCES] =
      (verbs_reference){conn->tx.sent, conn->posted};
  verbs_targets_pass(&conn->there, verbs_next_sent(conn));
  return COLL_T_PENDING;
}

int verbs_direct_send(verbs_conn *conn, const coll_tag *tag, const void *buf, size_t bytes,
                      const struct ibv_mr *mr) {
  uint64_t offset;
  size_t capacity;
  verbs_poll(conn->ep, conn->port); /* an advert may have come */
  if (conn->gate || conn->there.offered)
    return COLL_T_DONE;
  const verbs_advert *advert = verbs_targets_find(&conn->there, conn->tx.sent, &offset, &capacity);
  if (!advert || capacity != bytes || memcmp(&advert->tag, tag, sizeof(*tag)) != 0)
    return COLL_T_DONE;
  verbs_advert part = *advert;
  part.address += offset;
  return write_to_target(conn, &part, tag,
                         (struct ibv_sge){(uintptr_t)buf, (uint32_t)bytes, mr->lkey});
}

int verbs_send_reference(verbs_conn *conn, const coll_tag *tag, const void *buf, size_t bytes,
                         const verbs_place *place, const struct ibv_mr *mr) {
  uint32_t tag_bytes = verbs_aim(conn, tag, place);
  struct ibv_sge *part = conn->part;
  if (tag_bytes) {
    uint8_t *to = conn->tx_memory + verbs_ring_mirror(place, false) - sizeof(*tag);
    memcpy(to, tag, sizeof(*tag));
    part[0] = (struct ibv_sge){(uintptr_t)to, tag_bytes, conn->slab.mr->lkey};
  }
  part[tag_bytes != 0] = (struct ibv_sge){(uintptr_t)buf, (uint32_t)bytes, mr->lkey};
  int status =
      verbs_post(conn, 1 + (tag_bytes != 0), tag_bytes ? VERBS_IMM_TAG : 0, IBV_SEND_SIGNALED);
  if (status != COLL_T_DONE)
    return status;
  verbs_tx_sent(&conn->tx, tag, place);
  conn->references[conn->refs_posted++ % VERBS_REFERENCES] =
      (verbs_reference){conn->tx.sent, conn->posted};
  return COLL_T_PENDING;
}

/* ---- memory of GPUs ---------------------------------------------------------------------------
 */

int verbs_offer_device(coll_conn *base, const coll_tag *tag, const coll_device_memory *memory,
                       size_t at, size_t bytes, size_t slice, int copied) {
  verbs_conn *conn = (verbs_conn *)base;
  verbs_advert advert = {.first = conn->promised,
                         .address = memory->address + at,
                         .bytes = bytes,
                         .slice = (uint32_t)slice,
                         .tag = *tag,
                         .offered = copied ? VERBS_OFFERED_COPIES : VERBS_OFFERED_DEVICE};
  COLLI_ASSERT(slice <= UINT32_MAX && count_outside(&advert) <= COLL_DEVICE_MESSAGES);
  if (conn->gate & VERBS_GATE_GONE)
    return verbs_conn_report(conn);
  verbs_targets_pass(&conn->here, verbs_next_taken(conn));
  if (!has_room(conn, count_outside(&advert)))
    return COLL_T_AGAIN;
  advert.key = verbs_device_mr(conn, memory)->rkey;
  conn->promised += verbs_advert_count(&advert);
  advertise(conn, &advert);
  return COLL_T_DONE;
}

/* Where the next message to a target goes: DONE, AGAIN or an error. */
static int find_offered(verbs_conn *conn, const coll_tag *tag, size_t bytes, uint64_t offered,
                        verbs_advert *part) {
  uint64_t offset;
  size_t capacity;
  verbs_poll(conn->ep, conn->port); /* the offer may have come */
  if (conn->gate)
    return conn->gate & VERBS_GATE_GONE ? verbs_conn_report(conn) : COLL_T_AGAIN;
  if (!conn->there.offered)
    return COLL_T_AGAIN;
  const verbs_advert *advert =
      verbs_targets_find(&conn->there, conn->tx.placed, &offset, &capacity);
  if (!advert)
    return COLL_T_AGAIN;
  if (capacity != bytes || advert->offered != offered ||
      memcmp(&advert->tag, tag, sizeof(*tag)) != 0) {
    verbs_conn_reject(conn, "an offer for another message", advert->slice);
    return verbs_conn_report(conn);
  }
  *part = *advert;
  part->address += offset;
  return COLL_T_DONE;
}

/* Finds room in the ring for a message that takes the way of long ones, however short it is. */
static int find_long_room(verbs_conn *conn, size_t bytes, verbs_place *place) {
  for (int look = 0;; look++) {
    if (conn->gate)
      return conn->gate & VERBS_GATE_GONE ? verbs_conn_report(conn) : COLL_T_AGAIN;
    if (verbs_may_post(conn) && verbs_tx_room(&conn->tx, bytes, false, place))
      return COLL_T_DONE;
    if (look > 0)
      return COLL_T_AGAIN;
    while (verbs_take_short(conn)) {
    }
    verbs_poll(conn->ep, conn->port);
  }
}

int verbs_send_device(coll_conn *base, const coll_tag *tag, const coll_device_memory *memory,
                      size_t at, size_t bytes, int to_target) {
  verbs_conn *conn = (verbs_conn *)base;
  const struct ibv_mr *mr = verbs_device_mr(conn, memory);
  const uint64_t address = memory->address + at;
  verbs_advert part;
  verbs_place place;
  COLLI_ASSERT(bytes > 0 && (to_target || bytes <= conn->ep->env->slot_bytes));
  int status = to_target ? find_offered(conn, tag, bytes, VERBS_OFFERED_DEVICE, &part)
                         : find_long_room(conn, bytes, &place);
  if (status != COLL_T_DONE)
    return status;
  if (to_target)
    return write_to_target(conn, &part, tag, (struct ibv_sge){address, (uint32_t)bytes, mr->lkey});
  return verbs_send_reference(conn, tag, (const void *)(uintptr_t)address, bytes, &place, mr);
}

/* The mirror of a place in the ring holds the copy: it can be used again when the peer gives the
 * place back, as after every message. */
int verbs_send_to_target(coll_conn *base, const coll_tag *tag, const void *buf, size_t bytes) {
  verbs_conn *conn = (verbs_conn *)base;
  verbs_advert part;
  verbs_place place;
  COLLI_ASSERT(bytes > 0 && bytes <= conn->ep->env->slot_bytes);
  int status = find_offered(conn, tag, bytes, VERBS_OFFERED_COPIES, &part);
  if (status == COLL_T_DONE)
    status = find_long_room(conn, bytes, &place);
  if (status != COLL_T_DONE)
    return status;
  uint8_t *copy = conn->tx_memory + verbs_ring_mirror(&place, false);
  memcpy(copy, buf, bytes);
  uint32_t ring_key = conn->write.wr.rdma.rkey;
  conn->part[0] = (struct ibv_sge){(uintptr_t)copy, (uint32_t)bytes, conn->slab.mr->lkey};
  conn->write.wr.rdma.remote_addr = part.address;
  conn->write.wr.rdma.rkey = part.key;
  status = verbs_post(conn, 1, VERBS_IMM_PLACED | VERBS_IMM_TAG, 0);
  conn->write.wr.rdma.rkey = ring_key;
  if (status != COLL_T_DONE)
    return status;
  verbs_tx_sent(&conn->tx, tag, &place);
  conn->tx.placed++;
  verbs_targets_pass(&conn->there, verbs_next_sent(conn));
  return COLL_T_DONE;
}
