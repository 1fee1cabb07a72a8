/*
 * tcp_rails_share.c: which rail gets a long message. Rails whose interfaces are about as fast get
 * equal shares: a message goes through the one on which this rank has the least under way. Through
 * one that is much slower it goes only if it arrives first there nevertheless, by what is under
 * way; else those behind it would wait for it. Source: Lim, Nahum, Towsley and Gibbens, "ECF: an
 * MPTCP path scheduler to manage heterogeneous paths", CoNEXT 2017.
 *
 * How fast interfaces are is measured while all get equal shares. Single samples say little: a rank
 * sees late what has arrived, the later the busier its cores are; other ranks send, too; a network
 * may let the first bytes after a rest through at once. But while shares are equal that is so on
 * all alike, and an interface is slow only if the median of its samples says so and all of them
 * together, each of the last two times. A network that lets bursts through, but no more, makes an
 * interface look fast that gets little: what has been found slow counts as such only as long as the
 * fastest one, which then gets nearly all, is still much faster. Now and then shares are equal
 * again, to see whether it still is.
 */
#include <net/if.h>

#include "libcoll/base/assert.h"
#include "libcoll/net/path.h"
#include "transports/tcp/tcp_rails.h"

#define MUCH       4.0 /* an interface is slow if the fastest's median is so many times as high, */
#define MORE       2.0 /* and all its samples together: late looks make that less */
#define STILL      2.0 /* so many times as fast the fastest must be that gets nearly all */
#define EARLY      1.5 /* so many times sooner a message has to arrive on a slow one */
#define AGAIN      100 /* what is slow is measured again after so many times as long */
#define AGAIN_NS   1000000000ull           /* but not before this, */
#define AGAIN_MOST 60000000000ull          /* nor after this */
#define LOOK_NS    20000ull                /* how often to look while an interface is not known */
#define LATER      (16 * TCP_RAILS_SAMPLE) /* bytes after which one knows whether it is */
#define TIE        1024.0 /* bytes that a sample counts until all are known: rails take turns */

/* Whether so few bytes count as none: the end of a message is acknowledged late. */
static inline bool is_short(uint64_t bytes) {
  return bytes < TCP_RAILS_LONG;
}

/* What is known of the interface of a rail. */
static tcp_nic *nic_of(const tcp_conn *conn) {
  tcp_nic *nics = conn->ep->nics;
  int i = conn->rail.nic_here != 0;
  while (i > 0 && i < COLLI_MAX_ADDRS && nics[i].scope != conn->rail.nic_here && nics[i].scope != 0)
    i++;
  nics[i].scope = conn->rail.nic_here;
  return &nics[i];
}

/* ---- what arrives ---------------------------------------------------------------------------- */

/* Bytes under way of connections whose rails choose among interfaces. Others say nothing of them:
 * what is slow is perhaps the only interface of their peer. */
static uint64_t compared_load(const tcp_nic *nic) {
  return nic->load - nic->load_apart;
}

/* The time since the last look at an interface, from which on it is this one. Connections look in
 * turn, some of them with a time that was taken a little earlier. */
static uint64_t look(tcp_nic *nic, uint64_t now_ns) {
  const uint64_t gap = now_ns > nic->looked_ns ? now_ns - nic->looked_ns : 0;
  nic->looked_ns += gap;
  return gap;
}

void tcp_rails_count_given(tcp_conn *conn, uint64_t bytes, uint64_t now_ns) {
  tcp_nic *nic = nic_of(conn);
  const bool is_apart = tcp_rails_share_one(conn->rail.rails);
  if (!is_apart && is_short(compared_load(nic)))
    look(nic, now_ns);
  conn->rail.given += bytes;
  nic->load += bytes;
  nic->load_apart += is_apart ? bytes : 0;
}

/* The middle one of the samples. */
static double median_of(const tcp_nic *nic) {
  double sorted[TCP_NIC_SAMPLES];
  for (int i = 0; i < TCP_NIC_SAMPLES; i++) {
    int j = i;
    for (; j > 0 && nic->samples[i] < sorted[j - 1]; j--)
      sorted[j] = sorted[j - 1];
    sorted[j] = nic->samples[i];
  }
  return sorted[TCP_NIC_SAMPLES / 2];
}

/* Begins to measure an interface. */
static void restart(tcp_nic *nic) {
  nic->nsamples = 0;
  nic->bytes = nic->ns = nic->all_bytes = nic->all_ns = 0;
}

