/*
 * verbs_data.c: the data calls.
 *
 * A message is put together in memory of this end that mirrors the peer's ring, unit by unit. What
 * the peer has given back can be reused here as well, so sends need no completion. What is short
 * enough travels in its work request (inline). A long message in a region is not copied: the device
 * reads it where it lies, and a completion says when it has.
 */
#include <string.h>

#include "transports/verbs/verbs_poll.h"
#include "transports/verbs/verbs_post.h"

#define VERBS_LONG_BYTES 4096u /* shorter messages are copied: a completion would take longer */
#define LOOKS_PER_POLL   4u    /* polls of memory for each poll of the completion queue */
#define UNLIKELY(what)   __builtin_expect(!!(what), 0)
#define LIKELY(what)     __builtin_expect(!!(what), 1)

/* What a data call returns on a connection whose gate is shut. */
static int gate_status(verbs_conn *conn) {
  return conn->gate & VERBS_GATE_GONE ? verbs_conn_report(conn) : COLL_T_AGAIN;
}

/* Whether a message of `bytes` bytes is short. */
static inline bool is_short(const verbs_conn *conn, size_t bytes) {
  return bytes <= conn->short_bytes;
}

/* Where in this end's memory a message for a place of the ring is put together. */
static inline uint8_t *mirror_of(const verbs_conn *conn, size_t bytes, const verbs_place *place) {
  return conn->tx_memory + verbs_ring_mirror(place, is_short(conn, bytes));
}

/*
 * Whether a message can be sent now, and where it goes. A long one may turn out to be short after
 * its slot was acquired, and then wrap around.
 */
static inline bool has_room(const verbs_conn *conn, size_t bytes, verbs_place *place) {
  if (!verbs_may_post(conn))
    return false;
  if (LIKELY(is_short(conn, bytes)))
    return verbs_tx_room(&conn->tx, bytes, true, place);
  return verbs_tx_room(&conn->tx, conn->short_bytes, true, place) &&
         verbs_tx_room(&conn->tx, bytes, false, place);
}

/* Finds room for a message: DONE, AGAIN or an error. */
static inline int find_room(verbs_conn *conn, size_t bytes, verbs_place *place) {
  if (UNLIKELY(conn->gate))
    return gate_status(conn);
  if (UNLIKELY(bytes > conn->ep->env->slot_bytes)) {
    verbs_fault fault;
    verbs_fault_set(&fault, COLL_ERR_INTERNAL, NULL, 0, "a message larger than a slot");
    verbs_conn_break(conn, &fault);
    return verbs_conn_report(conn);
  }
  if (LIKELY(has_room(conn, bytes, place)))
    return COLL_T_DONE;
  while (verbs_take_short(conn)) {
  }
  verbs_poll(conn->ep, conn->port);
  if (UNLIKELY(conn->gate))
    return gate_status(conn);
  return has_room(conn, bytes, place) ? COLL_T_DONE : COLL_T_AGAIN;
}

/* Sends a short message, whose payload may be in this end's memory at its place already. */
static inline int send_short(verbs_conn *conn, const coll_tag *tag, const void *buf, size_t bytes,
                             const verbs_place *place) {
  uint8_t *to = conn->tx_memory + verbs_ring_mirror(place, true), *begin;
  if (bytes > 0 && to != buf)
    memcpy(to, buf, bytes);
  size_t all = verbs_tx_frame(&conn->tx, conn->peer_offer.mark, tag, verbs_credit_bits(conn), to,
                              bytes, &begin);
  unsigned flags = all <= conn->port->inline_bytes ? IBV_SEND_INLINE : 0;
  conn->part[0] = (struct ibv_sge){(uintptr_t)begin, (uint32_t)all, conn->slab.mr->lkey};
  conn->write.wr.rdma.remote_addr = conn->peer_memory + (uint64_t)place->first * VERBS_UNIT;
  int status = UNLIKELY(verbs_rx_asleep(&conn->rx, conn->rx_memory))
                   ? verbs_post(conn, 1, VERBS_IMM_CREDIT, flags)
                   : verbs_post_plain(conn, 1, flags);
  if (LIKELY(status == COLL_T_DONE))
    verbs_tx_sent(&conn->tx, tag, place);
  return status;
}

/* Sends a message from this end's memory at its place. */
static inline int send_copy(verbs_conn *conn, const coll_tag *tag, const void *buf, size_t bytes,
                            const verbs_place *place) {
  if (LIKELY(is_short(conn, bytes)))
    return send_short(conn, tag, buf, bytes, place);
  uint8_t *to = mirror_of(conn, bytes, place);
  uint32_t tag_bytes = verbs_aim(conn, tag, place);
  if (to != buf)
    memcpy(to, buf, bytes);
  if (tag_bytes)
    memcpy(to - sizeof(*tag), tag, sizeof(*tag));
  conn->part[0] = (struct ibv_sge){(uintptr_t)(to - tag_bytes), tag_bytes + (uint32_t)bytes,
                                   conn->slab.mr->lkey};
  int status = verbs_post(conn, 1, tag_bytes ? VERBS_IMM_TAG : 0, 0);
  if (LIKELY(status == COLL_T_DONE))
    verbs_tx_sent(&conn->tx, tag, place);
  return status;
}

