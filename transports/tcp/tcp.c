/* tcp.c: the TCP transport's endpoint, its connections, its progress, and its table of operations.
 */
#include "transports/tcp/tcp.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/fork.h"
#include "libcoll/base/log.h"
#include "libcoll/net/interfaces.h"
#include "transports/tcp/tcp_rails.h"

#define EVENTS_AT_ONCE 128
#define MAX_ROUNDS     16 /* bounds the work of one call */

/* Reports why open() fails. */
static int fail_open(const coll_transport_env *env, coll_status status, const char *syscall,
                     int sys_errno, const char *detail) {
  coll_transport_failure failure = {status, -1, -1, sys_errno, syscall, detail};
  env->fail(env->ctx, &failure);
  return (int)status;
}

/* Marks the listening socket as those that it accepts shall be. */
static int mark(const tcp_endpoint *ep) {
  char detail[240];
  const int class = ep->marks.traffic_class;
  if (class % 4 != 0) {
    snprintf(detail, sizeof(detail),
             "COLL_TCP_TRAFFIC_CLASS=%d is no multiple of 4: its two lowest bits are the network's",
             class);
    return fail_open(ep->env, COLL_ERR_INVALID_USAGE, NULL, 0, detail);
  }
  const char *failed = colli_path_mark(ep->listen_fd, &ep->marks);
  const int sys_errno = errno;
  if (!failed)
    return COLL_OK;
  if (strcmp(failed, "TCP_CONGESTION") == 0)
    snprintf(
        detail, sizeof(detail),
        "COLL_TCP_CONGESTION=%.40s: the kernel does not have it, or does not let this user have "
        "it; see sysctl net.ipv4.tcp_allowed_congestion_control",
        ep->marks.congestion);
  else
    snprintf(detail, sizeof(detail), "COLL_TCP_TRAFFIC_CLASS=%d: the kernel refuses it (%s)", class,
             failed);
  return fail_open(ep->env, COLL_ERR_SYSTEM, "setsockopt", sys_errno, detail);
}

/* Logs how near the interface of the first address is to this rank's GPU, if that is known. */
static void tell_gpu(const coll_transport_env *env, unsigned index) {
  const colli_log log = colli_log_of(env->param(env->ctx, "COLL_LOG"), env->rank);
  const colli_pci_distance distance = colli_interface_distance("/sys", index, env->gpu);
  char name[IF_NAMESIZE], why[COLLI_PCI_WHY];
  if (distance != COLLI_PCI_UNKNOWN && if_indextoname(index, name))
    colli_log_write(&log, COLLI_LOG_INFO, "tcp offers %s first, %s", name,
                    colli_pci_explain(distance, env->gpu, why));
}

/* How many sockets this rank wants from each interface to another host's: so many as
 * COLL_TCP_SOCKETS says, or as fill the best interface, if it is a bond that sends each connection
 * over one of its cards. */
static uint16_t count_sockets(const tcp_endpoint *ep) {
  const coll_transport_env *env = ep->env;
  const colli_log log = colli_log_of(env->param(env->ctx, "COLL_LOG"), env->rank);
  const int wanted = atoi(env->param(env->ctx, "COLL_TCP_SOCKETS"));
  char name[IF_NAMESIZE];
  if (wanted > 0 || ep->blob.count == 0 || !if_indextoname(ep->blob.addrs[0].scope, name))
    return (uint16_t)(wanted > 0 ? wanted : 1);
  const int cards = colli_interface_spread("/sys", name);
  if (cards <= 1)
    return 1;
  const int count = cards < TCP_SOCKETS_MAX ? cards : TCP_SOCKETS_MAX;
  colli_log_write(&log, COLLI_LOG_INFO,
                  "tcp makes %d sockets to each peer: %s deals out connections to %d cards", count,
                  name, cards);
  return (uint16_t)count;
}

