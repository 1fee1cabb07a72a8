/*
 * tcp_rails_share.c: which rail gets a long message. Rails whose interfaces are about as fast get
 * equal shares: a message goes through the one on which this rank has the least under way. Through
 * one that is much slower it goes only if it arrives first there nevertheless, by what is under
 * way; else those behind it would wait for it. Source: Lim, Nahum, Towsley and Gibbens, "ECF: an
 * MPTCP path scheduler to manage heterogeneous paths", CoNEXT 2017.
 *
 * How fast interfaces are is found out in trials, in which all get equal shares. Single samples say
 * little: a rank sees late what has arrived, the later the busier its cores are; other ranks send,
 * too; a network may let the first bytes after a rest through at once. But in a trial that is so on
 * all alike, and an interface is slow only if the median of its samples says so and all of them
 * together, in two trials after each other.
 */
#include <net/if.h>

#include "libcoll/base/assert.h"
#include "libcoll/net/path.h"
#include "transports/tcp/tcp_rails.h"

#define MUCH     4.0 /* an interface is slow if the fastest is so many times as fast by the median, */
#define MORE     2.0           /* and so many times by all samples: late looks make that less */
#define EARLY    1.5           /* so many times sooner a message has to arrive on a slow one */
#define AGAIN    100           /* the next trial is after so many times as long */
#define TIE      1024.0        /* bytes that count as under way for each sample in a trial */
#define AGAIN_NS 1000000000ull /* but not before this */

/* Whether so few bytes count as none: the end of a message is acknowledged late. */
static inline bool is_short(uint64_t bytes) {
  return bytes < TCP_RAILS_LONG;
}

/* What is known of an interface of this host (0: one that is not known). */
static tcp_nic *find_nic(tcp_endpoint *ep, uint32_t scope) {
  int i = 0;
  while (i < COLLI_MAX_ADDRS - 1 && ep->nics[i].scope != scope && ep->nics[i].scope != 0)
    i++;
  ep->nics[i].scope = scope;
  return &ep->nics[i];
}

static tcp_nic *nic_of(const tcp_conn *conn) {
  return find_nic(conn->ep, conn->rail.nic_here);
}

/* ---- what arrives ---------------------------------------------------------------------------- */

void tcp_rails_count_given(tcp_conn *conn, uint64_t bytes, uint64_t now_ns) {
  tcp_nic *nic = nic_of(conn);
  if (is_short(nic->load))
    nic->looked_ns = now_ns;
  conn->rail.given += bytes;
  nic->load += bytes;
}

void tcp_rails_count_arrived(tcp_conn *conn, uint64_t bytes, uint64_t now_ns) {
  tcp_nic *nic = nic_of(conn);
  COLLI_ASSERT(bytes <= tcp_rail_load(&conn->rail) && bytes <= nic->load);
  if (!is_short(nic->load)) {
    nic->bytes += bytes;
    nic->ns += now_ns - nic->looked_ns;
  }
  conn->rail.arrived += bytes;
  nic->load -= bytes;
  nic->looked_ns = now_ns;
  if (is_short(nic->bytes) || (nic->bytes < TCP_RAILS_SAMPLE && !is_short(nic->load)))
    return;
  if (nic->nsamples < TCP_NIC_SAMPLES && nic->ns > 0) {
    nic->samples[nic->nsamples++] = (double)nic->bytes / (double)nic->ns;
    nic->all_bytes += nic->bytes;
    nic->all_ns += nic->ns;
  }
  nic->bytes = nic->ns = 0;
}

/* Bytes of messages that a socket was given and the peer's kernel has not acknowledged. More than
 * that with TLS, whose records are longer than what is in them. */
static uint64_t backlog_of(const tcp_conn *conn) {
  uint64_t queued;
  if (!colli_path_queued(conn->source.fd, &queued))
    return conn->rail.given; /* as if nothing had arrived */
  return colli_stream_unwritten(&conn->stream) + queued;
}

void tcp_rails_look_at_arrivals(tcp_conn *conn, uint64_t now_ns) {
  if (tcp_rail_load(&conn->rail) == 0)
    return;
  const uint64_t load = tcp_rail_load(&conn->rail), backlog = backlog_of(conn);
  tcp_rails_count_arrived(conn, load > backlog ? load - backlog : 0, now_ns);
}

void tcp_rails_count_lost(tcp_conn *conn) {
  nic_of(conn)->load -= tcp_rail_load(&conn->rail);
}

/* ---- trials ---------------------------------------------------------------------------------- */