int verbs_send(coll_conn *base, const coll_tag *tag, const void *buf, size_t bytes) {
  verbs_conn *conn = (verbs_conn *)base;
  verbs_place place;
  const struct ibv_mr *mr = NULL;
  int status;
  if (bytes >= VERBS_LONG_BYTES && LIKELY(!conn->gate))
    mr = verbs_cache_find(&conn->port->cache, buf, bytes, VERBS_USE_READ);
  if (mr && (status = verbs_direct_send(conn, tag, buf, bytes, mr)) != COLL_T_DONE)
    return status;
  status = find_room(conn, bytes, &place);
  if (UNLIKELY(status != COLL_T_DONE))
    return status;
  if (mr && conn->refs_posted - conn->refs_done < VERBS_REFERENCES)
    return verbs_send_reference(conn, tag, buf, bytes, &place, mr);
  return send_copy(conn, tag, buf, bytes, &place);
}

/*
 * No send copies a message that lies in a region: when it is done depends on this side's device
 * alone.
 */
int verbs_send_ref(coll_conn *base, const coll_tag *tag, uint32_t region, const void *buf,
                   size_t bytes) {
  (void)region;
  return verbs_send(base, tag, buf, bytes);
}

int verbs_sent(coll_conn *base, uint64_t *count) {
  verbs_conn *conn = (verbs_conn *)base;
  if (conn->refs_posted != conn->refs_done)
    verbs_poll(conn->ep, conn->port);
  bool pending = conn->refs_posted != conn->refs_done;
  *count =
      pending ? conn->references[conn->refs_done % VERBS_REFERENCES].message - 1 : conn->tx.sent;
  if (UNLIKELY(conn->gate & VERBS_GATE_GONE) && (pending || conn->reported))
    return verbs_conn_report(conn);
  return COLL_T_DONE;
}

int verbs_slot_acquire(coll_conn *base, size_t bytes, void **buf) {
  verbs_conn *conn = (verbs_conn *)base;
  verbs_place place;
  int status = find_room(conn, bytes, &place);
  if (LIKELY(status == COLL_T_DONE))
    *buf = conn->acquired = mirror_of(conn, bytes, &place);
  return status;
}

int verbs_slot_commit(coll_conn *base, const coll_tag *tag, size_t bytes) {
  verbs_conn *conn = (verbs_conn *)base;
  if (UNLIKELY(conn->gate))
    return gate_status(conn);
  /*
   * A message of fewer bytes than were acquired may belong elsewhere: it may be short, or not start
   * on a page.
   */
  verbs_place place;
  verbs_tx_room(&conn->tx, bytes, is_short(conn, bytes), &place);
  uint8_t *buf = mirror_of(conn, bytes, &place);
  if (UNLIKELY(buf != conn->acquired))
    memmove(buf, conn->acquired, bytes);
  return send_copy(conn, tag, buf, bytes, &place);
}

/* Shows the next message, if it can be seen: true if so. */
static inline bool peek_next(verbs_conn *conn, const void **buf, size_t *bytes) {
  if (verbs_rx_peek(&conn->rx, conn->rx_memory, buf, bytes))
    return true;
  return verbs_take_short(conn) && verbs_rx_peek(&conn->rx, conn->rx_memory, buf, bytes);
}

/* Shows the next message: DONE, AGAIN or an error. */
static inline int next_message(verbs_conn *conn, const void **buf, size_t *bytes) {
  /*
   * A peer that sent a farewell was ready, though the message that says so may still be on the
   * link.
   */
  if (UNLIKELY(conn->gate) && (conn->gate == VERBS_GATE_CONNECTING || !conn->rx_memory))
    return gate_status(conn);
  if (LIKELY(peek_next(conn, buf, bytes)))
    return COLL_T_DONE;
  if (LIKELY(!conn->gate) && ++conn->misses % LOOKS_PER_POLL != 0)
    return COLL_T_AGAIN;
  verbs_poll(conn->ep, conn->port);
  if (peek_next(conn, buf, bytes))
    return COLL_T_DONE;
  return UNLIKELY(conn->gate) ? gate_status(conn) : COLL_T_AGAIN;
}

/* Gives back the message that was shown. */
static inline void release_message(verbs_conn *conn) {
  verbs_rx_release(&conn->rx);
  if (UNLIKELY(verbs_rx_owes(&conn->rx)))
    verbs_post_credit(conn);
}

int verbs_recv(coll_conn *base, const coll_tag *expect, void *buf, size_t bytes, coll_tag *got,
               size_t *got_bytes) {
  verbs_conn *conn = (verbs_conn *)base;
  const void *from = NULL;
  size_t came = 0;
  int status = next_message(conn, &from, &came);
  if (status != COLL_T_DONE)
    return status;
  const coll_tag *tag = &conn->rx.tag;
  if (UNLIKELY(came != bytes || tag->word[0] != expect->word[0] ||
               tag->word[1] != expect->word[1] || tag->word[2] != expect->word[2])) {
    *got = *tag;
    *got_bytes = came;
    return COLL_ERR_MISMATCH;
  }
  if (bytes > 0 && from != buf) /* else it was written there */
    memcpy(buf, from, bytes);
  release_message(conn);
  return COLL_T_DONE;
}

int verbs_slot_peek(coll_conn *base, coll_tag *got, const void **buf, size_t *bytes) {
  verbs_conn *conn = (verbs_conn *)base;
  int status = next_message(conn, buf, bytes);
  if (LIKELY(status == COLL_T_DONE))
    *got = conn->rx.tag;
  return status;
}

int verbs_slot_release(coll_conn *base) {
  release_message((verbs_conn *)base);
  return COLL_T_DONE;
}