/* Finds this host's addresses and listens. */
static int start_listening(tcp_endpoint *ep) {
  const coll_transport_env *env = ep->env;
  coll_error error = COLL_ERROR_INIT;
  int count = colli_net_interfaces_for(env->param(env->ctx, "COLL_TCP_IFNAME"), env->gpu,
                                       ep->blob.addrs, COLLI_MAX_ADDRS, &error);
  if (count == 0)
    return fail_open(env, error.status == COLL_ERR_SYSTEM ? COLL_ERR_SYSTEM : COLL_ERR_UNSUPPORTED,
                     error.syscall, error.sys_errno, error.message);
  uint16_t port;
  coll_status status = colli_door_listen(env->param(env->ctx, "COLL_PORT_RANGE"), env->secret,
                                         &ep->listen_fd, &port, &error);
  if (status != COLL_OK) {
    ep->listen_fd = -1;
    return fail_open(env, status, error.syscall, error.sys_errno, error.message);
  }
  const int marked = mark(ep);
  if (marked != COLL_OK)
    return marked;
  colli_path_choose_inside(ep->listen_fd, &ep->marks, &ep->inside, ep->usual);
  ep->blob.magic = TCP_BLOB_MAGIC;
  ep->blob.count = (uint16_t)count;
  ep->blob.sockets = count_sockets(ep);
  ep->blob.host_id = env->host_id;
  ep->blob.machine_id = env->machine_id;
  for (int i = 0; i < count; i++)
    ep->blob.addrs[i].port = port;
  if (env->gpu)
    tell_gpu(env, ep->blob.addrs[0].scope);
  return COLL_OK;
}

/* Frees the endpoint. */
static void tcp_close(coll_endpoint *handle) {
  tcp_endpoint *ep = (tcp_endpoint *)handle;
  const uint64_t begun_ns = ep->env->now_ns(ep->env->ctx);
  COLLI_ASSERT(LIST_EMPTY(&ep->rails));
  tcp_rails_close(ep, begun_ns);
  COLLI_ASSERT(LIST_EMPTY(&ep->conns) && LIST_EMPTY(&ep->blocked) && ep->ndialing == 0);
  tcp_linger_close(ep, begun_ns);
  tcp_accept_close(ep);
  tcp_source_close(ep, &ep->wake);
  if (ep->epoll_fd >= 0)
    colli_fd_close(ep->epoll_fd);
  free(ep);
}

