/*
 * shm_state.c: the state of a connection, and what its calls return in each: it comes up, its peer
 * is woken or lost, it fails.
 */
#include <errno.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/net/sockets.h"
#include "transports/shm/shm_internal.h"

int shm_conn_fail(shm_conn *conn, const shm_fault *fault) {
  shm_endpoint *ep = conn->ep;
  COLLI_ASSERT_RANK(fault->status != COLL_OK, ep->env->rank);
  if (conn->status == COLL_OK) {
    conn->status = fault->status;
    /* A shortage on this rank is not the peer's fault. */
    const bool own = fault->sys_errno != 0 && (fault->status == COLL_ERR_NO_MEMORY ||
                                               colli_errno_is_shortage(fault->sys_errno));
    coll_transport_failure failure = {fault->status,      own ? -1 : conn->base.peer,
                                      conn->base.channel, fault->sys_errno,
                                      fault->syscall,     fault->detail};
    ep->env->fail(ep->env->ctx, &failure);
  }
  if (conn->gate & SHM_GATE_CONNECTING)
    ep->connecting--;
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
  COLLI_ASSERT_RANK(conn->gate & SHM_GATE_CONNECTING && ep->connecting > 0, ep->env->rank);
  COLLI_ASSERT_RANK(!conn->segment.memory && hs->segment.memory, ep->env->rank);
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
  atomic_store_explicit(&conn->link.mine->fenced, ep->fenced, memory_order_relaxed);
  conn->link.order_key = conn->local ? order_key(conn) : NULL;
  conn->gate &= ~SHM_GATE_CONNECTING;
  ep->connecting--;
  ep->happened = true;
}

/*
 * Wakes a sleeping peer. In one process the descriptor may be closed as soon as the peer has left,
 * so `ringing` holds up its shm_disconnect() until this is done.
 */
void shm_conn_ring(shm_conn *conn) {
  uint64_t one = 1;
  ssize_t wrote;
  if (!conn->local) {
    wrote = write(conn->bell_fd, &one, sizeof one);
  } else {
    shm_link *link = &conn->link;
    atomic_store_explicit(&link->mine->ringing, 1, memory_order_seq_cst);
    if (!shm_link_peer_left(link))
      wrote = write(conn->bell_fd, &one, sizeof one);
    shm_order_before(link);
    atomic_store_explicit(&link->mine->ringing, 0, memory_order_release);
  }
  (void)wrote; /* fails only if the counter is full, and then the peer is awake */
}

/* Reports that the peer is gone; what it has sent can still be received after a send failed. */
int shm_conn_lost(shm_conn *conn, bool receiving) {
  shm_fault fault;
  uint32_t gate = conn->gate;
  shm_fault_set(&fault, COLL_ERR_PEER_LOST, NULL, 0,
                shm_link_peer_left(&conn->link)
                    ? "the peer has closed the connection; see its own error, or let it take part "
                      "as long as the others"
                    : "the peer's process has ended; see its output or exit status");
  int status = shm_conn_fail(conn, &fault);
  if (!receiving)
    conn->gate = gate | SHM_GATE_GONE;
  return status;
}

int shm_conn_stopped(shm_conn *conn) {
  if (conn->gate & SHM_GATE_BROKEN)
    return conn->status;
  return conn->gate & SHM_GATE_CONNECTING ? COLL_T_AGAIN : shm_conn_lost(conn, false);
}

/* After a data call of the rings: does what it left to do; returns what the caller gets. */
int shm_conn_attend(shm_conn *conn, int result, bool receiving) {
  shm_fault fault;
  uint32_t attention = conn->link.attention;
  conn->link.attention = 0;
  if (attention & SHM_ATTENTION_BELL)
    shm_conn_ring(conn);
  if (attention & SHM_ATTENTION_LEFT) {
    /*
     * The peer may have left in good order after the very message that was just published: only the
     * next send fails.
     */
    if (!receiving && result == COLL_T_DONE) {
      conn->gate |= SHM_GATE_GONE;
      return result;
    }
    return shm_conn_lost(conn, receiving);
  }
  if (result == COLL_ERR_PROTOCOL || result == COLL_ERR_INTERNAL) {
    shm_fault_set(&fault, (coll_status)result, NULL, 0,
                  result == COLL_ERR_PROTOCOL
                      ? "the shared memory holds what libcoll never writes; the peer's process has "
                        "damaged its memory"
                      : "a message larger than a slot");
    return shm_conn_fail(conn, &fault);
  }
  return result;
}
