/* tcp_accept.c: the higher rank's side of making a connection: inbound connections. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/fork.h"
#include "transports/tcp/tcp_rails.h"

/* Frees a parked connection; closes its socket unless that was handed over. */
static void drop_parked(tcp_parked *parked) {
  if (parked->guest.fd >= 0)
    colli_fd_close(parked->guest.fd);
  LIST_REMOVE(parked, link);
  explicit_bzero(parked, sizeof(*parked));
  free(parked);
}

/* Hands a parked socket over to the connection that waits for it: 1, or 0 if it is broken. */
static int hand_over(tcp_parked *parked, tcp_conn *conn) {
  COLLI_ASSERT(parked->guest.fd >= 0);
  COLLI_ASSERT(conn->state == TCP_WAITING && conn->source.fd < 0);
  if (colli_auth_answer(&parked->guest.auth, true) != 0) {
    drop_parked(parked);
    return 0;
  }
  colli_tls *tls = colli_auth_take_tls(&parked->guest.auth);
  conn->source.fd = parked->guest.fd;
  if (!conn->near)
    colli_path_choose_outside(conn->source.fd, conn->ep->usual);
  parked->guest.fd = -1;
  drop_parked(parked);
  tcp_conn_secure(conn, tls);
  return 1;
}

/* The socket that is parked for a peer and channel, or NULL. */
static tcp_parked *find_parked(const tcp_endpoint *ep, int peer, int channel) {
  tcp_parked *parked;
  LIST_FOREACH(parked, &ep->parked, link) {
    const colli_hello *hello = &parked->guest.auth.hello;
    if (hello->src_rank == peer && hello->word == (uint64_t)channel)
      return parked;
  }
  return NULL;
}

/* This rank's connection to a peer on a channel: the one that waits, if there are several; or NULL.
 */
static tcp_conn *find_conn(const tcp_endpoint *ep, int peer, int channel) {
  tcp_conn *conn, *found = NULL;
  LIST_FOREACH(conn, &ep->conns, link)
    if (conn->base.peer == peer && conn->base.channel == channel &&
        (!found || conn->state == TCP_WAITING))
      found = conn;
  return found;
}

/* Whether this rank waits for an inbound connection, or may wait for it later. */
static bool is_expected(const tcp_endpoint *ep, const colli_hello *hello) {
  if (hello->kind != COLLI_HELLO_DATA || hello->comm_id != ep->env->comm_id ||
      hello->dst_rank != ep->env->rank || hello->src_rank < 0 || hello->src_rank >= ep->env->rank ||
      hello->word > INT_MAX)
    return false;
  const tcp_conn *conn = find_conn(ep, hello->src_rank, (int)hello->word);
  return !conn || conn->state == TCP_WAITING || tcp_rails_awaits_more(conn->rail.rails);
}

/* The connection is authenticated: refuses it, parks it, or hands it over. */
static void admit_guest(tcp_endpoint *ep, colli_guest *guest) {
  const colli_hello *hello = &guest->auth.hello;
  int peer = hello->src_rank, channel = (int)hello->word;
  tcp_parked *parked = NULL;
  if (!is_expected(ep, hello))
    colli_auth_answer(&guest->auth, false);
  else
    parked = calloc(1, sizeof(*parked));
  const bool is_short = !parked && is_expected(ep, hello);
  if (!is_short)
    ep->lacking_since_ns = 0;
  else if (ep->lacking_since_ns == 0)
    ep->lacking_since_ns = colli_now_ns();
  if (!parked) { /* without memory there is no answer, and the peer dials again */
    colli_fd_close(guest->fd);
    return;
  }
  tcp_parked *old = find_parked(ep, peer, channel);
  if (old) /* the peer has dialled again */
    drop_parked(old);
  parked->guest = *guest;
  LIST_INSERT_HEAD(&ep->parked, parked, link);
  tcp_conn *conn = find_conn(ep, peer, channel);
  if (conn && conn->state == TCP_WAITING)
    hand_over(parked, conn);
}

/* Whether this rank waits for a peer to dial. */
static bool is_waiting(const tcp_endpoint *ep) {
  const tcp_conn *conn;
  LIST_FOREACH(conn, &ep->conns, link)
    if (conn->state == TCP_WAITING && !conn->rail.spare)
      return true;
  return false;
}

/* Fails if connections could not be accepted for long, and this rank waits for one: 0 or a status.
 */
static int check_shortage(tcp_endpoint *ep) {
  const coll_transport_env *env = ep->env;
  int sys_errno = colli_door_failure(&ep->door, ep->patience_ns);
  if (ep->lacking_since_ns != 0 && colli_now_ns() - ep->lacking_since_ns >= ep->patience_ns)
    sys_errno = ENOMEM;
  if (sys_errno == 0 || !is_waiting(ep))
    return COLL_OK;
  coll_transport_failure failure = {
      COLL_ERR_SYSTEM,
      -1,
      -1,
      sys_errno,
      "accept4",
      "no connection of a peer can be accepted; if descriptors ran out, raise ulimit -n"};
  env->fail(env->ctx, &failure);
  return (int)COLL_ERR_SYSTEM;
}

int tcp_accept_open(tcp_endpoint *ep) {
  const coll_transport_env *env = ep->env;
  const colli_log log = colli_log_of(env->param(env->ctx, "COLL_LOG"), env->rank);
  int sys_errno =
      colli_door_open(&ep->door, ep->listen_fd, env->secret, COLLI_HELLO_DATA, env->rank, &log);
  if (sys_errno != 0)
    return sys_errno;
  ep->door.tls = ep->tls;
  ep->door_source.fd = ep->door.epoll_fd;
  return tcp_source_watch(ep, &ep->door_source, EPOLLIN) ? 0 : errno;
}

bool tcp_accept_due(const tcp_endpoint *ep) {
  if (ep->door_source.events)
    return true;
  uint64_t wake_ns = colli_door_wake_ns(&ep->door);
  return wake_ns != UINT64_MAX && colli_now_ns() >= wake_ns;
}

int tcp_accept_progress(tcp_endpoint *ep) {
  colli_guest guest;
  int moved = 0;
  ep->door_source.events = 0;
  while (colli_door_next(&ep->door, &guest)) {
    admit_guest(ep, &guest);
    moved = 1;
  }
  int status = check_shortage(ep);
  return status != COLL_OK ? status : moved;
}

int tcp_accept_adopt(tcp_conn *conn) {
  tcp_parked *parked = find_parked(conn->ep, conn->base.peer, conn->base.channel);
  return parked ? hand_over(parked, conn) : 0;
}

void tcp_accept_close(tcp_endpoint *ep) {
  while (!LIST_EMPTY(&ep->parked))
    drop_parked(LIST_FIRST(&ep->parked));
  if (ep->door_source.fd >= 0)
    tcp_source_watch(ep, &ep->door_source, 0);
  ep->door_source.fd = -1;
  colli_door_close(&ep->door);
  if (ep->listen_fd >= 0)
    colli_fd_close(ep->listen_fd);
  ep->listen_fd = -1;
}
