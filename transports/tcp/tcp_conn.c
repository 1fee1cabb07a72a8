/* tcp_conn.c: connections, and the data calls on them. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "libcoll/base/assert.h"
#include "transports/tcp/tcp_internal.h"

/* Makes a connection fail with what its data calls will report. */
void tcp_conn_fail(tcp_conn *conn, coll_status status, const char *syscall, int sys_errno,
                   const char *format, ...) {
  COLLI_ASSERT(status > COLL_IN_PROGRESS && conn->state != TCP_FAILED && !conn->dial);
  va_list args;
  va_start(args, format);
  vsnprintf(conn->detail, sizeof(conn->detail), format, args);
  va_end(args);
  conn->status = status;
  conn->syscall = syscall;
  conn->sys_errno = sys_errno;
  if (conn->state == TCP_SECURING)
    conn->ep->nsecuring--;
  conn->state = TCP_FAILED;
  colli_tls_close(conn->tls);
  conn->tls = NULL;
  if (colli_errno_is_shortage(sys_errno)) /* if it closed now, the peer would believe us lost */
    tcp_source_watch(conn->ep, &conn->source, 0);
  else
    tcp_source_close(conn->ep, &conn->source);
}

tcp_conn *tcp_conn_new(tcp_endpoint *ep, const coll_conn *base) {
  tcp_conn *conn = calloc(1, sizeof(*conn));
  if (!conn)
    return NULL;
  conn->base = *base;
  conn->source.fd = -1;
  conn->ep = ep;
  conn->state = TCP_WAITING;
  LIST_INSERT_HEAD(&ep->conns, conn, link);
  return conn;
}

void tcp_conn_free(tcp_conn *conn) {
  colli_stream_destroy(&conn->stream);
  colli_tls_close(conn->tls);
  tcp_source_close(conn->ep, &conn->source);
  free(conn);
}

/* The handshake is done on conn->source.fd: messages may flow. */
void tcp_conn_establish(tcp_conn *conn) {
  const coll_transport_env *env = conn->ep->env;
  COLLI_ASSERT(conn->state != TCP_ESTABLISHED && conn->state < TCP_FAILED);
  COLLI_ASSERT(conn->source.fd >= 0 && !conn->dial && !conn->blocked);
  if (!colli_stream_init(&conn->stream, conn->source.fd, env->slot_bytes, env->slot_count)) {
    tcp_conn_fail(conn, COLL_ERR_NO_MEMORY, "malloc", ENOMEM, "out of memory for a connection");
    return;
  }
  /* The route may have replaced what was asked for. */
  if (colli_path_mark(conn->source.fd,
                      &(colli_path_marks){.congestion = conn->ep->marks.congestion})) {
    int error = errno;
    colli_stream_destroy(&conn->stream);
    tcp_conn_fail(conn, COLL_ERR_SYSTEM, "setsockopt", error,
                  "the kernel does not let the connection have COLL_TCP_CONGESTION=%s",
                  conn->ep->marks.congestion);
    return;
  }
  if (conn->state == TCP_SECURING)
    conn->ep->nsecuring--;
  conn->stream.tls = conn->tls;
  conn->stream.numbered = conn->rail.rails != NULL;
  conn->stream.patience_ns = conn->ep->patience_ns;
  conn->state = TCP_ESTABLISHED;
  conn->source.events = 0;
  colli_heartbeat_enable(conn->source.fd, conn->ep->heartbeat_ms);
  if (conn->near)
    colli_path_keep_short(conn->source.fd);
  else
    colli_path_pace(conn->source.fd);
  /* Edge-triggered: input that nobody asks for must not keep a sleeper awake. */
  if (!tcp_source_watch(conn->ep, &conn->source, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)) {
    int error = errno;
    colli_stream_destroy(&conn->stream);
    tcp_conn_fail(conn, COLL_ERR_SYSTEM, "epoll_ctl", error, "cannot watch a connection");
  }
}

int tcp_conn_shake(tcp_conn *conn) {
  COLLI_ASSERT(conn->state == TCP_SECURING && conn->tls && conn->source.fd >= 0);
  const int result = colli_tls_shake(conn->tls);
  conn->source.events = 0;
  if (result == COLL_T_DONE) {
    tcp_conn_establish(conn);
    return 1;
  }
  const short events = colli_tls_events(conn->tls, POLLIN);
  if (result == COLL_T_AGAIN && tcp_source_watch(conn->ep, &conn->source, (uint32_t)events))
    return 0;
  if (result == EBADMSG)
    tcp_conn_fail(conn, COLL_ERR_AUTH, NULL, result,
                  "the TLS handshake failed after the peer had proved that it knows the secret; "
                  "somebody changes packets: see the network between the hosts");
  else if (result == ESHUTDOWN || result == ECONNRESET || result == EPIPE)
    tcp_conn_fail(conn, COLL_ERR_PEER_LOST, "recv", result,
                  "the peer closed the connection during the TLS handshake");
  else
    tcp_conn_fail(conn, COLL_ERR_SYSTEM, "recv", result > 0 ? result : errno,
                  "the TLS handshake failed");
  return 1;
}

