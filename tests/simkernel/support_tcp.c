/* support_tcp.c: system calls on sockets of the simulated kernel. */
#include "support_tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Those that listen, by host and port: thousands of ranks do, and all hosts use nearly the same
 * ports. */
#define BUCKETS 65536
static LIST_HEAD(, sk_tcp) listeners[BUCKETS];

static int fail(int sys_errno) {
  errno = sys_errno;
  return -1;
}

sk_file *sk_tcp_new(int family) {
  sk_tcp *t = calloc(1, sizeof(*t));
  if (!t)
    abort();
  t->file.kind = SK_SOCKET;
  t->file.fd = -1;
  t->file.rank = sk.current->rank;
  t->family = family;
  t->host = sk.current->host;
  t->idle_s = 7200;
  t->interval_s = 75;
  TAILQ_INIT(&t->unsent);
  TAILQ_INIT(&t->input);
  TAILQ_INIT(&t->waiting);
  sk_file_keep(&t->file);
  return &t->file;
}

void sk_tcp_free(sk_file *file) {
  sk_tcp_purge((sk_tcp *)file, true, true);
  free(file);
}

int sk_tcp_create(int family, int flags) {
  if (family != AF_INET && family != AF_INET6)
    return fail(EAFNOSUPPORT);
  sk_file *file = sk_tcp_new(family);
  file->flags = flags & SOCK_NONBLOCK ? O_NONBLOCK : 0;
  return sk_file_install(file, SK_SOCKET);
}

/* ---- names ------------------------------------------------------------------------------------
 */

/* The address of a host. */
static uint32_t host_ip(int host) {
  return 10u << 24 | (uint32_t)(host + 1);
}

static void read_name(const struct sockaddr *name, uint32_t *ip, uint16_t *port) {
  if (name->sa_family == AF_INET6) {
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)name;
    const uint8_t *last = in6->sin6_addr.s6_addr + 12;
    *ip = (uint32_t)last[0] << 24 | (uint32_t)last[1] << 16 | (uint32_t)last[2] << 8 | last[3];
    *port = ntohs(in6->sin6_port);
    return;
  }
  const struct sockaddr_in *in = (const struct sockaddr_in *)name;
  *ip = ntohl(in->sin_addr.s_addr);
  *port = ntohs(in->sin_port);
}

/* An address in the form of the socket's family: IPv4, or mapped into IPv6. */
static void write_name(int family, uint32_t ip, uint16_t port, struct sockaddr *name,
                       unsigned *length) {
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
  struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
  in.sin_addr.s_addr = htonl(ip);
  if (ip)
    memcpy(in6.sin6_addr.s6_addr + 10, (uint8_t[]){0xff, 0xff}, 2);
  memcpy(in6.sin6_addr.s6_addr + 12, &in.sin_addr, 4);
  const void *from = family == AF_INET ? (const void *)&in : (const void *)&in6;
  const unsigned bytes = family == AF_INET ? sizeof(in) : sizeof(in6);
  memcpy(name, from, *length < bytes ? *length : bytes);
  *length = bytes;
}

int sk_tcp_name(sk_file *file, bool peer, struct sockaddr *name, unsigned *length) {
  const sk_tcp *t = (sk_tcp *)file;
  if (peer && t->state != TCP_OPEN)
    return fail(ENOTCONN);
  write_name(t->family, peer ? t->peer_ip : t->ip, peer ? t->peer_port : t->port, name, length);
  return 0;
}

static unsigned bucket_of(int host, uint16_t port) {
  return ((unsigned)host * 40503u + port) % BUCKETS;
}

sk_tcp *sk_tcp_listener(int host, uint16_t port) {
  sk_tcp *t;
  LIST_FOREACH(t, &listeners[bucket_of(host, port)], link)
    if (t->host == host && t->port == port)
      return t;
  return NULL;
}

static uint16_t free_port(int host) {
  sk_host_state *state = &sk.hosts[host];
  do
    state->next_port = (uint16_t)(state->next_port >= 60999 ? 32768 : state->next_port + 1);
  while (sk_tcp_listener(host, state->next_port));
  return state->next_port;
}