/* Opens this rank's endpoint and starts to listen. */
static int tcp_open(const coll_transport_env *env, coll_endpoint **handle) {
  *handle = NULL;
  tcp_endpoint *ep = calloc(1, sizeof(*ep));
  if (!ep)
    return fail_open(env, COLL_ERR_NO_MEMORY, "malloc", ENOMEM, "out of memory for an endpoint");
  ep->env = env;
  const int heartbeat_ms = atoi(env->param(env->ctx, "COLL_HEARTBEAT_MS"));
  ep->heartbeat_ms = heartbeat_ms > 0 ? heartbeat_ms : COLLI_HEARTBEAT_KERNEL_MS; /* not set */
  ep->patience_ns = colli_shortage_patience_ns(env->param(env->ctx, "COLL_TIMEOUT_MS"));
  ep->marks.traffic_class = atoi(env->param(env->ctx, "COLL_TCP_TRAFFIC_CLASS"));
  ep->marks.congestion = env->param(env->ctx, "COLL_TCP_CONGESTION");
  ep->tls = strcmp(env->param(env->ctx, "COLL_TLS"), "1") == 0;
  ep->listen_fd = ep->door_source.fd = -1;
  ep->door = COLLI_DOOR_CLOSED;
  LIST_INIT(&ep->parked);
  LIST_INIT(&ep->conns);
  LIST_INIT(&ep->blocked);
  LIST_INIT(&ep->lingering);
  LIST_INIT(&ep->rails);
  LIST_INIT(&ep->rails_lingering);
  ep->wake.fd = COLLI_FD(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  ep->epoll_fd = COLLI_FD(epoll_create1(EPOLL_CLOEXEC));
  int status = COLL_OK;
  if (ep->wake.fd < 0 || ep->epoll_fd < 0)
    status = fail_open(env, COLL_ERR_SYSTEM, "epoll_create1", errno,
                       "out of descriptors for the endpoint; raise ulimit -n");
  else
    status = start_listening(ep);
  if (status == COLL_OK) {
    int sys_errno = tcp_accept_open(ep);
    if (sys_errno == 0 && !tcp_source_watch(ep, &ep->wake, EPOLLIN))
      sys_errno = errno;
    if (sys_errno != 0)
      status = fail_open(env, COLL_ERR_SYSTEM, "epoll_ctl", sys_errno,
                         "cannot watch the listening socket");
  }
  if (status != COLL_OK) {
    tcp_close((coll_endpoint *)ep);
    return status;
  }
  *handle = (coll_endpoint *)ep;
  return COLL_OK;
}

/* Fills in what peers need to reach this endpoint. */
static int tcp_describe(coll_endpoint *handle, uint8_t blob[COLL_BLOB_BYTES]) {
  memset(blob, 0, COLL_BLOB_BYTES);
  memcpy(blob, &((tcp_endpoint *)handle)->blob, sizeof(tcp_blob));
  return COLL_OK;
}

/* Reports why connect() fails. */
static int fail_connect(tcp_endpoint *ep, int peer, int channel, coll_status status,
                        const char *detail) {
  /* It is no fault of the peer if memory runs out here. */
  const int blamed = status == COLL_ERR_NO_MEMORY ? -1 : peer;
  coll_transport_failure failure = {status, blamed, channel, 0, NULL, detail};
  ep->env->fail(ep->env->ctx, &failure);
  return (int)status;
}

/* Makes a connection: the lower rank dials, the higher one accepts. */
static int tcp_connect(coll_endpoint *handle, int peer, const uint8_t blob[COLL_BLOB_BYTES],
                       int channel, coll_conn **conn) {
  tcp_endpoint *ep = (tcp_endpoint *)handle;
  tcp_blob where;
  *conn = NULL;
  if (peer < 0 || peer >= ep->env->nranks || peer == ep->env->rank || channel < 0)
    return fail_connect(ep, peer, channel, COLL_ERR_INVALID_ARGUMENT, "no such peer or channel");
  if (!tcp_blob_read(blob, &where))
    return fail_connect(ep, peer, channel, COLL_ERR_INVALID_ARGUMENT,
                        "the peer gave no tcp address");
  if (tcp_count_rails(&ep->blob, &where) > 1) {
    *conn = tcp_rails_connect(ep, &(coll_conn){&tcp_rails_transport, peer, channel}, &where);
  } else {
    tcp_conn *made = tcp_conn_new(ep, &(coll_conn){&tcp_transport, peer, channel});
    if (made) {
      made->near = where.machine_id == ep->blob.machine_id;
      *conn = &made->base;
      if (ep->env->rank < peer)
        tcp_dial_start(made, &where, NULL);
      else
        tcp_accept_adopt(made);
    }
  }
  if (!*conn)
    return fail_connect(ep, peer, channel, COLL_ERR_NO_MEMORY, "out of memory for a connection");
  return COLL_OK;
}

/* Gets events from epoll and notes them at their sources. */
static void collect_events(tcp_endpoint *ep) {
  struct epoll_event events[EVENTS_AT_ONCE];
  int count = EVENTS_AT_ONCE;
  for (int round = 0; round < MAX_ROUNDS && count == EVENTS_AT_ONCE; round++) {
    count = epoll_wait(ep->epoll_fd, events, EVENTS_AT_ONCE, 0);
    for (int i = 0; i < count; i++) {
      ((tcp_source *)events[i].data.ptr)->events |= events[i].events;
      ep->input |= (events[i].events & EPOLLIN) != 0;
    }
  }
}

/* Sends waiting output where the kernel has space again: 1 if something moved. */
static int flush_blocked(tcp_endpoint *ep) {
  int moved = 0;
  tcp_conn *conn, *next;
  for (conn = LIST_FIRST(&ep->blocked); conn; conn = next) {
    next = LIST_NEXT(conn, blocked_link);
    COLLI_ASSERT(conn->blocked && conn->state == TCP_ESTABLISHED);
    if (colli_stream_blocked(&conn->stream)) {
      bool told = conn->source.events & ~(uint32_t)EPOLLIN;
      if (!told && !colli_stream_lacks_buffers(&conn->stream))
        continue;
      conn->source.events &= EPOLLIN;
      uint64_t before = conn->stream.moved;
      int status = colli_stream_flush(&conn->stream);
      moved |= conn->stream.moved != before;
      if (status == COLL_T_AGAIN)
        continue;
    }
    conn->blocked = false; /* all is sent, or the connection is broken */
    LIST_REMOVE(conn, blocked_link);
  }
  return moved;
}

/* Bytes that have moved on all connections. */
static uint64_t bytes_moved(const tcp_endpoint *ep) {
  uint64_t moved = 0;
  const tcp_conn *conn;
  LIST_FOREACH(conn, &ep->conns, link)
    moved += conn->stream.moved;
  return moved;
}

/*
 * A connection must hold slot_count messages that its receiver has not asked for, but the kernel
 * may have room for fewer. So where input waits and nothing moves (all ranks may be waiting for
 * their sends), the input is buffered here. 1 if there was some.
 */
static int buffer_stuck_input(tcp_endpoint *ep) {
  uint64_t moved = bytes_moved(ep), now = ep->env->now_ns(ep->env->ctx);
  if (moved != ep->moved || ep->moved_ns == 0) {
    ep->moved = moved;
    ep->moved_ns = now;
    return 0;
  }
  if (now - ep->moved_ns < TCP_STUCK_NS)
    return 0;
  tcp_conn *conn;
  LIST_FOREACH(conn, &ep->conns, link)
    if (conn->state == TCP_ESTABLISHED && conn->source.events & EPOLLIN) {
      conn->source.events &= ~(uint32_t)EPOLLIN;
      colli_stream_buffer_input(&conn->stream);
    }
  ep->input = false;
  return bytes_moved(ep) != moved;
}

/* Whether the other end of a socket has not answered for too long: of the only rail, until another
 * pair of interfaces has had time to answer as well. */
static bool is_lost(const tcp_endpoint *ep, tcp_conn *conn, uint64_t now_ns) {
  const uint64_t limit_ns = (uint64_t)ep->heartbeat_ms * COLLI_NS_PER_MS;
  return colli_heartbeat_silent(&conn->heartbeat, conn->source.fd, ep->heartbeat_ms, now_ns) &&
         (!conn->rail.rails || conn->heartbeat.unanswered_ns >= limit_ns + TCP_RAILS_DIAL_NS);
}

/* Gives up connections whose other end has not answered for too long: 1 if there was one. */
static int drop_silent(tcp_endpoint *ep) {
  const uint64_t now_ns = ep->env->now_ns(ep->env->ctx);
  if (now_ns < ep->look_ns)
    return 0;
  ep->look_ns = now_ns + colli_heartbeat_look_ns(ep->heartbeat_ms);
  int found = 0;
  tcp_conn *conn;
  LIST_FOREACH(conn, &ep->conns, link)
    if (conn->state == TCP_ESTABLISHED && !conn->rail.spare && is_lost(ep, conn, now_ns)) {
      colli_stream_give_up(&conn->stream);
      found = 1;
    }
  return found;
}

/* Advances TLS handshakes: 1 if one is over. */
static int shake_hands(tcp_endpoint *ep) {
  int moved = 0;
  tcp_conn *conn;
  LIST_FOREACH(conn, &ep->conns, link)
    if (conn->state == TCP_SECURING && conn->source.events)
      moved |= tcp_conn_shake(conn);
  return moved;
}

/* Accepts, dials, advances handshakes, flushes. */
static int tcp_progress(coll_endpoint *handle) {
  tcp_endpoint *ep = (tcp_endpoint *)handle;
  int moved = 0;
  COLLI_ASSERT(ep->ndialing >= 0);
  collect_events(ep);
  if (ep->wake.events) {
    uint64_t wakes;
    ep->wake.events = 0;
    moved = read(ep->wake.fd, &wakes, sizeof(wakes)) > 0;
  }
  if (tcp_accept_due(ep)) {
    int status = tcp_accept_progress(ep);
    if (status > 1)
      return status;
    moved |= status;
  }
  if (ep->ndialing > 0) {
    uint64_t now = ep->env->now_ns(ep->env->ctx);
    tcp_conn *conn;
    LIST_FOREACH(conn, &ep->conns, link)
      if (conn->state == TCP_DIALING)
        moved |= tcp_dial_progress(conn, now);
  }
  if (ep->nsecuring > 0)
    moved |= shake_hands(ep);
  moved |= flush_blocked(ep);
  if (ep->input)
    moved |= buffer_stuck_input(ep);
  moved |= drop_silent(ep);
  if (!LIST_EMPTY(&ep->rails))
    moved |= tcp_rails_progress(ep);
  tcp_linger_progress(ep);
  if (!LIST_EMPTY(&ep->rails_lingering))
    tcp_rails_linger(ep);
  return moved;
}

/* The descriptor that becomes readable when there is something to do. */
static int tcp_wait_fd(coll_endpoint *handle) {
  return ((tcp_endpoint *)handle)->epoll_fd;
}

/* Handles all events so far. Sources are edge-triggered, so only new events wake a sleeper. */
static int tcp_arm(coll_endpoint *handle) {
  tcp_endpoint *ep = (tcp_endpoint *)handle;
  if (tcp_progress(handle) != 0)
    return 1;
  /* An acknowledgement wakes nobody, and mostly comes soon. */
  return ep->full_ns != 0 && ep->env->now_ns(ep->env->ctx) - ep->full_ns < TCP_RAILS_FULL_NS;
}

/* After sleeping: nothing to undo. */
static void tcp_disarm(coll_endpoint *handle) {
  (void)handle;
}

/* Makes wait_fd() readable; from any thread. */
static void tcp_wake(coll_endpoint *handle) {
  uint64_t one = 1;
  ssize_t n = write(((tcp_endpoint *)handle)->wake.fd, &one, sizeof(one));
  (void)n; /* fails only if it is readable already */
}

/* The calls on an endpoint, which has connections of both kinds. */
/* clang-format off */
#define ENDPOINT_CALLS                                                                             \
  .size = sizeof(coll_transport_ops), .abi = COLL_TRANSPORT_ABI,                                   \
  .caps = COLL_CAP_SEND_DIRECT | COLL_CAP_ENCRYPTS, .name = "tcp",                                 \
  .open = tcp_open, .close = tcp_close, .describe = tcp_describe, .reach = tcp_reach,              \
  .connect = tcp_connect, .progress = tcp_progress, .wait_fd = tcp_wait_fd, .arm = tcp_arm,        \
  .disarm = tcp_disarm, .wake = tcp_wake
/* clang-format on */

const coll_transport_ops tcp_transport = {
    ENDPOINT_CALLS,     .disconnect = tcp_disconnect,     .send = tcp_send,
    .sent = tcp_sent,   .slot_acquire = tcp_slot_acquire, .slot_commit = tcp_slot_commit,
    .recv = tcp_recv,   .slot_peek = tcp_slot_peek,       .slot_release = tcp_slot_release,
    .paths = tcp_paths, .round_trip = tcp_round_trip,
};

const coll_transport_ops tcp_rails_transport = {
    ENDPOINT_CALLS,
    .disconnect = tcp_rails_disconnect,
    .send = tcp_rails_send,
    .sent = tcp_rails_sent,
    .slot_acquire = tcp_rails_slot_acquire,
    .slot_commit = tcp_rails_slot_commit,
    .recv = tcp_rails_recv,
    .slot_peek = tcp_rails_slot_peek,
    .slot_release = tcp_rails_slot_release,
    .paths = tcp_rails_paths,
    .round_trip = tcp_rails_round_trip,
};
