/* mux_ops.c: virtual channels as the executor sees them: the operations of a transport. */
#include <string.h>

#include "libcoll/comm/mux/mux_internal.h"

/* ---- connecting ------------------------------------------------------------------------------ */

static int mux_connect(coll_endpoint *ep, int peer, const uint8_t blob[COLL_BLOB_BYTES],
                       int channel, coll_conn **conn) {
  (void)blob;
  colli_mux_child *child = (colli_mux_child *)ep;
  int status = COLL_T_DONE;
  *conn = NULL;
  mux_link *link = mux_link_get(child->mux, child->base_ranks[peer], &status);
  if (!link)
    return status;
  mux_vc *vc = mux_vc_get(child, link, channel);
  if (!vc) {
    coll_transport_failure failure = {.status = COLL_ERR_NO_MEMORY,
                                      .peer = -1,
                                      .channel = channel,
                                      .detail = "out of memory for a connection"};
    colli_family_report(child->mux->family, &failure);
    return COLL_ERR_NO_MEMORY;
  }
  vc->conn.ops = colli_mux_ops_over(link->conn->ops);
  vc->conn.peer = peer;
  *conn = &vc->conn;
  return COLL_T_DONE;
}

/* The virtual channel stays until its communicator is closed, because messages may still arrive. */
static void mux_disconnect(coll_conn *conn) {
  mux_vc_empty((mux_vc *)conn);
}

