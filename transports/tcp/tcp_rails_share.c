/*
 * tcp_rails_share.c: which rail gets a long piece. Rails whose interfaces are about as fast get
 * equal shares: a piece goes through the interface on which this rank has the least under way, and
 * over its socket with the least. If one is slower, a piece goes through that on which it arrives
 * first, by what is under way and how fast they are; else those behind it would wait for it.
 * Source: Lim, Nahum, Towsley and Gibbens, "ECF: an MPTCP path scheduler to manage heterogeneous
 * paths", CoNEXT 2017.
 *
 * How fast interfaces are is measured while all get equal shares. Single samples say little: a rank
 * sees late what has arrived, the later the busier its cores are; other ranks send, too; a network
 * may let the first bytes after a rest through at once. But all of them together are nearly right:
 * of interfaces of 400 and 100 Mbit/s between eight ranks on two cores they say a ratio of 2.3 to 5
 * where their medians say 2 to 300. An interface that is often done early looks slower than it is.
 * One looks faster if the network lets its bursts through, but no more. So the fastest one is
 * measured once more while it gets most. Now and then shares are equal again, to see whether others
 * are still slow.
 *
 * A message is cut only on rails that are not FAST: there a single message takes less time if it
 * goes over several, and pieces can be shared out more exactly than messages.
 */
#include <net/if.h>

#include "libcoll/base/assert.h"
#include "libcoll/net/path.h"
#include "transports/tcp/tcp_rails.h"

#define SLOW       1.4  /* an interface is slow if the fastest is so many times as fast, */
#define MUCH       4.0  /* or so many times if that one is FAST */
#define FAST       1.25 /* bytes per ns; there processors are the limit, and results vary */
#define EARLY      1.2  /* so many times sooner a piece has to arrive on a slow one */
#define AGAIN      100  /* what is slow is measured again after so many times as long */
#define AGAIN_NS   1000000000ull           /* but not before this, */
#define AGAIN_MOST 60000000000ull          /* nor after this */
#define LOOK_NS    20000ull                /* how often to look while an interface is not known */
#define LATER      (16 * TCP_RAILS_SAMPLE) /* bytes by which the fastest is measured once more */
#define TIE        1024.0 /* bytes that a sample counts until all are known: rails take turns */
#define ENOUGH     32     /* samples: then it is known how fast an interface is */

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

/* Whether an interface has been measured. */
static inline bool is_known(const tcp_nic *nic) {
  return nic->nsamples == ENOUGH;
}

/* How fast it is, in bytes per ns, if it is known. */
static inline double speed_of(const tcp_nic *nic) {
  return (double)nic->bytes / (double)nic->ns;
}