/* Adds a sample, the last of which tells the speed. */
static void add_sample(tcp_nic *nic) {
  nic->samples[nic->nsamples++] = (double)nic->bytes / (double)nic->ns;
  nic->all_bytes += nic->bytes;
  nic->all_ns += nic->ns;
  nic->bytes = nic->ns = 0;
  if (nic->nsamples < TCP_NIC_SAMPLES)
    return;
  nic->speeds[1] = nic->speeds[0];
  nic->speeds[0] = (tcp_speed){median_of(nic), (double)nic->all_bytes / (double)nic->all_ns};
  nic->nspeeds++;
  restart(nic);
}

/* Bytes of a connection are no longer on their way through its interface. */
static void subtract_load(const tcp_conn *conn, uint64_t bytes) {
  tcp_nic *nic = nic_of(conn);
  nic->load -= bytes;
  nic->load_apart -= tcp_rails_share_one(conn->rail.rails) ? bytes : 0;
}

void tcp_rails_count_arrived(tcp_conn *conn, uint64_t bytes, uint64_t now_ns) {
  tcp_nic *nic = nic_of(conn);
  COLLI_ASSERT(bytes <= tcp_rail_load(&conn->rail) && bytes <= nic->load);
  conn->rail.arrived += bytes;
  if (tcp_rails_share_one(conn->rail.rails)) {
    subtract_load(conn, bytes);
    return;
  }
  const uint64_t gap = look(nic, now_ns);
  if (!is_short(compared_load(nic))) {
    const bool is_known = nic->nspeeds == 2;
    *(is_known ? &nic->later_bytes : &nic->bytes) += bytes;
    *(is_known ? &nic->later_ns : &nic->ns) += gap;
  }
  subtract_load(conn, bytes);
  if (nic->nspeeds < 2 && nic->ns > 0 && !is_short(nic->bytes) &&
      (nic->bytes >= TCP_RAILS_SAMPLE || is_short(compared_load(nic))))
    add_sample(nic);
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
  subtract_load(conn, tcp_rail_load(&conn->rail));
}

/* ---- which are slow -------------------------------------------------------------------------- */

/* The speeds of the fastest interfaces of a connection's rails, each of the last two times. */
typedef struct fastest {
  tcp_speed speeds[2];
  const tcp_nic *nic; /* the one whose speed was the highest the last time */
  int rails;          /* how many are open; one alone has nothing to be compared with */
  bool is_known;      /* the interfaces of all have been measured twice */
} fastest;

static fastest find_fastest(const tcp_rails *rails) {
  fastest most = {.is_known = true};
  const tcp_conn *conn;
  TAILQ_FOREACH(conn, &rails->sockets, rail.link) {
    if (!tcp_rail_is_open(conn))
      continue;
    const tcp_nic *nic = nic_of(conn);
    most.rails++;
    most.is_known &= nic->nspeeds == 2;
    if (!most.nic || nic->speeds[0].all > most.nic->speeds[0].all)
      most.nic = nic;
    for (int i = 0; i < 2; i++) {
      const tcp_speed *speed = &nic->speeds[i];
      tcp_speed *best = &most.speeds[i];
      best->median = speed->median > best->median ? speed->median : best->median;
      best->all = speed->all > best->all ? speed->all : best->all;
    }
  }
  return most;
}

/* Whether the fastest interface has got so much that one knows how fast it is then. */
static bool is_proven(const fastest *most) {
  return most->nic->later_bytes >= LATER && most->nic->later_ns > 0;
}

/* Whether the fastest interface, now that it gets most, is no longer much faster than another one
 * was while all got the same. */
static bool is_refuted(const tcp_nic *nic, const fastest *most) {
  const double before = nic->speeds[nic->speeds[1].all > nic->speeds[0].all].all;
  return is_proven(most) &&
         (double)most->nic->later_bytes < STILL * before * (double)most->nic->later_ns;
}

/* The share of an interface: 1, or less if it is slow. */
static double share_of(const tcp_nic *nic, const fastest *most) {
  double share = 1;
  for (int i = 0; most->is_known && i < 2; i++) {
    const double median = nic->speeds[i].median / most->speeds[i].median;
    const double all = nic->speeds[i].all / most->speeds[i].all, less = median < all ? median : all;
    if (median * MUCH >= 1 || all * MORE >= 1)
      return 1;
    share = less < share ? less : share;
  }
  return share < 1 && !is_refuted(nic, most) ? share / EARLY : 1;
}

