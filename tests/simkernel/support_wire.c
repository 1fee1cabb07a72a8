/* support_wire.c: packets of the simulated kernel's TCP: data, acknowledgements, ends, resets,
 * handshakes, retransmissions. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "support_tcp.h"

#define FIRST_RETRY_NS (200 * SK_MS)
#define SYN_RETRY_NS   SK_S
#define MOST_RETRIES   6 /* doublings */

/* How long a packet takes, without waiting for the link. */
static uint64_t latency(int from, int to) {
  const int size = sk.config.hosts_per_site;
  uint64_t ns = from == to ? sk.config.latency_ns / 10 : sk.config.latency_ns;
  if (size > 0 && from / size != to / size)
    ns = sk.config.site_ns;
  if (sk.config.jitter_ns)
    ns += colli_prng_below(&sk.prng, sk.config.jitter_ns);
  return ns + 1;
}

static bool reaches(const sk_tcp *from, const sk_tcp *to) {
  return sk_path(from->host, to->host);
}

bool sk_tcp_path(const sk_tcp *t) {
  return !t->peer || (reaches(t, t->peer) && reaches(t->peer, t));
}

/* When a packet of this end that leaves now arrives: after all before it. */
static uint64_t arrival(sk_tcp *t, size_t bytes) {
  sk_host_state *host = &sk.hosts[t->host];
  uint64_t at_ns = sk_time();
  if (t->host != t->peer->host) {
    if (at_ns < host->free_ns)
      at_ns = host->free_ns;
    at_ns += (uint64_t)((double)bytes * sk.config.ns_per_byte);
    host->free_ns = at_ns;
  }
  at_ns += latency(t->host, t->peer->host);
  if (at_ns <= t->arrived_ns)
    at_ns = t->arrived_ns + 1;
  return t->arrived_ns = at_ns;
}

void sk_tcp_purge(sk_tcp *t, bool output, bool input) {
  for (sk_chunk *c; output && (c = TAILQ_FIRST(&t->unsent));) {
    TAILQ_REMOVE(&t->unsent, c, link);
    free(c);
  }
  for (sk_chunk *c; input && (c = TAILQ_FIRST(&t->input));) {
    TAILQ_REMOVE(&t->input, c, link);
    free(c);
  }
  t->unsent_bytes = output ? 0 : t->unsent_bytes;
  t->input_bytes = input ? 0 : t->input_bytes;
}

/* ---- resets -----------------------------------------------------------------------------------
 */

/* A reset arrives at this end. */
static void take_reset(void *object, uint64_t number) {
  sk_tcp *t = object;
  (void)number;
  if (t->state == TCP_DEAD || t->state == TCP_FRESH || t->state == TCP_LISTENS)
    return;
  t->error = t->state == TCP_SYN ? ECONNREFUSED : t->fin_read ? EPIPE : ECONNRESET;
  t->state = TCP_DEAD;
  t->in_over = t->out_over = true;
  t->unacked_bytes = t->unacked_fins = 0;
  sk_tcp_purge(t, true, t->orphan);
  sk_file_notify(&t->file, 0);
}

/* The other end has lost a reset; its keepalive finds out when packets get through again. */
static void probe_dead(void *object, uint64_t number) {
  sk_tcp *t = object;
  if (t->state == TCP_DEAD)
    return;
  if (sk_tcp_path(t))
    sk_schedule(sk.now_ns + 2 * latency(t->host, t->peer->host), take_reset, t, 0);
  else
    sk_schedule(sk.now_ns + number, probe_dead, t, number);
}

void sk_tcp_send_reset(sk_tcp *t) {
  sk_tcp *p = t->peer;
  if (!p)
    return;
  if (reaches(t, p))
    sk_schedule(arrival(t, 0), take_reset, p, 0);
  else if (p->keepalive && !p->orphan)
    sk_schedule(sk_time() + (uint64_t)p->interval_s * SK_S, probe_dead, p,
                (uint64_t)p->interval_s * SK_S);
}

