/*
 * wait.c: how a public call waits for its operation. First it spins (unless others need its
 * core, or it waits for a socket), then it hands over its core between polls, and if the wait is
 * long it sleeps until a doorbell rings.
 *
 * Three other things wait in their own way: the progress thread (progress_thread.c), and creation
 * and shrinking, where there is no communicator yet that could be polled (libcoll/wireup,
 * libcoll/recovery).
 */
#include "libcoll/progress/wait.h"

#include "libcoll/comm/completion.h"
#include "libcoll/p2p/engine.h"
#include "libcoll/progress/doorbell.h"
#include "libcoll/progress/family_lock.h"
#include "libcoll/progress/handover.h"
#include "libcoll/progress/outsider.h"
#include "libcoll/progress/poll.h"

#define POLLS_PER_WATCH 16u
#define WAITS_PER_WATCH 128u
#define BURNT_NS        250000ull  /* after wasting this much time of a core, sleep */
#define SCARCE_NS       10000ull   /* the same where others may need it who cannot be yielded to */
#define SLEEP_AFTER_NS  1000000ull /* the same if others had the core in between */
#define OUTSIDER_POLLS  128u       /* the same while another program uses the core */
#define SLEEP_MAX_NS    (50 * COLLI_NS_PER_MS)
/* The same where several threads share the doorbells: this part of the wait so far, within bounds.
 */
#define SHARED_PART     32
#define SHARED_LEAST_NS COLLI_NS_PER_MS
#define SHARED_MAX_NS   (10 * COLLI_NS_PER_MS)

/*
 * How long to sleep at most where several threads share the doorbells. A doorbell may wake another
 * thread, which takes what this one waits for; this one then comes late by the rest of its sleep.
 * Sleeps that grow with the wait keep that small, and the cost of all wakes as well.
 */
static uint64_t longest_shared_sleep(const colli_watch *w) {
  uint64_t part_ns = w->idle_since_ns ? (w->now_ns - w->idle_since_ns) / SHARED_PART : 0;
  if (part_ns < SHARED_LEAST_NS)
    return SHARED_LEAST_NS;
  return part_ns < SHARED_MAX_NS ? part_ns : SHARED_MAX_NS;
}

/* How long to sleep at most. */
static uint64_t longest_sleep(const coll_comm *comm, uint64_t until_ns) {
  uint64_t wait_ns = comm->failure.suspended ? COLLI_SUSPECT_NS / 30 : SLEEP_MAX_NS;
  if (comm->family->several)
    wait_ns = longest_shared_sleep(&comm->watch);
  if (until_ns) {
    uint64_t left = until_ns > comm->watch.now_ns ? until_ns - comm->watch.now_ns : 0;
    wait_ns = left < wait_ns ? left : wait_ns;
  }
  for (const coll_comm *one = comm->family->members; one; one = one->sibling)
    if (colli_streams_silent(one->streams) && wait_ns > COLLI_STREAMS_NAP_NS)
      return COLLI_STREAMS_NAP_NS;
  return wait_ns;
}

/* Whether another thread has called coll_wake(), or ended the communicator, since this one last
 * went to sleep. A transport may have taken their rings for its own. */
static bool is_wanted(coll_comm *comm) {
  const unsigned seen = comm->watch.wakes;
  comm->watch.wakes = atomic_load(&comm->family->wakes);
  return comm->watch.wakes != seen || atomic_load(&comm->failure.aborts);
}

/*
 * Whether the next message is exchanged over a transport that does not poll memory: TCP, mostly
 * with another host. To look at a socket takes as long as to hand over a core that nobody wants.
 * Unknown of messages from any rank.
 */
static bool awaits_far(const coll_comm *comm) {
  const coll_request *op = comm->exec.oldest;
  int channel, step;
  const int peer = op ? colli_engine_waits_for(op, &channel, &step) : -1;
  const coll_conn *conn = peer >= 0 ? comm->exec.links[peer].conn[channel] : NULL;
  return conn && !(conn->ops->caps & COLL_CAP_SPIN);
}

/* Sleeps until a doorbell rings, something else is due, or `until_ns`. */
static void sleep_for_doorbell(coll_comm *comm, uint64_t until_ns) {
  colli_family *family = comm->family;
  struct pollfd fds[COLLI_MAX_DOORBELLS];
  int count = 0;
  family->several |= family->inside > 1;
  uint64_t wait_ns = longest_sleep(comm, until_ns);
  bool ready = !colli_doorbells_arm(family, fds, &count) || colli_comm_poll(comm) ||
               colli_comm_listen(comm) || colli_comm_poll_siblings(comm) ||
               !colli_doorbells_quiet(family);
  if (!ready && !is_wanted(comm)) {
    family->sleepers++;
    if (comm->entry.locked)
      colli_family_unlock(family);
    int wait_ms = (int)((wait_ns + COLLI_NS_PER_MS - 1) / COLLI_NS_PER_MS);
    colli_movers_poll(fds, count, wait_ms, &family->mover);
    if (comm->entry.locked)
      colli_family_lock(family);
    family->sleepers--;
  }
  colli_doorbells_disarm(family);
  comm->watch.control_ns = 0; /* something may have arrived, so poll everything */
  colli_comm_watch(comm);
}