void tcp_rails_begin_trial(tcp_endpoint *ep, uint64_t now_ns) {
  for (int i = 0; i < COLLI_MAX_ADDRS; i++) {
    tcp_nic *nic = &ep->nics[i];
    nic->share = 1;
    nic->nsamples = 0;
    nic->bytes = nic->ns = nic->all_bytes = nic->all_ns = 0;
  }
  ep->in_trial = true;
  ep->trial_ns = now_ns;
}

/* What two ways to look at samples say of a speed, in bytes per ns. */
typedef struct speed {
  double median, all;
} speed;

static speed speed_of(tcp_nic *nic) {
  double *samples = nic->samples;
  for (int i = 1; i < TCP_NIC_SAMPLES; i++)
    for (int j = i; j > 0 && samples[j] < samples[j - 1]; j--) {
      const double other = samples[j];
      samples[j] = samples[j - 1];
      samples[j - 1] = other;
    }
  return (speed){samples[TCP_NIC_SAMPLES / 2], (double)nic->all_bytes / (double)nic->all_ns};
}

/* Logs, once for each, which interfaces are slow. */
static void tell(tcp_rails *rails) {
  const tcp_conn *conn;
  TAILQ_FOREACH(conn, &rails->sockets, rail.link) {
    tcp_nic *nic = nic_of(conn);
    char name[IF_NAMESIZE] = "?";
    if (!tcp_rail_is_open(conn) || nic->share == 1 || nic->told)
      continue;
    nic->told = true;
    if_indextoname(nic->scope, name);
    colli_log_write(
        &rails->log, COLLI_LOG_INFO,
        "the network interface %s is slow: what is sent there takes about %.0f times as "
        "long as on the fastest, so it gets few messages",
        name, 1 / (nic->share * EARLY));
  }
}

/* Ends a trial if there are samples of the interfaces of all rails. Goes on with another one where
 * none is slow, which does no harm. */
static void end_trial(tcp_rails *rails, uint64_t now_ns) {
  tcp_endpoint *ep = rails->ep;
  const tcp_conn *conn;
  speed most = {0, 0};
  bool any_slow = false;
  TAILQ_FOREACH(conn, &rails->sockets, rail.link) {
    if (!tcp_rail_is_open(conn))
      continue;
    if (nic_of(conn)->nsamples < TCP_NIC_SAMPLES)
      return;
    const speed here = speed_of(nic_of(conn));
    most.median = here.median > most.median ? here.median : most.median;
    most.all = here.all > most.all ? here.all : most.all;
  }
  TAILQ_FOREACH(conn, &rails->sockets, rail.link) {
    if (!tcp_rail_is_open(conn))
      continue;
    tcp_nic *nic = nic_of(conn);
    const speed here = speed_of(nic);
    const double median = here.median / most.median, all = here.all / most.all;
    const bool is_slow = median * MUCH < 1 && all * MORE < 1;
    nic->share = is_slow && nic->is_slow ? (median < all ? median : all) / EARLY : 1;
    nic->is_slow = is_slow;
    any_slow |= nic->share < 1;
  }
  if (!any_slow) {
    tcp_rails_begin_trial(ep, now_ns);
    return;
  }
  tell(rails);
  const uint64_t pause_ns = AGAIN * (now_ns - ep->trial_ns);
  ep->in_trial = false;
  ep->trial_ns = now_ns + (pause_ns > AGAIN_NS ? pause_ns : AGAIN_NS);
}

void tcp_rails_try(tcp_rails *rails, uint64_t now_ns) {
  tcp_conn *conn;
  if (!rails->ep->in_trial && now_ns >= rails->ep->trial_ns)
    tcp_rails_begin_trial(rails->ep, now_ns);
  TAILQ_FOREACH(conn, &rails->sockets, rail.link)
    if (tcp_rail_is_open(conn))
      tcp_rails_look_at_arrivals(conn, now_ns);
  if (rails->ep->in_trial)
    end_trial(rails, now_ns);
}

/* ---- which one ------------------------------------------------------------------------------- */

tcp_conn *tcp_rails_choose(tcp_rails *rails, size_t bytes, uint64_t now_ns) {
  tcp_conn *conn, *best = NULL;
  double least = 0;
  if (!is_short(bytes))
    tcp_rails_try(rails, now_ns);
  TAILQ_FOREACH(conn, &rails->sockets, rail.link) {
    if (!tcp_rail_is_open(conn))
      continue;
    if (is_short(bytes))
      return conn;
    const tcp_nic *nic = nic_of(conn);
    double time = (double)(nic->load + bytes) / nic->share;
    if (rails->ep->in_trial) /* else all go over the first if there is only one at a time */
      time += TIE * nic->nsamples;
    if (!best || time < least) {
      best = conn;
      least = time;
    }
  }
  return best;
}
