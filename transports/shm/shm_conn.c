/* shm_conn.c: connections: made, used, ended. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/fork.h"
#include "transports/shm/shm_internal.h"

/* Reports why connect() fails. */
static int report_no_memory(shm_endpoint *ep, int channel) {
  coll_transport_failure failure = {
      COLL_ERR_NO_MEMORY, -1, channel, ENOMEM, "malloc", "out of memory for a connection"};
  ep->env->fail(ep->env->ctx, &failure);
  return COLL_ERR_NO_MEMORY;
}

/* coll_transport_ops.connect */
int shm_connect(coll_endpoint *endpoint, int peer, const uint8_t raw[COLL_BLOB_BYTES], int channel,
                coll_conn **result) {
  shm_endpoint *ep = (shm_endpoint *)endpoint;
  shm_fault fault;
  shm_blob blob;
  *result = NULL;
  /* shm_link is aligned to cache lines. */
  shm_conn *conn = aligned_alloc(SHM_LINE, (sizeof *conn + SHM_LINE - 1) / SHM_LINE * SHM_LINE);
  if (!conn)
    return report_no_memory(ep, channel);
  memset(conn, 0, sizeof *conn);
  conn->base = (coll_conn){NULL, peer, channel}; /* the table is above this file */
  conn->gate = SHM_GATE_CONNECTING;
  conn->ep = ep;
  conn->watch = (shm_watch){SHM_WATCH_CONN, -1};
  conn->bell_fd = conn->offered_fd = -1;
  if (!shm_region_join(conn)) {
    free(conn);
    return report_no_memory(ep, channel);
  }
  conn->next = ep->conns;
  ep->conns = conn;
  ep->connecting++;
  ep->poll_now = true;
  *result = &conn->base;
  if (peer < 0 || peer >= ep->env->nranks || peer == ep->env->rank || channel < 0) {
    shm_fault_set(&fault, COLL_ERR_INVALID_ARGUMENT, NULL, 0, "no such peer or channel");
    shm_conn_fail(conn, &fault);
  } else if (shm_blob_read(raw, &blob) != 0) {
    shm_fault_set(&fault, COLL_ERR_PROTOCOL, NULL, 0,
                  "the peer's address is not one of a shared-memory endpoint; all ranks must run "
                  "the same libcoll");
    shm_conn_fail(conn, &fault);
  } else if (ep->env->rank < peer) {
    shm_handshake_dial(ep, conn, &blob);
  } else {
    shm_handshake_match(ep, conn);
  }
  return COLL_OK;
}

/* Tells the peer through the rings that this side leaves. */
static void say_goodbye(shm_conn *conn) {
  shm_link *link = &conn->link;
  link->attention = 0;
  shm_link_leave(link);
  if (link->attention & SHM_ATTENTION_BELL)
    shm_conn_ring(conn);
  while (conn->local && atomic_load_explicit(&link->theirs->ringing, memory_order_seq_cst))
    sched_yield();
  shm_order_after(link);
}

/* coll_transport_ops.disconnect */
void shm_disconnect(coll_conn *base) {
  shm_conn *conn = (shm_conn *)base;
  shm_endpoint *ep = conn->ep;
  if (conn->link.mine) {
    shm_work_withdraw(conn);
    say_goodbye(conn);
  }
  COLLI_ASSERT_RANK(!(conn->gate & SHM_GATE_CONNECTING) || ep->connecting > 0, ep->env->rank);
  if (conn->gate & SHM_GATE_CONNECTING)
    ep->connecting--;
  shm_handshake_forget(ep, conn);
  shm_watch_close(ep, &conn->watch);
  if (conn->bell_fd >= 0 && !conn->local)
    colli_fd_close(conn->bell_fd);
  shm_region_leave(conn);
  shm_segment_unmap(&conn->segment);
  shm_conn **link = &ep->conns;
  while (*link != conn)
    link = &(*link)->next;
  *link = conn->next;
  free(conn);
}

/* coll_transport_ops.send */
int shm_send(coll_conn *base, const coll_tag *tag, const void *buf, size_t bytes) {
  shm_conn *conn = (shm_conn *)base;
  if (SHM_UNLIKELY(conn->gate))
    return shm_conn_stopped(conn);
  return shm_conn_finish_send(conn, shm_link_send(&conn->link, tag, buf, bytes));
}

/* coll_transport_ops.sent */
int shm_sent(coll_conn *base, uint64_t *count) {
  shm_conn *conn = (shm_conn *)base;
  *count = shm_link_sent(&conn->link);
  if (SHM_UNLIKELY(conn->gate & SHM_GATE_BROKEN))
    return conn->status;
  if (SHM_UNLIKELY(conn->link.ref_waiting)) {
    /* A peer that is gone reads no more references. */
    bool gone = (conn->link.attention & SHM_ATTENTION_LEFT) || (conn->gate & SHM_GATE_GONE);
    conn->link.attention &= ~SHM_ATTENTION_LEFT;
    return gone ? shm_conn_lost(conn, false) : COLL_T_DONE;
  }
  return COLL_T_DONE;
}