/* The peer has ended the communicator. */
static int peer_gone(mux_vc *vc) {
  coll_transport_failure failure = {
      .status = COLL_ERR_PEER_LOST,
      .peer = vc->link->peer,
      .channel = vc->channel,
      .detail = "the peer has ended its communicator; see its own error, or let it take part as "
                "long as the others"};
  colli_family_report(vc->child->mux->family, &failure);
  return COLL_ERR_PEER_LOST;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* The caller's tag uses bits that carry the name of the virtual channel. */
static int bad_tag(const mux_vc *vc) {
  coll_transport_failure failure = {.status = COLL_ERR_INTERNAL,
                                    .peer = vc->link->peer,
                                    .channel = vc->channel,
                                    .detail = "a tag uses bits that shared connections need"};
  colli_family_report(vc->child->mux->family, &failure);
  return COLL_ERR_INTERNAL;
}

static int mux_slot_acquire(coll_conn *conn, size_t bytes, void **buf) {
  mux_vc *vc = (mux_vc *)conn;
  mux_link *link = vc->link;
  (void)bytes;
  if (vc->child->gone[conn->peer])
    return peer_gone(vc);
  if (vc->credits == 0) {
    mux_link_drain(link);
    mux_link_flush(link);
    return link->recv_status != COLL_OK ? mux_recv_failed(link) : COLL_T_AGAIN;
  }
  return mux_link_acquire(link, buf);
}

/* Drops messages that the connection has sent. */
static int reap_sent(mux_vc *vc) {
  mux_link *link = vc->link;
  uint64_t count = 0;
  if (vc->npending == 0)
    return link->send_status != COLL_OK ? mux_send_failed(link) : COLL_T_DONE;
  int status = link->conn->ops->sent(link->conn, &count);
  unsigned capacity = vc->child->mux->window;
  while (vc->npending > 0 && vc->pending[vc->pending_first] <= count) {
    vc->pending_first = (vc->pending_first + 1) % capacity;
    vc->npending--;
  }
  return status;
}

static int mux_slot_commit(coll_conn *conn, const coll_tag *tag, size_t bytes) {
  mux_vc *vc = (mux_vc *)conn;
  mux_link *link = vc->link;
  unsigned capacity = vc->child->mux->window;
  if (!mux_fits(tag))
    return bad_tag(vc);
  coll_tag wrapped = mux_wrap(tag, MUX_DATA, vc->child->numbers[conn->peer], vc->channel);
  int status = mux_link_commit(link, &wrapped, bytes);
  if (status > 0)
    return status;
  vc->credits--;
  vc->taken++;
  if (status == COLL_T_DONE) {
    vc->npending = 0; /* messages are sent in order */
  } else {
    /* Messages whose credits the peer has returned were sent, so this makes room. */
    if (vc->npending == capacity)
      reap_sent(vc);
    vc->pending[(vc->pending_first + vc->npending++) % capacity] = link->taken;
  }
  if (link->nnotes)
    mux_link_flush(link);
  return status;
}

static int mux_send(coll_conn *conn, const coll_tag *tag, const void *buf, size_t bytes) {
  void *slot;
  int status = mux_slot_acquire(conn, bytes, &slot);
  if (status != COLL_T_DONE)
    return status;
  if (bytes)
    memcpy(slot, buf, bytes);
  return mux_slot_commit(conn, tag, bytes);
}

static int mux_sent(coll_conn *conn, uint64_t *count) {
  mux_vc *vc = (mux_vc *)conn;
  int status = reap_sent(vc);
  *count = vc->taken - vc->npending;
  return status;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Shows the next message of the connection if it is for this virtual channel. */
static int peek_connection(mux_vc *vc, coll_tag *got, const void **buf, size_t *bytes) {
  int status = mux_link_peek_for(vc->link, vc, got, buf, bytes);
  return status == COLL_T_AGAIN && vc->child->gone[vc->conn.peer] ? peer_gone(vc) : status;
}

/* Shows the next message in the queue. It is copied there, so that it stays where it was shown
 * until slot_release() while the connection goes on for others. */
static int mux_slot_peek(coll_conn *conn, coll_tag *got, const void **buf, size_t *bytes) {
  mux_vc *vc = (mux_vc *)conn;
  while (!vc->first) {
    int status = peek_connection(vc, got, buf, bytes);
    if (status == COLL_T_DONE)
      status = mux_link_take(vc->link);
    if (status != COLL_T_DONE)
      return status;
  }
  *got = vc->first->tag;
  *buf = vc->first->data;
  *bytes = vc->first->bytes;
  return COLL_T_DONE;
}

/* Counts a received message, and returns credits to the peer from time to time. */
static void count_consumed(mux_vc *vc) {
  colli_mux_child *child = vc->child;
  if (++vc->consumed < child->mux->batch)
    return;
  mux_link_note(vc->link, MUX_CREDIT, child->numbers[vc->conn.peer], vc->channel, vc->consumed);
  vc->consumed = 0;
}

static int mux_slot_release(coll_conn *conn) {
  mux_vc *vc = (mux_vc *)conn;
  if (vc->first)
    mux_vc_pop(vc);
  count_consumed(vc);
  return COLL_T_DONE;
}

/* Receives from the queue, or else directly from the connection. */
static int mux_recv(coll_conn *conn, const coll_tag *expect, void *buf, size_t bytes, coll_tag *got,
                    size_t *got_bytes) {
  mux_vc *vc = (mux_vc *)conn;
  const void *data;
  bool queued = vc->first != NULL;
  int status = queued ? mux_slot_peek(conn, got, &data, got_bytes)
                      : peek_connection(vc, got, &data, got_bytes);
  if (status != COLL_T_DONE)
    return status;
  if (*got_bytes != bytes || memcmp(got, expect, sizeof(*got)) != 0)
    return COLL_ERR_MISMATCH;
  if (bytes)
    memcpy(buf, data, bytes);
  if (queued)
    mux_vc_pop(vc);
  else
    mux_link_release(vc->link);
  count_consumed(vc);
  return COLL_T_DONE;
}

/* Operations on endpoints as a whole are left to the transports below. */
#define MUX_OPS(its_caps)                                                                          \
  {                                                                                                \
    .size = sizeof(coll_transport_ops), .abi = COLL_TRANSPORT_ABI, .caps = its_caps,               \
    .name = "mux", .connect = mux_connect, .disconnect = mux_disconnect, .send = mux_send,         \
    .sent = mux_sent, .slot_acquire = mux_slot_acquire, .slot_commit = mux_slot_commit,            \
    .recv = mux_recv, .slot_peek = mux_slot_peek, .slot_release = mux_slot_release                 \
  }

static const coll_transport_ops spinning_ops = MUX_OPS(COLL_CAP_SPIN);
static const coll_transport_ops other_ops = MUX_OPS(0);

/* Polling a virtual channel costs what polling the connection below costs. */
const coll_transport_ops *colli_mux_ops_over(const coll_transport_ops *below) {
  return below->caps & COLL_CAP_SPIN ? &spinning_ops : &other_ops;
}