/* ---- connections ------------------------------------------------------------------------------
 */

int sk_tcp_bind(sk_file *file, const struct sockaddr *name) {
  sk_tcp *t = (sk_tcp *)file;
  uint32_t ip;
  uint16_t port;
  read_name(name, &ip, &port);
  if (t->port)
    return fail(EINVAL);
  if (port && sk_tcp_listener(t->host, port))
    return fail(EADDRINUSE);
  t->port = port ? port : free_port(t->host);
  t->ip = ip;
  return 0;
}

int sk_tcp_listen(sk_file *file, int backlog) {
  sk_tcp *t = (sk_tcp *)file;
  if (t->state != TCP_FRESH && t->state != TCP_LISTENS)
    return fail(EINVAL);
  t->backlog = backlog < sk.config.backlog ? backlog : sk.config.backlog;
  if (t->state == TCP_LISTENS)
    return 0;
  if (!t->port)
    t->port = free_port(t->host);
  t->state = TCP_LISTENS;
  LIST_INSERT_HEAD(&listeners[bucket_of(t->host, t->port)], t, link);
  return 0;
}

int sk_tcp_connect(sk_file *file, const struct sockaddr *name) {
  sk_tcp *t = (sk_tcp *)file;
  if (t->state == TCP_SYN)
    return fail(EALREADY);
  if (t->state != TCP_FRESH)
    return fail(EISCONN);
  read_name(name, &t->peer_ip, &t->peer_port);
  if (!t->port)
    t->port = free_port(t->host);
  t->ip = t->peer_ip >> 24 == 127 ? t->peer_ip : host_ip(t->host);
  sk.current->counts.connects++;
  sk_tcp_dial(t);
  return fail(EINPROGRESS);
}

int sk_tcp_accept(sk_file *file, int flags) {
  sk_tcp *t = (sk_tcp *)file, *child = TAILQ_FIRST(&t->waiting);
  if (t->state != TCP_LISTENS)
    return fail(EINVAL);
  if (!child)
    return fail(EAGAIN);
  TAILQ_REMOVE(&t->waiting, child, link);
  t->nwaiting--;
  child->listener = NULL;
  child->file.flags = flags & SOCK_NONBLOCK ? O_NONBLOCK : 0;
  sk.current->counts.accepts++;
  return sk_file_install(&child->file, SK_SOCKET);
}

/* Closes a listener, and the connections that nobody has accepted. */
static void close_listener(sk_tcp *t) {
  LIST_REMOVE(t, link);
  t->state = TCP_DEAD;
  for (sk_tcp *child; (child = TAILQ_FIRST(&t->waiting));) {
    TAILQ_REMOVE(&t->waiting, child, link);
    child->orphan = true;
    if (child->state != TCP_DEAD)
      sk_tcp_send_reset(child);
    child->state = TCP_DEAD;
  }
}

/* Queues the end of the stream. */
static void queue_fin(sk_tcp *t) {
  sk_chunk *c = calloc(1, sizeof(*c));
  if (!c)
    abort();
  t->fin_queued = t->out_over = c->fin = true;
  TAILQ_INSERT_TAIL(&t->unsent, c, link);
  sk_tcp_transmit(t);
}

void sk_tcp_close(sk_file *file) {
  sk_tcp *t = (sk_tcp *)file;
  t->orphan = true;
  if (t->state == TCP_LISTENS) {
    close_listener(t);
  } else if (t->state == TCP_OPEN && t->input_bytes > 0) {
    sk_tcp_purge(t, true, true); /* data is lost, so the peer hears of it */
    t->state = TCP_DEAD;
    sk_tcp_send_reset(t);
  } else if (t->state == TCP_OPEN) {
    if (!t->fin_queued)
      queue_fin(t);
  } else {
    t->state = TCP_DEAD;
  }
}