/* Counts bytes that have arrived in some time while more were under way. */
static void count_busy(tcp_nic *nic, uint64_t bytes, uint64_t ns) {
  if (is_known(nic)) {
    nic->later_bytes += bytes;
    nic->later_ns += ns;
    return;
  }
  nic->bytes += bytes;
  nic->ns += ns;
  nic->sample_bytes += bytes;
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
  if (!is_short(compared_load(nic)))
    count_busy(nic, bytes, gap);
  subtract_load(conn, bytes);
  if (!is_known(nic) && nic->ns > 0 && !is_short(nic->sample_bytes) &&
      (nic->sample_bytes >= TCP_RAILS_SAMPLE || is_short(compared_load(nic)))) {
    nic->nsamples++;
    nic->sample_bytes = 0;
  }
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

/* The speeds of a connection's rails. */
typedef struct speeds {
  const tcp_nic *first; /* the interface that was the fastest while all got the same */
  double highest;       /* bytes per ns */
  int rails;            /* how many are open; one alone has nothing to be compared with */
  bool all_known;       /* the interfaces of all have been measured */
} speeds;

/* Whether the interface that seemed the fastest has got so much more that one knows whether it is.
 */
static bool is_proven(const tcp_nic *first) {
  return first->later_bytes >= LATER && first->later_ns > 0;
}

/* How fast that one is, in bytes per ns, by what is known now. */
static double last_speed(const tcp_nic *first) {
  return is_proven(first) ? (double)first->later_bytes / (double)first->later_ns : speed_of(first);
}

static speeds find_speeds(const tcp_rails *rails) {
  speeds all = {.all_known = true};
  const tcp_conn *conn;
  TAILQ_FOREACH(conn, &rails->sockets, rail.link) {
    if (!tcp_rail_is_open(conn))
      continue;
    const tcp_nic *nic = nic_of(conn);
    all.rails++;
    all.all_known &= is_known(nic);
    if (all.all_known && (!all.first || speed_of(nic) > speed_of(all.first)))
      all.first = nic;
  }
  all.highest = all.all_known && all.first ? last_speed(all.first) : 0;
  return all;
}

/* The share of an interface: 1, or less if it is slow. Speeds that were measured at different times
 * are not alike where cores are busy: the first one never counts as slow. */
static double share_of(const tcp_nic *nic, const speeds *all) {
  if (!all->all_known || nic == all->first)
    return 1;
  const double part = speed_of(nic) / all->highest;
  return part * (all->highest < FAST ? SLOW : MUCH) < 1 ? part / EARLY : 1;
}

/* Whether an interface of a connection's rails is slow. */
static bool is_uneven(const tcp_rails *rails, const speeds *all) {
  const tcp_conn *conn;
  TAILQ_FOREACH(conn, &rails->sockets, rail.link)
    if (tcp_rail_is_open(conn) && share_of(nic_of(conn), all) < 1)
      return true;
  return false;
}

unsigned tcp_rails_piece(const tcp_rails *rails) {
  const speeds all = find_speeds(rails);
  if (tcp_rails_share_one(rails) || all.rails < 2 || all.highest >= FAST)
    return TCP_RAILS_QUARTERS;
  const bool is_even = all.all_known && !is_uneven(rails, &all);
  return is_even && all.rails == 2 ? TCP_RAILS_QUARTERS / 2 : 1;
}

/* Whether an interface is being measured, as some other connection's may be. */
static bool is_any_measured(const tcp_endpoint *ep) {
  for (int i = 0; i <= COLLI_MAX_ADDRS; i++)
    if (ep->nics[i].nsamples > 0 && !is_known(&ep->nics[i]))
      return true;
  return false;
}

/* All interfaces of a connection are known: plans when to measure them again, after a while that
 * depends on how long that takes on the slow one, if there is one; soon if it is in doubt which one
 * is the fastest. */
static void plan(tcp_endpoint *ep, const tcp_nic *slow, bool in_doubt, uint64_t now_ns) {
  const uint64_t soon_ns = now_ns + AGAIN_NS;
  if (ep->again_ns != 0) {
    ep->again_ns = in_doubt && soon_ns < ep->again_ns ? soon_ns : ep->again_ns;
    return;
  }
  double pause_ns = is_any_measured(ep) ? AGAIN_MOST : AGAIN_NS;
  if (slow) {
    const double took_ns = ENOUGH * (double)TCP_RAILS_SAMPLE / speed_of(slow);
    pause_ns = AGAIN * took_ns > pause_ns ? AGAIN * took_ns : pause_ns;
  }
  for (int i = 0; i <= COLLI_MAX_ADDRS; i++)
    ep->nics[i].later_bytes = ep->nics[i].later_ns = 0;
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
                  "the network interface %s is slow: what is sent there takes about %.1f times as "
                  "long as on the fastest, so it gets less",
                  name, 1 / (share * EARLY));
}

/* Forgets how fast the interfaces are, if it is time. */
static void measure_again(tcp_endpoint *ep, uint64_t now_ns) {
  if (ep->again_ns == 0 || now_ns < ep->again_ns)
    return;
  ep->again_ns = 0;
  for (int i = 0; i <= COLLI_MAX_ADDRS; i++) {
    tcp_nic *nic = &ep->nics[i];
    nic->nsamples = 0;
    nic->sample_bytes = nic->bytes = nic->ns = nic->later_bytes = nic->later_ns = 0;
  }
}

void tcp_rails_measure(tcp_rails *rails, uint64_t now_ns) {
  const speeds all = find_speeds(rails);
  tcp_conn *conn;
  if (all.all_known || all.rails < 2 || tcp_rails_share_one(rails))
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
  const speeds all = find_speeds(rails);
  TAILQ_FOREACH(conn, &rails->sockets, rail.link) {
    if (!tcp_rail_is_open(conn))
      continue;
    tcp_nic *nic = nic_of(conn);
    const double share = share_of(nic, &all);
    if (share < 1) {
      if (is_proven(all.first))
        tell(rails, nic, share);
      slow = nic;
    }
    double time = (double)(nic->load + bytes) / share;
    if (!all.all_known)
      time += TIE * nic->nsamples;
    const bool is_lighter = best && tcp_rail_load(&conn->rail) < tcp_rail_load(&best->rail);
    if (!best || time < least || (time == least && is_lighter)) {
      best = conn;
      least = time;
    }
  }
  if (all.all_known && all.rails > 1)
    plan(rails->ep, slow, !slow && all.highest * SLOW < speed_of(all.first), now_ns);
  return best;
}