void tcp_conn_secure(tcp_conn *conn, colli_tls *tls) {
  COLLI_ASSERT(conn->state == TCP_WAITING && conn->source.fd >= 0 && !conn->tls);
  if (!conn->ep->tls) {
    tcp_conn_establish(conn);
    return;
  }
  conn->tls = tls;
  if (!tls) {
    tcp_conn_fail(conn, COLL_ERR_NO_MEMORY, "malloc", ENOMEM, "out of memory for TLS");
    return;
  }
  conn->state = TCP_SECURING;
  conn->ep->nsecuring++;
  tcp_conn_shake(conn);
}

/* Tells the environment why a connection failed, once; returns the status. */
static int report_failure(tcp_conn *conn, int status) {
  COLLI_ASSERT(status > 0 && (conn->state == TCP_FAILED || conn->state == TCP_ESTABLISHED));
  if (conn->reported)
    return status;
  conn->reported = true;
  coll_transport_failure failure = {(coll_status)status, conn->base.peer, conn->base.channel,
                                    conn->sys_errno,     conn->syscall,   conn->detail};
  if (conn->state == TCP_ESTABLISHED) {
    failure.sys_errno = conn->stream.sys_errno;
    failure.syscall = conn->stream.syscall;
    failure.detail = conn->stream.detail;
  }
  if (colli_errno_is_shortage(failure.sys_errno))
    failure.peer = -1; /* it is no fault of the peer */
  conn->ep->env->fail(conn->ep->env->ctx, &failure);
  return status;
}

/* What a data call returns while a connection is not established, or has failed. */
static int not_established(tcp_conn *conn) {
  return conn->state == TCP_FAILED ? report_failure(conn, (int)conn->status) : COLL_T_AGAIN;
}

void tcp_conn_note_output(tcp_conn *conn) {
  if (!colli_stream_blocked(&conn->stream) || conn->blocked)
    return;
  conn->blocked = true;
  LIST_INSERT_HEAD(&conn->ep->blocked, conn, blocked_link);
}

/* After a call that may have left output waiting. */
static inline int after_send(tcp_conn *conn, int status) {
  if (__builtin_expect(colli_stream_blocked(&conn->stream), 0))
    tcp_conn_note_output(conn);
  return __builtin_expect(status > 0, 0) ? report_failure(conn, status) : status;
}

/* After a receive: output that waits may be what the peer needs before it sends. */
static inline int after_recv(tcp_conn *conn, int status) {
  if (__builtin_expect(conn->blocked, 0) && status == COLL_T_AGAIN)
    colli_stream_flush(&conn->stream);
  if (__builtin_expect(status > 0, 0) && status != COLL_ERR_MISMATCH)
    return report_failure(conn, status);
  return status;
}

int tcp_send(coll_conn *base, const coll_tag *tag, const void *buf, size_t bytes) {
  tcp_conn *conn = (tcp_conn *)base;
  if (__builtin_expect(conn->state != TCP_ESTABLISHED, 0))
    return not_established(conn);
  return after_send(conn, colli_stream_send(&conn->stream, tag, buf, bytes));
}

int tcp_sent(coll_conn *base, uint64_t *count) {
  tcp_conn *conn = (tcp_conn *)base;
  *count = 0;
  if (conn->state != TCP_ESTABLISHED)
    return conn->state == TCP_FAILED ? not_established(conn) : COLL_T_DONE;
  return after_send(conn, colli_stream_sent(&conn->stream, count));
}

int tcp_slot_acquire(coll_conn *base, size_t bytes, void **buf) {
  tcp_conn *conn = (tcp_conn *)base;
  if (__builtin_expect(conn->state != TCP_ESTABLISHED, 0))
    return not_established(conn);
  return after_send(conn, colli_stream_slot_acquire(&conn->stream, bytes, buf));
}

int tcp_slot_commit(coll_conn *base, const coll_tag *tag, size_t bytes) {
  tcp_conn *conn = (tcp_conn *)base;
  COLLI_ASSERT(conn->state == TCP_ESTABLISHED); /* a slot was acquired */
  return after_send(conn, colli_stream_slot_commit(&conn->stream, tag, bytes));
}

int tcp_recv(coll_conn *base, const coll_tag *expect, void *buf, size_t bytes, coll_tag *got,
             size_t *got_bytes) {
  tcp_conn *conn = (tcp_conn *)base;
  if (__builtin_expect(conn->state != TCP_ESTABLISHED, 0))
    return not_established(conn);
  return after_recv(conn, colli_stream_recv(&conn->stream, expect, buf, bytes, got, got_bytes));
}

int tcp_slot_peek(coll_conn *base, coll_tag *got, const void **buf, size_t *bytes) {
  tcp_conn *conn = (tcp_conn *)base;
  if (__builtin_expect(conn->state != TCP_ESTABLISHED, 0))
    return not_established(conn);
  return after_recv(conn, colli_stream_slot_peek(&conn->stream, got, buf, bytes));
}

int tcp_slot_release(coll_conn *base) {
  COLLI_ASSERT(((tcp_conn *)base)->state == TCP_ESTABLISHED); /* a message was peeked at */
  return colli_stream_slot_release(&((tcp_conn *)base)->stream);
}