/* ---- data -------------------------------------------------------------------------------------
 */

/* A packet's fate in `number`: its bytes, and whether it is the end. */
#define NUMBER(chunk) ((uint64_t)(chunk)->bytes << 1 | (chunk)->fin)

/* An acknowledgement arrives. */
static void take_ack(void *object, uint64_t number) {
  sk_tcp *t = object;
  const size_t bytes = number >> 1;
  t->acked_ns = sk.now_ns;
  if (t->state == TCP_DEAD)
    return;
  t->unacked_bytes -= bytes;
  t->unacked_fins -= number & 1;
  t->retries = 0;
  const size_t used = t->unsent_bytes + t->unacked_bytes;
  if (t->starved && 3 * used <= 2 * sk.config.buffer_bytes) {
    t->starved = false;
    sk_file_notify(&t->file, POLLOUT);
  }
  sk_tcp_transmit(t);
}

/* How long until the next retransmission. */
static uint64_t backoff(sk_tcp *t, uint64_t first_ns) {
  const unsigned doublings = t->retries < MOST_RETRIES ? t->retries : MOST_RETRIES;
  t->retries++;
  return first_ns << doublings;
}

/* An acknowledgement was lost: the other end sends the packet again, and this one again says that
 * it has it. */
static void retry_ack(void *object, uint64_t number) {
  sk_tcp *t = object;
  if (t->state == TCP_DEAD)
    return;
  if (sk_tcp_path(t))
    sk_schedule(sk.now_ns + 2 * latency(t->host, t->peer->host), take_ack, t, number);
  else
    sk_schedule(sk.now_ns + backoff(t, FIRST_RETRY_NS), retry_ack, t, number);
}

/* Acknowledges a packet that `t` has sent. */
static void acknowledge(sk_tcp *t, uint64_t number) {
  if (reaches(t->peer, t))
    sk_schedule(sk.now_ns + latency(t->peer->host, t->host), take_ack, t, number);
  else
    sk_schedule(sk.now_ns + backoff(t, FIRST_RETRY_NS), retry_ack, t, number);
}

/* A packet arrives. */
static void take_packet(void *object, uint64_t number) {
  sk_tcp *t = object, *p = t->peer;
  sk_chunk *c = (sk_chunk *)(uintptr_t)number;
  const uint64_t what = NUMBER(c);
  p->coming_bytes -= c->bytes;
  p->acked_ns = sk.now_ns;
  if (p->state == TCP_DEAD || (p->orphan && c->bytes > 0)) {
    free(c);
    if (t->state != TCP_DEAD)
      sk_tcp_send_reset(p);
    if (p->state != TCP_DEAD)
      p->state = TCP_DEAD;
    return;
  }
  acknowledge(t, what);
  if (c->fin) {
    p->in_over = p->fin_read = true;
    free(c);
    sk_file_notify(&p->file, 0);
    return;
  }
  TAILQ_INSERT_TAIL(&p->input, c, link);
  p->input_bytes += c->bytes;
  sk_file_notify(&p->file, POLLIN);
}

/* A retransmission is due. */
static void retry_transmit(void *object, uint64_t number) {
  sk_tcp *t = object;
  (void)number;
  t->stalled = false;
  if (t->state == TCP_OPEN)
    sk_tcp_transmit(t);
}

void sk_tcp_transmit(sk_tcp *t) {
  sk_tcp *p = t->peer;
  for (sk_chunk *c; !t->stalled && t->state == TCP_OPEN && (c = TAILQ_FIRST(&t->unsent));) {
    const size_t used = p->input_bytes + p->coming_bytes;
    if (used > 0 && used + c->bytes > sk.config.buffer_bytes)
      return; /* the other end reads, and lets this one go on */
    if (!reaches(t, p)) {
      t->stalled = true;
      sk_schedule(sk_time() + backoff(t, FIRST_RETRY_NS), retry_transmit, t, 0);
      return;
    }
    TAILQ_REMOVE(&t->unsent, c, link);
    t->unsent_bytes -= c->bytes;
    t->unacked_bytes += c->bytes;
    t->unacked_fins += c->fin;
    p->coming_bytes += c->bytes;
    sk_schedule(arrival(t, c->bytes), take_packet, t, (uint64_t)(uintptr_t)c);
  }
}