int sk_tcp_shutdown(sk_file *file, int how) {
  sk_tcp *t = (sk_tcp *)file;
  if (t->state != TCP_OPEN)
    return fail(ENOTCONN);
  if (how != SHUT_WR)
    t->in_over = true;
  if (how != SHUT_RD && !t->fin_queued)
    queue_fin(t);
  return 0;
}

/* ---- data -------------------------------------------------------------------------------------
 */

/* Room for output; 0 if there is less than a third. */
static size_t room_of(const sk_tcp *t) {
  const size_t used = t->unsent_bytes + t->unacked_bytes;
  return used < sk.config.buffer_bytes ? sk.config.buffer_bytes - used : 0;
}

unsigned sk_tcp_ready(sk_file *file) {
  sk_tcp *t = (sk_tcp *)file;
  unsigned ready = t->error ? POLLERR : 0;
  if (t->state == TCP_LISTENS)
    return TAILQ_EMPTY(&t->waiting) ? 0 : POLLIN;
  if (t->state == TCP_FRESH || t->state == TCP_DEAD || (t->in_over && t->out_over))
    ready |= POLLHUP;
  if (t->state == TCP_SYN)
    return ready;
  if (t->in_over)
    ready |= POLLIN | POLLRDHUP;
  if (t->input_bytes > 0)
    ready |= POLLIN;
  if (t->state == TCP_FRESH || t->out_over || 3 * room_of(t) >= sk.config.buffer_bytes)
    ready |= POLLOUT;
  else
    t->starved = true;
  return ready;
}

/* Takes the socket's error, or `otherwise`. */
static int take_error(sk_tcp *t, int otherwise) {
  const int error = t->error ? t->error : otherwise;
  t->error = 0;
  return fail(error);
}

long sk_tcp_send(sk_file *file, const void *bytes, size_t count) {
  sk_tcp *t = (sk_tcp *)file;
  size_t done = 0;
  if (t->state == TCP_SYN)
    return fail(EAGAIN);
  if (t->error || t->out_over || t->state != TCP_OPEN)
    return take_error(t, EPIPE);
  for (size_t room = room_of(t); done < count && room > 0;) {
    size_t part = count - done < room ? count - done : room;
    part = part < SK_SEGMENT_BYTES ? part : SK_SEGMENT_BYTES;
    sk_chunk *c = malloc(sizeof(*c) + part);
    if (!c)
      abort();
    c->bytes = part;
    c->taken = 0;
    c->fin = false;
    memcpy(c->data, (const char *)bytes + done, part);
    TAILQ_INSERT_TAIL(&t->unsent, c, link);
    t->unsent_bytes += part;
    done += part;
    room -= part;
  }
  if (done < count)
    t->starved = true;
  if (done == 0 && count > 0)
    return fail(EAGAIN);
  sk_tcp_transmit(t);
  return (long)done;
}

void sk_tcp_count(const sk_file *file, size_t bytes) {
  const sk_tcp *peer = ((const sk_tcp *)file)->peer;
  sk_counts *from = &sk.ranks[file->rank].counts, *to = &sk.ranks[peer->file.rank].counts;
  from->sends++;
  from->sent_bytes += bytes;
  to->receives++;
  to->received_bytes += bytes;
}

/* Copies, or takes, input. */
static size_t take_input(sk_tcp *t, char *bytes, size_t count, bool peek) {
  size_t done = 0;
  for (sk_chunk *c = TAILQ_FIRST(&t->input), *next; c && done < count; c = next) {
    next = TAILQ_NEXT(c, link);
    const size_t left = c->bytes - c->taken, part = count - done < left ? count - done : left;
    memcpy(bytes + done, c->data + c->taken, part);
    done += part;
    if (peek)
      continue;
    c->taken += part;
    t->input_bytes -= part;
    if (c->taken == c->bytes) {
      TAILQ_REMOVE(&t->input, c, link);
      free(c);
    }
  }
  return done;
}

