/*
 * handover.c: when a rank that shares its core hands it over. All times here were measured
 * (docs/decisions).
 */
#include "libcoll/progress/handover.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "libcoll/p2p/engine.h"
#include "libcoll/progress/family_lock.h"
#include "libcoll/progress/outsider.h"

/* A yield that takes longer let another process run: there and back takes more, a yield alone 0.3
 * to 1.5 us. */
#define SHARED_NS       2000ull
#define SPIN_LEAST      16u
#define LOOK_NS         400000ull   /* from one look to the next: too short for one interruption */
#define CONTESTED_NS    250000ull   /* others take a free core more seldom */
#define STAYS_NS        10000000ull /* how long a core counts as contested after that */
#define POLLS_ELSEWHERE 32u         /* about 1 us */
#define POLLS_IN_TURN   128u /* about 4 us: a change of ranks on the other core, and their work */
#define TURNS           4u   /* after so many handovers without a message, a rank is not a root */
#define ELSEWHERE_BYTES 32768u

/* Messages that this rank has sent to its mate, the only other rank on this core. */
static uint64_t count_sent_to_mate(const coll_comm *comm) {
  uint64_t sent = 0;
  for (int channel = 0; comm->watch.mate >= 0 && channel < COLLI_CHANNELS; channel++)
    sent += comm->exec.links[comm->watch.mate].posted[channel];
  return sent;
}

/*
 * Lets another process run on this core. If one did, spinning only keeps the core from the rank for
 * which this one waits, so later waits spin less. If none wants the core, they spin as long as
 * allowed.
 */
void colli_handover_yield(coll_comm *comm) {
  colli_watch *w = &comm->watch;
  uint64_t sent = count_sent_to_mate(comm);
  if (sent != w->sent_to_mate)
    w->turns = TURNS;
  else if (w->turns > 0)
    w->turns--;
  w->sent_to_mate = sent;
  if (comm->entry.locked)
    colli_family_unlock(comm->family);
  const uint64_t before = colli_now_ns();
  sched_yield();
  const uint64_t away_ns = colli_now_ns() - before;
  if (comm->entry.locked)
    colli_family_lock(comm->family);
  comm->family->outsider.long_yields += away_ns > COLLI_LONG_YIELD_NS;
  if (away_ns > SHARED_NS) {
    w->spin = w->spin / 2 > SPIN_LEAST ? w->spin / 2 : SPIN_LEAST;
    w->yielded_ns += away_ns;
  } else {
    w->spin = w->spin * 2 < COLLI_SPIN_MOST ? w->spin * 2 : COLLI_SPIN_MOST;
  }
}

/*
 * How long yields take does not tell this: those who want the core may be in other control groups
 * or sessions, to which the kernel gives it when it likes. A rank that sleeps instead is seldom
 * interrupted, so what was seen holds for a while.
 */
void colli_handover_look(coll_comm *comm) {
  colli_watch *w = &comm->watch;
  const uint64_t now_ns = w->now_ns, passed_ns = now_ns - w->looked_ns, before = w->interruptions;
  const pid_t before_by = w->looked_by;
  if (w->crowded || !colli_world_is_real(&comm->world) || passed_ns < LOOK_NS)
    return;
  w->looked_ns = now_ns;
  w->looked_by = gettid();
  w->interruptions = colli_outsider_interruptions(RUSAGE_THREAD);
  if (w->looked_by == before_by && (w->interruptions - before) * CONTESTED_NS >= passed_ns)
    w->contested_ns = now_ns;
  w->contested = w->contested_ns && now_ns - w->contested_ns < STAYS_NS;
}

/*
 * Whether the mate has done its part of an operation whose `lane` is at `step`. If it still owes
 * messages to this rank, the next one must have arrived; if not, this rank must have received at
 * least one.
 */
static bool mate_is_done(const coll_comm *comm, const coll_request *op, int lane, int step) {
  const colli_sched *sched = op->sched;
  coll_conn *conn = comm->exec.links[comm->watch.mate].conn[lane];
  int received = 0, missing = 0;
  for (int i = sched->lane_first[lane]; i < sched->lane_first[lane + 1]; i++)
    if (sched->steps[i].bits & COLLI_RECV && sched->steps[i].peer_recv == comm->watch.mate)
      *(i < step ? &received : &missing) += 1;
  coll_tag tag;
  const void *msg;
  size_t bytes;
  if (!missing)
    return received > 0;
  /* A failure is not lost: the connection reports it again on the next receive. */
  return conn && conn->ops->caps & COLL_CAP_SPIN && !coll_transport_expects(conn->ops) &&
         conn->ops->slot_peek(conn, &tag, &msg, &bytes) == COLL_T_DONE;
}

/*
 * How often to poll for a rank on another core before this core is handed over. Handing it over and
 * getting it back takes longer than a short message from another core. So polling pays for short
 * messages, on cores that only one other rank, the mate, shares.
 *
 * In an exchange (all-reduce, all-gather, ...) the core goes to the mate at once as long as the
 * mate has not done its part. After that, the mate can do no more than this rank, which therefore
 * keeps the core until the ranks on the other core have changed too.
 *
 * In an operation with a root no rank needs its mate, unless ranks take turns as root. A rank that
 * has sent its mate a message hands over the core at once, because the mate must run before this
 * rank's next turn; both cores then change ranks at the same time. The rank that runs next owes its
 * mate nothing until it is root itself, and waits as in an exchange.
 */
unsigned colli_handover_polls(const coll_comm *comm) {
  const coll_request *op = comm->exec.oldest;
  if (!op || op->partition.piece * op->elem_bytes > ELSEWHERE_BYTES)
    return 0;
  if (op->coll == COLLI_SENDRECV || op->coll == COLLI_SCAN || op->coll == COLLI_EXSCAN)
    return 0;
  bool rooted = op->coll == COLLI_BROADCAST || op->coll == COLLI_SCATTER ||
                op->coll == COLLI_GATHER || op->coll == COLLI_REDUCE;
  int channel, step, peer = colli_engine_waits_for(op, &channel, &step);
  const coll_conn *conn = peer >= 0 ? comm->exec.links[peer].conn[channel] : NULL;
  if (!conn || !(conn->ops->caps & COLL_CAP_SPIN) || peer == comm->watch.mate)
    return 0;
  if (!rooted)
    return mate_is_done(comm, op, channel, step) ? POLLS_IN_TURN : 0;
  if (!(op->sched->steps[step].bits & COLLI_RECV))
    return POLLS_ELSEWHERE;
  if (count_sent_to_mate(comm) != comm->watch.sent_to_mate)
    return 0;
  return comm->watch.turns ? POLLS_IN_TURN : POLLS_ELSEWHERE;
}