/* Whether an interface is being measured, as some other connection's may be. */
static bool is_any_measured(const tcp_endpoint *ep) {
  for (int i = 0; i <= COLLI_MAX_ADDRS; i++)
    if (ep->nics[i].nspeeds == 1 || ep->nics[i].nsamples > 0)
      return true;
  return false;
}

/* All interfaces of a connection are known: plans when to measure them again, after a while that
 * depends on how long that takes on the slow one, if there is one. */
static void plan(tcp_endpoint *ep, const tcp_nic *slow, uint64_t now_ns) {
  double pause_ns = is_any_measured(ep) ? AGAIN_MOST : AGAIN_NS;
  if (slow) {
    const double took_ns = 2 * TCP_NIC_SAMPLES * (double)TCP_RAILS_SAMPLE / slow->speeds[0].all;
    pause_ns = AGAIN * took_ns > pause_ns ? AGAIN * took_ns : pause_ns;
  }
  ep->again_ns = now_ns + (uint64_t)(pause_ns < AGAIN_MOST ? pause_ns : AGAIN_MOST);
}

/* Logs once that an interface is slow. */
static void tell(tcp_rails *rails, tcp_nic *nic, double share) {
  char name[IF_NAMESIZE] = "?";
  if (nic->told)
    return;
  nic->told = true;
  if_indextoname(nic->scope, name);
  colli_log_write(&rails->log, COLLI_LOG_INFO,
                  "the network interface %s is slow: what is sent there takes about %.0f times as "
                  "long as on the fastest, so it gets few messages",
                  name, 1 / (share * EARLY));
}

/* Forgets how fast the interfaces are, if it is time. */
static void measure_again(tcp_endpoint *ep, uint64_t now_ns) {
  if (ep->again_ns == 0 || now_ns < ep->again_ns)
    return;
  ep->again_ns = 0;
  for (int i = 0; i <= COLLI_MAX_ADDRS; i++) {
    restart(&ep->nics[i]);
    ep->nics[i].nspeeds = 0;
    ep->nics[i].later_bytes = ep->nics[i].later_ns = 0;
  }
}

void tcp_rails_measure(tcp_rails *rails, uint64_t now_ns) {
  const fastest most = find_fastest(rails);
  tcp_conn *conn;
  if (most.is_known || most.rails < 2 || tcp_rails_share_one(rails))
    return;
  TAILQ_FOREACH(conn, &rails->sockets, rail.link)
    if (tcp_rail_is_open(conn) && now_ns > nic_of(conn)->looked_ns + LOOK_NS)
      tcp_rails_look_at_arrivals(conn, now_ns);
}

/* ---- which one ------------------------------------------------------------------------------- */

/* The first rail that is open; NULL: none is. */
static tcp_conn *find_first(const tcp_rails *rails) {
  tcp_conn *conn, *first = NULL;
  TAILQ_FOREACH(conn, &rails->sockets, rail.link)
    if (tcp_rail_is_open(conn) && (!first || conn->rail.place < first->rail.place))
      first = conn;
  return first;
}

tcp_conn *tcp_rails_choose(tcp_rails *rails, size_t bytes, uint64_t now_ns) {
  tcp_conn *conn, *best = NULL;
  const tcp_nic *slow = NULL;
  double least = 0;
  if (is_short(bytes) || tcp_rails_share_one(rails))
    return find_first(rails);
  measure_again(rails->ep, now_ns);
  TAILQ_FOREACH(conn, &rails->sockets, rail.link)
    if (tcp_rail_is_open(conn))
      tcp_rails_look_at_arrivals(conn, now_ns);
  const fastest most = find_fastest(rails);
  TAILQ_FOREACH(conn, &rails->sockets, rail.link) {
    if (!tcp_rail_is_open(conn))
      continue;
    tcp_nic *nic = nic_of(conn);
    const double share = share_of(nic, &most);
    if (share < 1) {
      if (is_proven(&most))
        tell(rails, nic, share);
      slow = nic;
    }
    double time = (double)(nic->load + bytes) / share;
    if (!most.is_known)
      time += TIE * (nic->nspeeds * TCP_NIC_SAMPLES + nic->nsamples);
    if (!best || time < least) {
      best = conn;
      least = time;
    }
  }
  if (most.is_known && most.rails > 1 && rails->ep->again_ns == 0)
    plan(rails->ep, slow, now_ns);
  return best;
}
