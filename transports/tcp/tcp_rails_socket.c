/*
 * tcp_rails_socket.c: what becomes of one socket of a connection over rails: what the kernel and
 * the peer have of what it was given, its retirement, its end; and the end of the whole connection.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "libcoll/base/assert.h"
#include "transports/tcp/tcp_rails.h"

/* ---- what has arrived ------------------------------------------------------------------------ */

/* Whether the kernel has got a piece. */
static bool is_written(const tcp_rails *rails, uint64_t number) {
  const tcp_kept *kept = tcp_kept_at(rails, number);
  return kept->buffer < 0 ||
         (kept->by && tcp_rail_is_open(kept->by) &&
          kept->end + colli_stream_unwritten(&kept->by->stream) <= kept->by->rail.given);
}

void tcp_rails_count_written(tcp_rails *rails) {
  for (; rails->written < rails->next && is_written(rails, rails->written); rails->written++)
    rails->sent += tcp_kept_at(rails, rails->written)->behind == 0;
}

void tcp_rails_reap(tcp_rails *rails) {
  const coll_transport_env *env = rails->ep->env;
  tcp_conn *conn;
  rails->reaped_ns = env->now_ns(env->ctx);
  TAILQ_FOREACH(conn, &rails->sockets, rail.link)
    if (conn->state == TCP_ESTABLISHED && !conn->rail.retired)
      tcp_rails_look_at_arrivals(conn, rails->reaped_ns);
  for (uint64_t i = rails->first; i < rails->next; i++) {
    tcp_kept *kept = tcp_kept_at(rails, i);
    if (kept->buffer < 0 || !kept->by || kept->end > kept->by->rail.arrived)
      continue;
    if (--rails->uses[kept->buffer] == 0)
      rails->free[rails->nfree++] = kept->buffer;
    kept->buffer = -1;
    kept->by = NULL;
  }
  tcp_rails_count_written(rails);
  for (; rails->first < rails->next && tcp_kept_at(rails, rails->first)->buffer < 0; rails->first++)
    rails->kept_bytes -= tcp_kept_at(rails, rails->first)->bytes;
}

/* ---- the end of a socket --------------------------------------------------------------------- */

void tcp_rails_remove(tcp_conn *conn) {
  tcp_rails *rails = conn->rail.rails;
  COLLI_ASSERT(rails->nsockets > 0 && rails->current != conn);
  TAILQ_REMOVE(&rails->sockets, conn, rail.link);
  rails->nsockets--;
  if (!conn->rail.retired)
    tcp_rails_count_lost(conn);
  if (conn->state == TCP_ESTABLISHED && (conn->rail.retired || conn->stream.send_status)) {
    LIST_REMOVE(conn, link); /* what it has not sent goes over the others */
    if (conn->blocked)
      LIST_REMOVE(conn, blocked_link);
    tcp_conn_free(conn);
  } else {
    tcp_disconnect(&conn->base);
  }
}

int tcp_rails_open(const tcp_rails *rails) {
  const tcp_conn *conn;
  int count = 0;
  TAILQ_FOREACH(conn, &rails->sockets, rail.link)
    count += tcp_rail_is_open(conn);
  return count;
}

int tcp_rails_missing(const tcp_rails *rails) {
  const tcp_conn *conn;
  int missing = rails->wanted; /* each poll asks */
  TAILQ_FOREACH(conn, &rails->sockets, rail.link)
    missing -= tcp_rail_is_open(conn) && conn->rail.place < TCP_PAIRS_MAX;
  return missing;
}

void tcp_rails_fail_here(tcp_rails *rails, coll_status status, const char *syscall, int sys_errno,
                         const char *detail) {
  if (rails->status != COLL_OK)
    return;
  rails->status = status;
  rails->syscall = syscall;
  rails->sys_errno = sys_errno;
  snprintf(rails->detail, sizeof(rails->detail), "%s",
           detail ? detail : "the peer gave up the connection");
}

void tcp_rails_fail(tcp_rails *rails, coll_status status, const tcp_conn *why) {
  if (why->state == TCP_FAILED)
    tcp_rails_fail_here(rails, status, why->syscall, why->sys_errno, why->detail);
  else
    tcp_rails_fail_here(rails, status, why->stream.syscall, why->stream.sys_errno,
                        why->stream.detail);
}

int tcp_rails_check(tcp_rails *rails) {
  if (rails->status == COLL_OK)
    return rails->was_up ? COLL_T_DONE : COLL_T_AGAIN;
  if (!rails->reported) {
    const coll_transport_env *env = rails->ep->env;
    rails->reported = true;
    coll_transport_failure failure = {rails->status,    rails->base.peer, rails->base.channel,
                                      rails->sys_errno, rails->syscall,   rails->detail};
    if (colli_errno_is_shortage(rails->sys_errno))
      failure.peer = -1; /* it is no fault of the peer */
    env->fail(env->ctx, &failure);
  }
  return (int)rails->status;
}

void tcp_rails_retire(tcp_conn *conn) {
  tcp_rails *rails = conn->rail.rails;
  COLLI_ASSERT(conn->state == TCP_ESTABLISHED);
  if (conn->rail.retired)
    return;
  tcp_rails_reap(rails);
  conn->rail.retired = conn->rail.spare = true;
  tcp_rails_count_lost(conn);
  if (conn->blocked)
    LIST_REMOVE(conn, blocked_link);
  conn->blocked = false;
  for (uint64_t i = rails->first; i < rails->next; i++) {
    tcp_kept *kept = tcp_kept_at(rails, i);
    if (kept->by != conn)
      continue;
    kept->by = NULL;
    rails->nwaiting++;
  }
  shutdown(conn->source.fd, SHUT_WR);
  rails->dial_ns = 0;
  if (tcp_rails_open(rails) == 0)
    tcp_rails_fail(rails, COLL_ERR_PEER_LOST, conn);
}

void tcp_rails_end(tcp_conn *conn) {
  tcp_rails *rails = conn->rail.rails;
  tcp_rails_retire(conn);
  if (rails->current == conn)
    rails->current = NULL;
  tcp_rails_remove(conn);
}
