/*
 * tcp_linger.c: connections that were disconnected while their messages are on the way. Closing a
 * socket at once could lose these: if there is unread input, the kernel resets the connection.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/net/path.h"
#include "transports/tcp/tcp_internal.h"

#define DRAIN_READS 64 /* bounds the work of one call */

/* Discards what the peer still sends: false if it has closed or is gone. */
static bool discard_input(int fd) {
  char waste[16384];
  for (int i = 0; i < DRAIN_READS; i++) {
    ssize_t n = recv(fd, waste, sizeof(waste), MSG_DONTWAIT);
    if (n <= 0)
      return n < 0 && (errno == EAGAIN || errno == EINTR);
  }
  return true;
}

/* Advances a lingering connection: true if nothing is left to wait for. */
static bool step_lingering(tcp_conn *conn) {
  COLLI_ASSERT(conn->state == TCP_LINGERING && conn->source.fd >= 0);
  uint64_t unacked = 0;
  const int status = colli_stream_flush(&conn->stream);
  if (status > 0)
    return true;
  if (status == COLL_T_DONE && !conn->shut) {
    shutdown(conn->source.fd, SHUT_WR);
    conn->shut = true;
  }
  if (!discard_input(conn->source.fd))
    return true;
  const bool known = colli_path_queued(conn->source.fd, &unacked);
  if (unacked != conn->unacked)
    conn->ep->lingered_ns = conn->ep->env->now_ns(conn->ep->env->ctx);
  conn->unacked = unacked;
  return conn->shut && (!known || unacked == 0);
}

/* Frees a connection that has left all lists but `lingering`. */
static void free_lingering(tcp_conn *conn) {
  COLLI_ASSERT(conn->state == TCP_LINGERING);
  LIST_REMOVE(conn, link);
  tcp_conn_free(conn);
}

/* Takes over an established connection until what was sent has arrived, and frees it then. */
void tcp_linger_start(tcp_conn *conn) {
  COLLI_ASSERT(conn->state == TCP_ESTABLISHED && !conn->dial && conn->source.fd >= 0);
  conn->state = TCP_LINGERING;
  LIST_INSERT_HEAD(&conn->ep->lingering, conn, link);
  if (conn->stream.send_status != COLL_OK || step_lingering(conn) ||
      !colli_stream_adopt(&conn->stream))
    free_lingering(conn);
}

/* Closes a connection; an established one lingers until what was sent has arrived. */
void tcp_disconnect(coll_conn *base) {
  tcp_conn *conn = (tcp_conn *)base;
  COLLI_ASSERT(conn->state != TCP_LINGERING && !conn->dial == (conn->state != TCP_DIALING));
  COLLI_ASSERT(!conn->blocked || conn->state == TCP_ESTABLISHED);
  LIST_REMOVE(conn, link);
  if (conn->blocked)
    LIST_REMOVE(conn, blocked_link);
  tcp_dial_free(conn);
  if (conn->state == TCP_ESTABLISHED) {
    tcp_linger_start(conn);
    return;
  }
  if (conn->state == TCP_SECURING)
    conn->ep->nsecuring--;
  tcp_conn_free(conn);
}

/* Advances all lingering connections. */
void tcp_linger_progress(tcp_endpoint *ep) {
  tcp_conn *conn, *next;
  for (conn = LIST_FIRST(&ep->lingering); conn; conn = next) {
    next = LIST_NEXT(conn, link);
    if (step_lingering(conn))
      free_lingering(conn);
  }
}

bool tcp_linger_goes_on(const tcp_endpoint *ep, uint64_t begun_ns) {
  /* By the clock: where processors are scarce, sleeps of 1 ms last much longer. */
  const uint64_t now_ns = ep->env->now_ns(ep->env->ctx);
  const uint64_t since_ns = ep->lingered_ns > begun_ns ? ep->lingered_ns : begun_ns;
  return now_ns < since_ns + TCP_LINGER_MS * COLLI_NS_PER_MS &&
         now_ns < begun_ns + TCP_LINGER_MOST_MS * COLLI_NS_PER_MS;
}

void tcp_linger_close(tcp_endpoint *ep, uint64_t begun_ns) {
  while (!LIST_EMPTY(&ep->lingering) && tcp_linger_goes_on(ep, begun_ns)) {
    tcp_linger_progress(ep);
    if (!LIST_EMPTY(&ep->lingering))
      poll(NULL, 0, 1);
  }
  while (!LIST_EMPTY(&ep->lingering))
    free_lingering(LIST_FIRST(&ep->lingering));
}
