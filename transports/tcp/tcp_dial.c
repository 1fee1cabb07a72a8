/* tcp_dial.c: the lower rank's side of making a connection: dials one address after the other. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "libcoll/base/assert.h"
#include "libcoll/net/path.h"
#include "transports/tcp/tcp_internal.h"

_Static_assert(POLLIN == EPOLLIN && POLLOUT == EPOLLOUT, "colli_auth_events() speaks poll()");

/* Notes for the error message why the address in use failed. */
static void note_attempt(tcp_conn *conn, const char *why) {
  tcp_dial *dial = conn->dial;
  COLLI_ASSERT(dial->next > 0 && dial->next <= dial->count);
  char text[COLLI_ADDR_TEXT];
  size_t used = strlen(dial->tried);
  snprintf(dial->tried + used, sizeof(dial->tried) - used, "%s%s (%s)", used ? ", " : "",
           colli_addr_text(&dial->candidate[dial->next - 1], text), why);
}

/* Notes a failed connect, and counts it by what it says about the peer. */
static void note_errno(tcp_conn *conn, int error) {
  tcp_dial *dial = conn->dial;
  note_attempt(conn, strerror(error));
  dial->sys_errno = error;
  if (colli_errno_is_shortage(error))
    dial->short_errno = error;
  else if (error == ECONNREFUSED || error == ECONNRESET)
    dial->refused++;
  else if (error != ENETUNREACH && error != EAFNOSUPPORT && error != EADDRNOTAVAIL)
    dial->failed++; /* other errors arise on this host and say nothing about the peer */
}

/* No address is left: fails, and says what all attempts together mean. */
static void fail_dial(tcp_conn *conn) {
  tcp_dial *dial = conn->dial;
  COLLI_ASSERT(dial->next == dial->count);
  char tried[sizeof(dial->tried)];
  memcpy(tried, dial->tried, sizeof(tried));
  int error = dial->sys_errno;
  coll_status handshake_status = dial->handshake_status;
  const int short_errno = dial->short_errno ? dial->short_errno : dial->shaken_errno;
  const bool gone = dial->refused > 0 && dial->failed == 0, full = dial->full;
  tcp_dial_free(conn);
  if (short_errno != 0)
    tcp_conn_fail(conn, COLL_ERR_SYSTEM, "connect", short_errno,
                  "no connection can be made: %s; raise the limits (ulimit -n, ulimit -v)", tried);
  else if (handshake_status == COLL_ERR_AUTH && error == EBADMSG)
    tcp_conn_fail(
        conn, handshake_status, "connect", error,
        "the TLS handshake failed after the peer had proved that it knows the secret (%s); "
        "somebody changes packets: see the network between the hosts",
        tried);
  else if (handshake_status == COLL_ERR_MISMATCH)
    tcp_conn_fail(conn, handshake_status, "connect", 0,
                  "only one of both ranks has COLL_TLS=1: %s; set it to the same on all ranks",
                  tried);
  else if (handshake_status != COLL_OK)
    tcp_conn_fail(conn, handshake_status, "connect", 0,
                  "no libcoll rank with our secret answers at %s", tried);
  else if (gone)
    tcp_conn_fail(conn, COLL_ERR_PEER_LOST, "connect", error,
                  "nobody listens at the peer's addresses any more, so it has ended: %s", tried);
  else
    tcp_conn_fail(conn, COLL_ERR_UNREACHABLE, "connect", error,
                  "no address of the peer could be reached: %s; check routes and firewalls%s",
                  *tried ? tried : "it has none that fits ours",
                  full ? ", and as its host may have addresses that it could not offer (six at "
                         "most), choose interfaces with COLL_TCP_IFNAME"
                       : ", and COLL_TCP_IFNAME");
}

/* Dials the next address on which connect() does not fail at once. After the last, it is the first
 * one's turn again, later, if an address may still lead to the peer. */