/* ---- handshakes -------------------------------------------------------------------------------
 */

/* The handshake's last packet arrives at the child. */
static void complete_child(void *object, uint64_t number) {
  sk_tcp *child = object, *listener = child->listener;
  (void)number;
  if (child->state != TCP_ACCEPTED)
    return;
  if (!listener || listener->state != TCP_LISTENS) {
    child->state = TCP_DEAD;
    sk_tcp_send_reset(child);
    return;
  }
  child->state = TCP_OPEN;
  child->acked_ns = sk.now_ns;
  TAILQ_INSERT_TAIL(&listener->waiting, child, link);
  sk_file_notify(&listener->file, POLLIN);
}

/* The answer arrives at the end that connects. */
static void complete_dial(void *object, uint64_t number) {
  sk_tcp *t = object;
  (void)number;
  if (t->state != TCP_SYN) {
    t->peer->state = TCP_DEAD; /* nobody wants it any more */
    t->peer->listener->nwaiting--;
    return;
  }
  t->state = TCP_OPEN;
  t->retries = 0;
  t->acked_ns = sk.now_ns;
  sk_schedule(arrival(t, 0), complete_child, t->peer, 0);
  sk_file_notify(&t->file, 0);
}

/* The host with an address. */
static int host_of(const sk_tcp *t) {
  if (t->peer_ip >> 24 == 127)
    return t->host;
  const int host = (int)(t->peer_ip & 0xffffff) - 1;
  return t->peer_ip >> 24 == 10 && host >= 0 && host < sk.nhosts ? host : -1;
}

/* Makes the end at a listener. */
static sk_tcp *make_child(sk_tcp *t, sk_tcp *listener) {
  sk_rank *before = sk.current;
  sk.current = &sk.ranks[listener->file.rank];
  sk_tcp *child = (sk_tcp *)sk_tcp_new(listener->family);
  sk.current = before;
  child->state = TCP_ACCEPTED;
  child->host = listener->host;
  child->ip = t->peer_ip;
  child->port = t->peer_port;
  child->peer_ip = t->ip;
  child->peer_port = t->port;
  child->listener = listener;
  child->peer = t;
  t->peer = child;
  listener->nwaiting++;
  return child;
}

/* A request for a connection leaves; number: how often it has. */
static void send_syn(void *object, uint64_t number);

/* It arrives. */
static void take_syn(void *object, uint64_t number) {
  sk_tcp *t = object;
  const int host = host_of(t);
  if (t->state != TCP_SYN)
    return;
  sk_tcp *listener = sk_tcp_listener(host, t->peer_port);
  const uint64_t back_ns = sk.now_ns + latency(host, t->host);
  if (!listener) {
    sk_schedule(back_ns, take_reset, t, 0);
    return;
  }
  if (listener->nwaiting > listener->backlog) /* lost: comes again */
    return;
  (void)number;
  make_child(t, listener);
  sk_schedule(back_ns, complete_dial, t, 0);
}

static void send_syn(void *object, uint64_t number) {
  sk_tcp *t = object;
  const int host = host_of(t);
  if (t->state != TCP_SYN || t->peer)
    return;
  if (host >= 0 && sk_path(t->host, host) && sk_path(host, t->host))
    sk_schedule(sk_time() + latency(t->host, host), take_syn, t, number);
  sk_schedule(sk_time() + backoff(t, SYN_RETRY_NS), send_syn, t, number + 1);
}

void sk_tcp_dial(sk_tcp *t) {
  t->state = TCP_SYN;
  send_syn(t, 0);
}