long sk_tcp_recv(sk_file *file, void *bytes, size_t count, bool peek) {
  sk_tcp *t = (sk_tcp *)file;
  if (t->state == TCP_LISTENS)
    return fail(ENOTCONN);
  if (t->input_bytes > 0) {
    const size_t done = take_input(t, bytes, count, peek);
    if (!peek && t->peer)
      sk_tcp_transmit(t->peer); /* it may have waited for room */
    return (long)done;
  }
  if (t->fin_read)
    return 0;
  if (t->error)
    return take_error(t, 0);
  if (t->in_over)
    return 0;
  return fail(t->state == TCP_FRESH || t->state == TCP_DEAD ? ENOTCONN : EAGAIN);
}

/* ---- options ----------------------------------------------------------------------------------
 */

int sk_tcp_set(sk_file *file, int level, int option, int value) {
  sk_tcp *t = (sk_tcp *)file;
  if (level == SOL_SOCKET && option == SO_KEEPALIVE)
    t->keepalive = value != 0;
  else if (level == IPPROTO_TCP && option == TCP_KEEPIDLE)
    t->idle_s = value;
  else if (level == IPPROTO_TCP && option == TCP_KEEPINTVL)
    t->interval_s = value;
  else if (level == SOL_SOCKET && option == SO_DETACH_FILTER)
    return fail(ENOENT);
  return 0; /* the rest changes nothing here */
}

/* Lets keepalive's probes of the time so far come and go: how many went without an answer. Those
 * before packets began to get lost were answered. */
static unsigned probe(sk_tcp *t, uint64_t now_ns) {
  if (!t->keepalive || t->unacked_bytes + t->unsent_bytes > 0 || t->state != TCP_OPEN)
    return 0;
  const uint64_t interval_ns = (uint64_t)t->interval_s * SK_S;
  const uint64_t since_ns = now_ns - t->acked_ns;
  if (since_ns < (uint64_t)t->idle_s * SK_S)
    return 0;
  if (sk_tcp_path(t)) {
    t->acked_ns = now_ns - since_ns % interval_ns;
    return 0;
  }
  return (unsigned)((since_ns - (uint64_t)t->idle_s * SK_S) / interval_ns) + 1;
}

static void fill_info(sk_tcp *t, struct tcp_info *info) {
  const uint64_t now_ns = sk_time();
  memset(info, 0, sizeof(*info));
  info->tcpi_probes = (uint8_t)probe(t, now_ns);
  info->tcpi_last_ack_recv = (uint32_t)((now_ns - t->acked_ns) / SK_MS);
  info->tcpi_unacked = (uint32_t)((t->unacked_bytes + 1447) / 1448 + t->unacked_fins);
  if (t->stalled)
    info->tcpi_unacked++; /* what was sent and lost */
  info->tcpi_retransmits = (uint8_t)t->retries;
}

int sk_tcp_get(sk_file *file, int level, int option, void *value, unsigned *length) {
  sk_tcp *t = (sk_tcp *)file;
  int number = 0;
  if (level == IPPROTO_TCP && option == TCP_INFO) {
    struct tcp_info info;
    fill_info(t, &info);
    *length = *length < sizeof(info) ? *length : sizeof(info);
    memcpy(value, &info, *length);
    return 0;
  }
  if (level == SOL_SOCKET && option == SO_ERROR) {
    number = t->error;
    t->error = 0;
  } else if (level == SOL_SOCKET && option == SO_ACCEPTCONN) {
    number = t->state == TCP_LISTENS;
  } else {
    return fail(ENOPROTOOPT);
  }
  *length = *length < sizeof(number) ? *length : sizeof(number);
  memcpy(value, &number, *length);
  return 0;
}

int sk_tcp_queued(sk_file *file, bool input) {
  const sk_tcp *t = (sk_tcp *)file;
  if (t->state == TCP_LISTENS)
    return fail(EINVAL);
  if (input)
    return (int)t->input_bytes;
  const bool fin_unsent = t->fin_queued && !TAILQ_EMPTY(&t->unsent);
  return (int)(t->unsent_bytes + t->unacked_bytes + t->unacked_fins + fin_unsent);
}