static void dial_next(tcp_conn *conn) {
  tcp_dial *dial = conn->dial;
  const coll_transport_env *env = conn->ep->env;
  COLLI_ASSERT(conn->state == TCP_DIALING && dial->count <= TCP_MAX_CANDIDATES);
  colli_auth_drop(&dial->auth);
  tcp_source_close(conn->ep, &conn->source);
  dial->handshaking = false;
  while (dial->next < dial->count) {
    const colli_addr *addr = &dial->candidate[dial->next++];
    conn->source.fd = colli_net_connect_from(dial->from.family ? &dial->from : NULL, addr,
                                             conn->near ? &conn->ep->inside : &conn->ep->marks);
    if (conn->source.fd >= 0 && tcp_source_watch(conn->ep, &conn->source, EPOLLOUT)) {
      dial->since_ns = env->now_ns(env->ctx);
      return;
    }
    note_errno(conn, errno);
    tcp_source_close(conn->ep, &conn->source);
  }
  const uint64_t now_ns = env->now_ns(env->ctx);
  if (dial->short_errno == 0)
    dial->short_since_ns = 0;
  else if (dial->short_since_ns == 0)
    dial->short_since_ns = now_ns;
  bool is_short = dial->short_errno != 0 && now_ns - dial->short_since_ns < conn->ep->patience_ns;
  if (dial->again || is_short)
    dial->next_ns = now_ns + TCP_REDIAL_NS;
  else
    fail_dial(conn);
}

/* Dials all addresses once more. */
static void dial_again(tcp_conn *conn) {
  tcp_dial *dial = conn->dial;
  COLLI_ASSERT((dial->again || dial->short_errno != 0) && conn->source.fd < 0);
  dial->again = false;
  dial->next = dial->refused = dial->failed = dial->short_errno = 0;
  dial->handshake_status = COLL_OK;
  dial->tried[0] = '\0';
  dial_next(conn);
}

void tcp_dial_start(tcp_conn *conn, const tcp_blob *peer, const tcp_pair *pair) {
  COLLI_ASSERT(conn->state == TCP_WAITING && !conn->dial && conn->source.fd < 0);
  conn->dial = calloc(1, sizeof(*conn->dial));
  if (!conn->dial) {
    tcp_conn_fail(conn, COLL_ERR_NO_MEMORY, "malloc", ENOMEM, "out of memory to connect");
    return;
  }
  conn->state = TCP_DIALING;
  conn->ep->ndialing++;
  if (pair) {
    conn->dial->from = pair->from;
    conn->dial->candidate[conn->dial->count++] = pair->to;
  } else {
    conn->dial->full = peer->count == COLLI_MAX_ADDRS;
    conn->dial->count =
        tcp_candidates(&conn->ep->blob, peer, conn->dial->candidate, TCP_MAX_CANDIDATES);
  }
  dial_next(conn);
}

/* Frees what dialling needed; the socket stays. Fine if this connection does not dial. */
void tcp_dial_free(tcp_conn *conn) {
  if (!conn->dial)
    return;
  COLLI_ASSERT(conn->ep->ndialing > 0);
  colli_auth_drop(&conn->dial->auth);
  explicit_bzero(conn->dial, sizeof(*conn->dial));
  free(conn->dial);
  conn->dial = NULL;
  conn->ep->ndialing--;
}

/* Polls the connect: 1 if it has succeeded or failed. */
static int poll_connect(tcp_conn *conn, uint64_t now_ns) {
  COLLI_ASSERT(!conn->dial->handshaking && conn->source.fd >= 0);
  tcp_dial *dial = conn->dial;
  const coll_transport_env *env = conn->ep->env;
  int error = ETIMEDOUT;
  if (conn->source.events)
    error = colli_net_connect_result(conn->source.fd);
  else if (now_ns - dial->since_ns < TCP_DIAL_NS)
    return 0;
  if (error) {
    note_errno(conn, error);
    dial_next(conn);
    return 1;
  }
  dial->handshaking = true;
  dial->heard = false;
  dial->since_ns = now_ns;
  colli_auth_connect(&dial->auth, conn->source.fd, env->secret, COLLI_HELLO_DATA, env->rank,
                     conn->base.peer, env->comm_id, (uint64_t)conn->base.channel);
  dial->bound = !conn->far && colli_auth_bind(&dial->auth, &dial->candidate[dial->next - 1],
                                              conn->ep->blob.addrs, COLLI_MAX_ADDRS);
  if (conn->ep->tls)
    colli_auth_want_tls(&dial->auth);
  dial->auth.deadline_ns = UINT64_MAX; /* the peer answers when it calls connect(), perhaps late */
  return 1;
}

