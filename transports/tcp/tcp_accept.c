/* tcp_accept.c: the higher rank's side of making a connection: inbound connections. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "transports/tcp/tcp_internal.h"

/* Frees an inbound connection; closes its socket unless that was handed over. */
static void drop_inbound(tcp_endpoint *ep, tcp_inbound *in) {
  COLLI_ASSERT(in->parked || ep->npending > 0);
  if (!in->parked && ep->npending-- == TCP_MAX_PENDING)
    tcp_source_watch(ep, &ep->listener, EPOLLIN);
  tcp_source_close(ep, &in->source);
  LIST_REMOVE(in, link);
  explicit_bzero(in, sizeof(*in));
  free(in);
}

/* Hands a parked socket over to the connection that waits for it: 1, or 0 if it is broken. */
static int hand_over(tcp_inbound *in, tcp_conn *conn) {
  tcp_endpoint *ep = conn->ep;
  COLLI_ASSERT(in->parked && in->source.fd >= 0);
  COLLI_ASSERT(conn->state == TCP_WAITING && conn->source.fd < 0);
  if (colli_auth_answer(&in->auth, true) != 0) {
    drop_inbound(ep, in);
    return 0;
  }
  conn->source.fd = in->source.fd;
  in->source.fd = -1;
  drop_inbound(ep, in);
  tcp_conn_establish(conn);
  return 1;
}

/* The socket that is parked for a peer and channel, or NULL. */
static tcp_inbound *find_parked(const tcp_endpoint *ep, int peer, int channel) {
  tcp_inbound *in;
  LIST_FOREACH(in, &ep->parked, link)
    if (in->auth.hello.src_rank == peer && in->auth.hello.word == (uint64_t)channel)
      return in;
  return NULL;
}

/* This rank's connection to a peer on a channel, or NULL. */
static tcp_conn *find_conn(const tcp_endpoint *ep, int peer, int channel) {
  tcp_conn *conn;
  LIST_FOREACH(conn, &ep->conns, link)
    if (conn->base.peer == peer && conn->base.channel == channel)
      return conn;
  return NULL;
}

/* Whether this rank waits for an inbound connection, or may wait for it later. */
static bool is_expected(const tcp_endpoint *ep, const colli_hello *hello) {
  if (hello->kind != COLLI_HELLO_DATA || hello->comm_id != ep->env->comm_id ||
      hello->dst_rank != ep->env->rank || hello->src_rank < 0 || hello->src_rank >= ep->env->rank ||
      hello->word > INT_MAX)
    return false;
  const tcp_conn *conn = find_conn(ep, hello->src_rank, (int)hello->word);
  return !conn || conn->state == TCP_WAITING;
}

/* The connection is authenticated: refuses it, parks it, or hands it over. */
static void admit_inbound(tcp_endpoint *ep, tcp_inbound *in) {
  const colli_hello *hello = &in->auth.hello;
  COLLI_ASSERT(!in->parked && ep->npending > 0);
  if (!is_expected(ep, hello)) {
    colli_auth_answer(&in->auth, false);
    drop_inbound(ep, in);
    return;
  }
  int peer = hello->src_rank, channel = (int)hello->word;
  tcp_inbound *old = find_parked(ep, peer, channel);
  if (old) /* the peer has dialled again */
    drop_inbound(ep, old);
  if (ep->npending-- == TCP_MAX_PENDING)
    tcp_source_watch(ep, &ep->listener, EPOLLIN);
  tcp_source_watch(ep, &in->source, 0);
  in->parked = true;
  LIST_REMOVE(in, link);
  LIST_INSERT_HEAD(&ep->parked, in, link);
  tcp_conn *conn = find_conn(ep, peer, channel);
  if (conn)
    hand_over(in, conn);
}

/* Advances the handshake of a pending connection: 1 if something happened. */
static int poll_pending(tcp_endpoint *ep, tcp_inbound *in) {
  int status = colli_auth_poll(&in->auth);
  if (status == COLL_T_AGAIN) {
    tcp_source_watch(ep, &in->source, (uint32_t)colli_auth_events(&in->auth));
    return 0;
  }
  if (status == COLL_T_DONE)
    admit_inbound(ep, in);
  else
    drop_inbound(ep, in);
  return 1;
}

/* Adds a pending connection; false if it was closed at once. */
static bool add_pending(tcp_endpoint *ep, int fd) {
  COLLI_ASSERT(fd >= 0 && ep->npending < TCP_MAX_PENDING);
  tcp_inbound *in = calloc(1, sizeof(*in));
  tcp_source source = {.fd = fd};
  if (!in) {
    tcp_source_close(ep, &source);
    return false;
  }
  in->source = source;
  in->source.events = EPOLLIN; /* poll it at once */
  LIST_INSERT_HEAD(&ep->pending, in, link);
  ep->npending++;
  colli_auth_accept(&in->auth, fd, ep->env->secret);
  if (tcp_source_watch(ep, &in->source, EPOLLIN))
    return true;
  drop_inbound(ep, in);
  return false;
}

/* Accepts waiting connections: how many, or minus a status of the endpoint. */
static int accept_waiting(tcp_endpoint *ep) {
  int taken = 0;
  ep->listener.events = 0;
  while (ep->npending < TCP_MAX_PENDING) {
    int fd = colli_net_accept(ep->listener.fd);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
      coll_transport_failure failure = {
          COLL_ERR_SYSTEM, -1,       -1,
          errno,           "accept", "out of descriptors for a peer's connection; raise ulimit -n"};
      ep->env->fail(ep->env->ctx, &failure);
      return -(int)COLL_ERR_SYSTEM;
    }
    if (fd < 0)
      return taken;
    taken += add_pending(ep, fd);
  }
  tcp_source_watch(ep, &ep->listener,
                   0); /* the others wait in the kernel until fewer are pending */
  return taken;
}

/* Accepts connections, advances handshakes, parks: 1 if something happened, 0, or an error. */
int tcp_accept_progress(tcp_endpoint *ep) {
  int moved = 0;
  if (ep->listener.events) {
    int taken = accept_waiting(ep);
    if (taken < 0)
      return -taken;
    moved = taken > 0;
  }
  if (ep->npending == 0)
    return moved;
  uint64_t now = colli_now_ns(); /* the clock of colli_auth's deadlines */
  tcp_inbound *in, *next;
  for (in = LIST_FIRST(&ep->pending); in; in = next) {
    next = LIST_NEXT(in, link);
    if (!in->source.events && now < in->auth.deadline_ns)
      continue;
    in->source.events = 0;
    moved |= poll_pending(ep, in);
  }
  return moved;
}

/* Takes the parked socket of a connection that waits for one, if there is one: 1 or 0. */
int tcp_accept_adopt(tcp_conn *conn) {
  tcp_inbound *in = find_parked(conn->ep, conn->base.peer, conn->base.channel);
  return in ? hand_over(in, conn) : 0;
}

/* Closes all inbound sockets. */
void tcp_accept_close(tcp_endpoint *ep) {
  while (!LIST_EMPTY(&ep->pending))
    drop_inbound(ep, LIST_FIRST(&ep->pending));
  while (!LIST_EMPTY(&ep->parked))
    drop_inbound(ep, LIST_FIRST(&ep->parked));
}