/* A call begins to wait. */
void colli_comm_wait_begin(coll_comm *comm) {
  comm->watch.now_ns = 0;
  /* Where short calls follow each other, perhaps none polls often enough to look at the transports.
   */
  if (++comm->watch.waits % WAITS_PER_WATCH == 0)
    colli_comm_watch(comm);
  comm->watch.idle = 0;
  comm->watch.idle_since_ns = 0;
  comm->watch.yielded_ns = 0;
}

/*
 * Whether this wait is still short. Time in which others had the core does not count. But a rank
 * that waits for a socket can sleep instead: whoever sleeps gets the core back at once, where a
 * yield to one who computes takes milliseconds. And where ranks share cores, they may be in control
 * groups of their own (containers, sessions), to which no yield gives the core.
 */
static bool may_poll(const colli_watch *w) {
  if (w->far && w->yielded_ns >= COLLI_LONG_YIELD_NS)
    return false;
  if (!w->idle_since_ns)
    return true;
  const uint64_t idle_ns = w->now_ns - w->idle_since_ns;
  const uint64_t burnt_ns = w->far && colli_handover_due(w) ? SCARCE_NS : BURNT_NS;
  return idle_ns < SLEEP_AFTER_NS && idle_ns < burnt_ns + w->yielded_ns;
}

/* Polls once; if nothing moved, spins, hands the core over, or sleeps. */
void colli_comm_wait_a_bit(coll_comm *comm, uint64_t until_ns) {
  colli_watch *w = &comm->watch;
  if (__builtin_expect(comm->entry.locked, 0)) /* each time, so that others can poll too */
    colli_family_yield(comm->family);
  colli_completion_deliver(comm->family);
  if (colli_comm_poll(comm)) {
    w->idle = 0;
    w->idle_since_ns = 0;
    w->yielded_ns = 0;
    return;
  }
  if (comm->world.pause) {
    bool moved = colli_comm_watch(comm) || w->idle == 0;
    w->idle++;
    comm->world.pause(comm->world.ctx, moved);
    return;
  }
  if (w->idle % POLLS_PER_WATCH == 0)
    w->far = awaits_far(comm);
  if (++w->idle % POLLS_PER_WATCH == 0 && colli_comm_watch(comm))
    return;
  if (comm->watch.mate >= 0 && !comm->family->outsider.away) {
    if (w->idle == 1)
      w->elsewhere_most = colli_handover_polls(comm);
    if (w->elsewhere++ < w->elsewhere_most)
      return;
  }
  w->elsewhere = 0;
  if (!may_poll(w) || (comm->family->outsider.sleeps && w->idle > OUTSIDER_POLLS))
    sleep_for_doorbell(comm, until_ns);
  else if (!w->far &&
           (comm->family->outsider.sleeps || (!colli_handover_due(w) && w->idle <= w->spin)))
    colli_cpu_relax();
  else
    colli_handover_yield(comm);
}

/* Advances everything as far as possible without waiting. */
int colli_comm_progress(coll_comm *comm) {
  int moved = colli_comm_poll(comm);
  if (moved)
    comm->watch.idle = 0;
  else if (comm->watch.idle++ % 4 == 0)
    moved = colli_comm_watch(comm);
  return moved;
}

coll_status colli_comm_await_streams(coll_comm *comm, const char *name) {
  const colli_world *world = &comm->world;
  const uint64_t until_ns = world->now_ns(world->ctx) + comm->watch.timeout_ns;
  colli_comm_wait_begin(comm);
  while (colli_streams_unstarted(comm) && comm->failure.status == COLL_OK) {
    if (world->now_ns(world->ctx) >= until_ns)
      return colli_comm_refuse(
          comm, COLL_ERR_TIMEOUT, name,
          "%d stream-ordered calls that were made before have not begun within %llu ms, because "
          "their streams are not there yet; a kernel before them may never end",
          comm->streams->unstarted, (unsigned long long)(comm->watch.timeout_ns / COLLI_NS_PER_MS));
    colli_comm_wait_a_bit(comm, until_ns);
  }
  return comm->failure.status;
}