/* Advances the handshake: 1 if something happened. */
static int poll_handshake(tcp_conn *conn) {
  tcp_dial *dial = conn->dial;
  int status = colli_auth_poll(&dial->auth);
  const int error = errno;
  bool refused = status == COLL_ERR_PEER_LOST && error == EPERM;
  if (status == COLL_T_AGAIN) {
    tcp_source_watch(conn->ep, &conn->source, (uint32_t)colli_auth_events(&dial->auth));
    return 0;
  }
  if (status == COLL_T_DONE) {
    conn->tls = colli_auth_take_tls(&dial->auth);
    tcp_dial_free(conn);
    tcp_conn_establish(conn);
    return 1;
  }
  if (refused) {
    note_attempt(conn, "turned away");
    dial->refused++;
  } else if (status == COLL_ERR_PEER_LOST) {
    /* The peer had no room for us, or closed our connection because our program was computing and
     * said nothing. If it has ended, its address will refuse. */
    note_attempt(conn, "closed");
    dial->again = true;
  } else if (colli_errno_is_shortage(error)) {
    note_errno(conn, error);
    dial->shaken_errno = error;
    if (dial->auth.proved) { /* the peer takes this connection, and no other */
      dial->next = dial->count;
      fail_dial(conn);
      return 1;
    }
  } else {
    note_attempt(conn, coll_status_name((coll_status)status));
    dial->handshake_status = (coll_status)status;
    dial->sys_errno = error;
  }
  dial_next(conn);
  return 1;
}

/* Whether the other end has failed to accept the hello in time: it may be another job's port at an
 * address that several hosts have (door.h), very busy, or see another address than this host's. In
 * the last case a proxy may accept it, and the peer does not; a peer that is only late is dialled
 * twice then. */
static bool is_unheard(tcp_conn *conn, uint64_t now_ns) {
  tcp_dial *dial = conn->dial;
  const uint64_t waited_ns = now_ns - dial->since_ns, half_ns = conn->ep->patience_ns / 2;
  uint64_t queued;
  if (colli_auth_answered(&dial->auth))
    return false;
  if (dial->bound && waited_ns >= conn->ep->patience_ns)
    return true;
  if (dial->heard || waited_ns < (half_ns < TCP_HELLO_NS ? half_ns : TCP_HELLO_NS))
    return false;
  dial->heard = !colli_path_queued(conn->source.fd, &queued) || queued == 0;
  return !dial->heard;
}

/* If the other end has failed to accept the hello in time, tries the next address and returns 1. */
static int look_at_hello(tcp_conn *conn, uint64_t now_ns) {
  tcp_dial *dial = conn->dial;
  if (!is_unheard(conn, now_ns))
    return 0;
  note_attempt(conn, "takes no message of ours");
  dial->again = true;
  conn->far = true;
  dial_next(conn);
  return 1;
}

/* Advances dialling: 1 if something happened. */
int tcp_dial_progress(tcp_conn *conn, uint64_t now_ns) {
  COLLI_ASSERT(conn->state == TCP_DIALING && conn->dial);
  int moved = 0;
  if (conn->source.fd < 0) {
    if (now_ns < conn->dial->next_ns)
      return 0;
    dial_again(conn);
    return 1;
  }
  if (!conn->dial->handshaking)
    moved = poll_connect(conn, now_ns);
  else if (!conn->source.events)
    return look_at_hello(conn, now_ns);
  conn->source.events = 0;
  if (conn->dial && conn->dial->handshaking)
    moved |= poll_handshake(conn);
  return moved;
}
