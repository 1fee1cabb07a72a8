/* shm_conn.c: connections: made, used, ended. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transports/shm/shm.h"
#include "transports/shm/shm_internal.h"

int shm_conn_fail(shm_conn *conn, const shm_fault *fault) {
  shm_endpoint *ep = conn->ep;
  if (conn->status == COLL_OK) {
    conn->status = fault->status;
    coll_transport_failure failure = {fault->status,    conn->base.peer, conn->base.channel,
                                      fault->sys_errno, fault->syscall,  fault->detail};
    ep->env->fail(ep->env->ctx, &failure);
  }
  if (conn->gate & SHM_GATE_CONNECTING) {
    ep->connecting--;
  }
  conn->gate = (conn->gate & ~SHM_GATE_CONNECTING) | SHM_GATE_BROKEN;
  return conn->status;
}

/* An address that both ends of a connection in one process know, and that is never freed (see
 * shm_order_before()). */
static const void *order_key(const shm_conn *conn) {
  static const uint64_t keys[1024];
  const coll_transport_env *env = conn->ep->env;
  uint64_t low = (uint64_t)(env->rank < conn->base.peer ? env->rank : conn->base.peer);
  uint64_t sum = (uint64_t)env->rank + (uint64_t)conn->base.peer;
  uint64_t hash = env->comm_id + low * 31 + sum * 1009 + (uint64_t)conn->base.channel * 17;
  return &keys[hash % 1024];
}

void shm_conn_up(shm_conn *conn, shm_handshake *hs) {
  shm_endpoint *ep = conn->ep;
  conn->local = hs->local;
  conn->bell_fd = hs->bell_fd;
  conn->segment = hs->segment;
  hs->bell_fd = -1;
  hs->segment.memory = NULL;
  if (!conn->local) {
    conn->watch.fd = hs->watch.fd;
    hs->watch.fd = -1;
    if (shm_watch_move(ep, &conn->watch) != 0) {
      shm_fault fault;
      shm_fault_set(&fault, COLL_ERR_SYSTEM, "epoll_ctl", errno, "cannot watch a Unix socket");
      shm_conn_fail(conn, &fault);
      return;
    }
  }
  shm_link_init(&conn->link, conn->segment.memory, ep->env->slot_bytes, ep->env->slot_count,
                !hs->dialer);
  conn->link.order_key = conn->local ? order_key(conn) : NULL;
  conn->gate &= ~SHM_GATE_CONNECTING;
  ep->connecting--;
  ep->happened = true;
}