/* coll_transport_ops.slot_acquire */
int shm_slot_acquire(coll_conn *base, size_t bytes, void **buf) {
  shm_conn *conn = (shm_conn *)base;
  if (SHM_UNLIKELY(conn->gate))
    return shm_conn_stopped(conn);
  return shm_conn_finish_send(conn, shm_link_acquire(&conn->link, bytes, buf));
}

/* coll_transport_ops.slot_commit */
int shm_slot_commit(coll_conn *base, const coll_tag *tag, size_t bytes) {
  shm_conn *conn = (shm_conn *)base;
  if (SHM_UNLIKELY(conn->gate))
    return shm_conn_stopped(conn);
  shm_link_commit(&conn->link, tag, bytes);
  return shm_conn_finish_send(conn, COLL_T_DONE);
}

/* Shows the payload of a message with a note, as slot_peek() does. */
static int show_noted(shm_conn *conn, coll_tag *got, const void **buf, size_t *bytes) {
  shm_fault fault;
  if (shm_region_resolve(conn, got, buf, bytes, &fault) != COLL_OK)
    return shm_conn_fail(conn, &fault);
  unsigned work = conn->link.rx_ref ? shm_work_next(conn) : 0;
  if (work == SHM_WORK_OPEN || work == SHM_WORK_CLAIMED) {
    if (shm_link_peer_left(&conn->link))
      conn->link.attention |= SHM_ATTENTION_LEFT;
    return shm_conn_finish_receive(conn, COLL_T_AGAIN);
  }
  *buf = work == SHM_WORK_DONE ? NULL : *buf;
  return COLL_T_DONE;
}

/*
 * Frees the slot of a message by reference. What was read counts only if the sender was still
 * there.
 */
static int release_ref(shm_conn *conn) {
  COLLI_ASSERT_RANK(conn->link.rx_ref, conn->ep->env->rank);
  shm_order_loads();
  if (shm_link_peer_left(&conn->link))
    return shm_conn_lost(conn, true);
  conn->link.rx_ref = false;
  shm_link_release(&conn->link);
  return shm_conn_finish_receive(conn, COLL_T_DONE);
}

/* recv() of a message with a note. */
static int recv_noted(shm_conn *conn, const coll_tag *expect, void *buf, size_t bytes,
                      coll_tag *got, size_t *got_bytes) {
  const void *from;
  int status = show_noted(conn, got, &from, got_bytes);
  if (status != COLL_T_DONE)
    return status;
  if (*got_bytes != bytes || memcmp(got, expect, sizeof *got) != 0)
    return COLL_ERR_MISMATCH;
  if (from)
    memcpy(buf, from, bytes);
  return shm_slot_release(&conn->base);
}

/* coll_transport_ops.recv */
int shm_recv(coll_conn *base, const coll_tag *expect, void *buf, size_t bytes, coll_tag *got,
             size_t *got_bytes) {
  shm_conn *conn = (shm_conn *)base;
  if (SHM_UNLIKELY(conn->gate & ~SHM_GATE_GONE))
    return shm_conn_stopped(conn);
  int result = shm_link_recv(&conn->link, expect, buf, bytes, got, got_bytes);
  if (SHM_UNLIKELY(result == SHM_T_NOTED))
    return recv_noted(conn, expect, buf, bytes, got, got_bytes);
  return shm_conn_finish_receive(conn, result);
}

/* coll_transport_ops.slot_peek */
int shm_slot_peek(coll_conn *base, coll_tag *got, const void **buf, size_t *bytes) {
  shm_conn *conn = (shm_conn *)base;
  if (SHM_UNLIKELY(conn->gate & ~SHM_GATE_GONE))
    return shm_conn_stopped(conn);
  int result = shm_link_peek(&conn->link, got, buf, bytes);
  if (SHM_UNLIKELY(result == SHM_T_NOTED))
    return show_noted(conn, got, buf, bytes);
  return shm_conn_finish_receive(conn, result);
}

/* coll_transport_ops.slot_release */
int shm_slot_release(coll_conn *base) {
  shm_conn *conn = (shm_conn *)base;
  if (SHM_UNLIKELY(conn->gate & ~SHM_GATE_GONE))
    return shm_conn_stopped(conn);
  if (SHM_UNLIKELY(conn->link.rx_ref))
    return release_ref(conn);
  shm_link_release(&conn->link);
  return shm_conn_finish_receive(conn, COLL_T_DONE);
}