/* connect() fails. */
static int no_memory(shm_endpoint *ep, int peer, int channel) {
  coll_transport_failure failure = {COLL_ERR_NO_MEMORY,          peer, channel, 0, NULL,
                                    "no memory for a connection"};
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
  if (!conn) {
    return no_memory(ep, peer, channel);
  }
  memset(conn, 0, sizeof *conn);
  conn->base = (coll_conn){&shm_transport, peer, channel};
  conn->gate = SHM_GATE_CONNECTING;
  conn->ep = ep;
  conn->watch = (shm_watch){SHM_WATCH_CONN, -1};
  conn->bell_fd = conn->offered_fd = -1;
  if (!shm_region_join(conn)) {
    free(conn);
    return no_memory(ep, peer, channel);
  }
  conn->next = ep->conns;
  ep->conns = conn;
  ep->connecting++;
  ep->look_now = true;
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

/* Wakes a sleeping peer. In one process its descriptor may be closed as soon as it has left, so
 * `ringing` holds its shm_disconnect() until this is done. */
static void ring_bell(shm_conn *conn) {
  uint64_t one = 1;
  ssize_t wrote;
  if (!conn->local) {
    wrote = write(conn->bell_fd, &one, sizeof one);
  } else {
    shm_link *link = &conn->link;
    atomic_store_explicit(&link->mine->ringing, 1, memory_order_seq_cst);
    if (!shm_link_peer_left(link)) {
      wrote = write(conn->bell_fd, &one, sizeof one);
    }
    shm_order_before(link);
    atomic_store_explicit(&link->mine->ringing, 0, memory_order_release);
  }
  (void)wrote; /* fails only if the counter is full, and then the peer is awake */
}

/* Says goodbye through the rings. */
static void leave(shm_conn *conn) {
  shm_link *link = &conn->link;
  link->attention = 0;
  shm_link_leave(link);
  if (link->attention & SHM_ATTENTION_BELL) {
    ring_bell(conn);
  }
  while (conn->local && atomic_load_explicit(&link->theirs->ringing, memory_order_seq_cst)) {
    sched_yield();
  }
  shm_order_after(link);
}

/* coll_transport_ops.disconnect */
void shm_disconnect(coll_conn *base) {
  shm_conn *conn = (shm_conn *)base;
  shm_endpoint *ep = conn->ep;
  if (conn->link.mine) {
    shm_work_withdraw(conn);
    leave(conn);
  }
  if (conn->gate & SHM_GATE_CONNECTING) {
    ep->connecting--;
  }
  shm_handshake_forget(ep, conn);
  shm_watch_close(ep, &conn->watch);
  if (conn->bell_fd >= 0 && !conn->local) {
    close(conn->bell_fd);
  }
  shm_region_leave(conn);
  shm_segment_unmap(&conn->segment);
  shm_conn **link = &ep->conns;
  while (*link != conn) {
    link = &(*link)->next;
  }
  *link = conn->next;
  free(conn);
}

/* Reports that the peer is gone; what it has sent can still be received after a send failed. */
static int peer_lost(shm_conn *conn, bool receiving) {
  shm_fault fault;
  uint32_t gate = conn->gate;
  shm_fault_set(&fault, COLL_ERR_PEER_LOST, NULL, 0,
                shm_link_peer_left(&conn->link)
                    ? "the peer has closed the connection; see its own error, or let it take part "
                      "as long as the others"
                    : "the peer's process has ended; see its output or exit status");
  int status = shm_conn_fail(conn, &fault);
  if (!receiving) {
    conn->gate = gate | SHM_GATE_GONE;
  }
  return status;
}

int shm_conn_stopped(shm_conn *conn) {
  if (conn->gate & SHM_GATE_BROKEN) {
    return conn->status;
  }
  return conn->gate & SHM_GATE_CONNECTING ? COLL_T_AGAIN : peer_lost(conn, false);
}

/* After a data call of the rings: does what it left to do; returns what the caller gets. */
static int attend(shm_conn *conn, int result, bool receiving) {
  shm_fault fault;
  uint32_t attention = conn->link.attention;
  conn->link.attention = 0;
  if (attention & SHM_ATTENTION_BELL) {
    ring_bell(conn);
  }
  if (attention & SHM_ATTENTION_LEFT) {
    /* A message that is published may be the very one after which the peer left in good order: only
     * the next send is one too many. */
    if (!receiving && result == COLL_T_DONE) {
      conn->gate |= SHM_GATE_GONE;
      return result;
    }
    return peer_lost(conn, receiving);
  }
  if (result == COLL_ERR_PROTOCOL || result == COLL_ERR_INTERNAL) {
    shm_fault_set(&fault, (coll_status)result, NULL, 0,
                  result == COLL_ERR_PROTOCOL
                      ? "the shared memory holds what no libcoll writes; the peer's process has "
                        "damaged its memory"
                      : "a message larger than a slot");
    return shm_conn_fail(conn, &fault);
  }
  return result;
}

/* Most sends end here without a jump. */
static inline int finish_send(shm_conn *conn, int result) {
  if (SHM_UNLIKELY(conn->link.attention || result > 0)) {
    return attend(conn, result, false);
  }
  return result;
}

int shm_conn_finish_send(shm_conn *conn, int result) {
  return finish_send(conn, result);
}

/* The same for a receive: no message of a peer that is gone will ever come. */
static inline int finish_receive(shm_conn *conn, int result) {
  if (SHM_UNLIKELY(conn->link.attention || result > 0)) {
    result = attend(conn, result, true);
  }
  if (SHM_UNLIKELY(result == COLL_T_AGAIN && conn->gate)) {
    return peer_lost(conn, true);
  }
  return result;
}

/* coll_transport_ops.send */
int shm_send(coll_conn *base, const coll_tag *tag, const void *buf, size_t bytes) {
  shm_conn *conn = (shm_conn *)base;
  if (SHM_UNLIKELY(conn->gate)) {
    return shm_conn_stopped(conn);
  }
  return finish_send(conn, shm_link_send(&conn->link, tag, buf, bytes));
}

/* coll_transport_ops.sent */
int shm_sent(coll_conn *base, uint64_t *count) {
  shm_conn *conn = (shm_conn *)base;
  *count = shm_link_sent(&conn->link);
  if (SHM_UNLIKELY(conn->gate & SHM_GATE_BROKEN)) {
    return conn->status;
  }
  if (SHM_UNLIKELY(conn->link.ref_waiting)) {
    /* A peer that is gone reads no reference any more. */
    bool gone = (conn->link.attention & SHM_ATTENTION_LEFT) || (conn->gate & SHM_GATE_GONE);
    conn->link.attention &= ~SHM_ATTENTION_LEFT;
    return gone ? peer_lost(conn, false) : COLL_T_DONE;
  }
  return COLL_T_DONE;
}

/* coll_transport_ops.slot_acquire */
int shm_slot_acquire(coll_conn *base, size_t bytes, void **buf) {
  shm_conn *conn = (shm_conn *)base;
  if (SHM_UNLIKELY(conn->gate)) {
    return shm_conn_stopped(conn);
  }
  return finish_send(conn, shm_link_acquire(&conn->link, bytes, buf));
}

/* coll_transport_ops.slot_commit */
int shm_slot_commit(coll_conn *base, const coll_tag *tag, size_t bytes) {
  shm_conn *conn = (shm_conn *)base;
  if (SHM_UNLIKELY(conn->gate)) {
    return shm_conn_stopped(conn);
  }
  shm_link_commit(&conn->link, tag, bytes);
  return finish_send(conn, COLL_T_DONE);
}

/* A message with a note has come: its payload, as slot_peek() shows it. */
static int take_noted(shm_conn *conn, coll_tag *got, const void **buf, size_t *bytes) {
  shm_fault fault;
  if (shm_region_take(conn, got, buf, bytes, &fault) != COLL_OK) {
    return shm_conn_fail(conn, &fault);
  }
  unsigned work = conn->link.rx_ref ? shm_work_next(conn) : 0;
  if (work == SHM_WORK_OPEN || work == SHM_WORK_CLAIMED) {
    if (shm_link_peer_left(&conn->link)) {
      conn->link.attention |= SHM_ATTENTION_LEFT;
    }
    return finish_receive(conn, COLL_T_AGAIN);
  }
  *buf = work == SHM_WORK_DONE ? NULL : *buf;
  return COLL_T_DONE;
}

/* Frees the slot of a message by reference: its sender must still have been there when it was read.
 */
static int release_ref(shm_conn *conn) {
  shm_order_loads();
  if (shm_link_peer_left(&conn->link)) {
    return peer_lost(conn, true);
  }
  conn->link.rx_ref = false;
  shm_link_release(&conn->link);
  return finish_receive(conn, COLL_T_DONE);
}

/* recv() of a message with a note. */
static int recv_noted(shm_conn *conn, const coll_tag *expect, void *buf, size_t bytes,
                      coll_tag *got, size_t *got_bytes) {
  const void *from;
  int status = take_noted(conn, got, &from, got_bytes);
  if (status != COLL_T_DONE) {
    return status;
  }
  if (*got_bytes != bytes || memcmp(got, expect, sizeof *got) != 0) {
    return COLL_ERR_MISMATCH;
  }
  if (from) {
    memcpy(buf, from, bytes);
  }
  return shm_slot_release(&conn->base);
}

/* coll_transport_ops.recv */
int shm_recv(coll_conn *base, const coll_tag *expect, void *buf, size_t bytes, coll_tag *got,
             size_t *got_bytes) {
  shm_conn *conn = (shm_conn *)base;
  if (SHM_UNLIKELY(conn->gate & ~SHM_GATE_GONE)) {
    return shm_conn_stopped(conn);
  }
  int result = shm_link_recv(&conn->link, expect, buf, bytes, got, got_bytes);
  if (SHM_UNLIKELY(result == SHM_T_NOTED)) {
    return recv_noted(conn, expect, buf, bytes, got, got_bytes);
  }
  return finish_receive(conn, result);
}

/* coll_transport_ops.slot_peek */
int shm_slot_peek(coll_conn *base, coll_tag *got, const void **buf, size_t *bytes) {
  shm_conn *conn = (shm_conn *)base;
  if (SHM_UNLIKELY(conn->gate & ~SHM_GATE_GONE)) {
    return shm_conn_stopped(conn);
  }
  int result = shm_link_peek(&conn->link, got, buf, bytes);
  if (SHM_UNLIKELY(result == SHM_T_NOTED)) {
    return take_noted(conn, got, buf, bytes);
  }
  return finish_receive(conn, result);
}

/* coll_transport_ops.slot_release */
int shm_slot_release(coll_conn *base) {
  shm_conn *conn = (shm_conn *)base;
  if (SHM_UNLIKELY(conn->gate & ~SHM_GATE_GONE)) {
    return shm_conn_stopped(conn);
  }
  if (SHM_UNLIKELY(conn->link.rx_ref)) {
    return release_ref(conn);
  }
  shm_link_release(&conn->link);
  return finish_receive(conn, COLL_T_DONE);
}
