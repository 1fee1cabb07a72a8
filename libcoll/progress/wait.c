/*
 * wait.c: the one place where a rank waits, and the watchdog that looks around meanwhile.
 *
 * Waiting goes from fast to frugal: spin (not if ranks outnumber cores), then hand the core over
 * between looks, then sleep until a doorbell rings. The watchdog's clock counts only time that the
 * rank spent here, so that a program that computes for long between two calls is not late.
 */
#include <poll.h>
#include <sched.h>

#include "libcoll/comm/comm.h"
#include "libcoll/failure/failure.h"
#include "libcoll/failure/notice.h"
#include "libcoll/failure/watchdog.h"

#define SHARED_NS       1000ull /* a yield that takes longer let somebody else run */
#define SPIN_LEAST      16u
#define LOOKS_PER_WATCH 16u
#define LOOKS_ELSEWHERE 32u  /* see looks_elsewhere(): about 1 us */
#define LOOKS_IN_TURN   128u /* about 4 us: a change of ranks on the other core, and what they do */
#define TURNS           4u   /* so often the core is handed over before a rank counts as no root */
#define ELSEWHERE_BYTES 32768u
#define BURNT_NS        250000ull  /* so much time of a core spent in vain: sleep */
#define SLEEP_AFTER_NS  1000000ull /* the same for time that others had the core meanwhile */
#define CONTROL_NS      500000ull  /* how often control links are looked at */
#define SLEEP_MAX_NS    (50 * COLLI_NS_PER_MS)
#define SLEEP_SHARED_NS COLLI_NS_PER_MS /* the same where several threads share the bells */
#define MAX_TOLD        4 /* so many operations, the oldest, tell others that they stand */
#define SUSPECT_NS      (100 * COLLI_NS_PER_MS) /* how long a broken connection waits for news */
#define MAX_GAP_NS      (100 * COLLI_NS_PER_MS) /* the most that one look adds to the clock */

/* Fails or reports operations that have not moved for long. */
static void check_operations(coll_comm *comm) {
  uint64_t waited = comm->watch.waited_ns;
  uint64_t stall = colli_watchdog_interval_ns(comm);
  int age = 0;
  for (coll_request *op = comm->exec.oldest; op; op = op->newer) {
    if (op->moved) {
      op->moved = false;
      op->moved_at = waited;
      op->told_at = waited;
    }
    uint64_t still = waited - op->moved_at;
    if (age++ < MAX_TOLD && waited - op->told_at >= stall) {
      op->told_at = waited;
      colli_p2p_abandoned(&comm->p2p);
      if (comm->failure.status != COLL_OK || comm->failure.suspended)
        return;
      colli_watchdog_tell(comm, op);
      if (comm->failure.status != COLL_OK)
        return;
    }
    if (still >= comm->watch.timeout_ns) {
      colli_watchdog_timed_out(comm, op);
      return;
    }
  }
}

/* Fails all communicators of the family: a transport is of no use any more. */
static void port_failed(colli_family *family, coll_status status) {
  family->reported.status = status;
  for (coll_comm *comm = family->members; comm; comm = comm->sibling)
    colli_comm_fail(comm, &family->reported);
}

/* Moves the transports on: connections come about, dead peers are noticed. */
static int watch_ports(colli_family *family) {
  int moved = 0;
  for (int i = 0; i < family->nports; i++) {
    colli_port *port = &family->ports[i];
    if (!port->endpoint)
      continue;
    int status = port->ops->progress(port->endpoint);
    if (status > 0 && status != 1) {
      port_failed(family, (coll_status)status);
      return 1;
    }
    moved |= status == 1;
  }
  if (family->mux)
    moved |= colli_mux_progress(family->mux);
  return moved;
}

/* Runs the executor unless the communicator has failed or waits for news of a broken connection. */
static int look(coll_comm *comm) {
  if (comm->failure.status != COLL_OK || comm->failure.suspended)
    return 0;
  return colli_engine_progress(&comm->exec, &comm->p2p);
}

/*
 * Moves the other communicators of the family on, unless their threads do: ranks that wait for the
 * operations of several communicators in different orders must not wait for each other.
 */
static int look_at_siblings(coll_comm *comm) {
  int moved = 0;
  for (coll_comm *other = comm->family->members; other; other = other->sibling)
    if (other != comm && (other->exec.oldest || other->p2p.outgoing) &&
        !atomic_load(&other->entry.inside))
      moved |= look(other);
  return moved;
}

/* Moves a communicator's clock on; whether it is time to look at control links and deadlines. */
static bool tick(coll_comm *comm) {
  colli_watch *w = &comm->watch;
  uint64_t now = comm->world.now_ns(comm->world.ctx);
  uint64_t gap = w->now_ns ? now - w->now_ns : 0;
  w->waited_ns += gap < MAX_GAP_NS ? gap : MAX_GAP_NS;
  w->now_ns = now;
  if (!w->idle_since_ns)
    w->idle_since_ns = now;
  if (now - w->control_ns < CONTROL_NS)
    return false;
  w->control_ns = now;
  return true;
}

/* Looks at a communicator's deadlines and suspicions. */
static void judge(coll_comm *comm) {
  if (comm->failure.status == COLL_OK && comm->failure.suspended &&
      comm->watch.now_ns - comm->failure.suspect_ns >= SUSPECT_NS)
    colli_comm_fail(comm, &comm->failure.suspect);
  if (comm->failure.status == COLL_OK && !comm->failure.suspended)
    check_operations(comm);
}

/* The watchdog: transports each time; control links, deadlines and suspicions now and then. */
static int watch(coll_comm *comm) {
  int moved = watch_ports(comm->family) | look_at_siblings(comm);
  if (tick(comm)) {
    colli_notice_poll(comm->family);
    judge(comm);
  }
  return moved;
}

/* Whether a communicator has operations in flight, messages to send, or windows. */
static bool is_busy(const coll_comm *comm) {
  return comm->failure.status == COLL_OK && (comm->exec.oldest || comm->p2p.busy > 0);
}

bool colli_family_busy(const colli_family *family) {
  for (const coll_comm *comm = family->members; comm; comm = comm->sibling)
    if (is_busy(comm))
      return true;
  return false;
}

int colli_family_look(colli_family *family) {
  int moved = 0;
  for (coll_comm *comm = family->members; comm; comm = comm->sibling)
    if (is_busy(comm))
      moved |= look(comm);
  return moved;
}

int colli_family_watch(colli_family *family, bool now) {
  int moved = watch_ports(family);
  for (coll_comm *comm = family->members; comm; comm = comm->sibling)
    now |= is_busy(comm) && tick(comm);
  if (!now)
    return moved;
  colli_notice_poll(family);
  for (coll_comm *comm = family->members; comm; comm = comm->sibling)
    if (is_busy(comm))
      judge(comm);
  return moved;
}

/* Makes doorbells ring, and collects their descriptors; false if there is something to do. */
static bool arm(colli_family *family, struct pollfd *fds, int *count) {
  bool ready = false;
  for (int i = 0; i < family->nports && !ready; i++) {
    colli_port *port = &family->ports[i];
    if (!port->endpoint)
      continue;
    ready = port->ops->arm(port->endpoint) != 0;
    int fd = port->ops->wait_fd(port->endpoint);
    if (fd >= 0)
      fds[(*count)++] = (struct pollfd){.fd = fd, .events = POLLIN};
  }
  fds[(*count)++] = (struct pollfd){.fd = colli_ctrl_fd(family->ctrl), .events = POLLIN};
  return !ready;
}

/* Whether nothing has come for shared connections. */
static bool is_quiet(const colli_family *family) {
  return !family->mux || !colli_mux_progress(family->mux);
}

bool colli_family_arm(colli_family *family, struct pollfd *fds, int *count) {
  return arm(family, fds, count) && !colli_family_look(family) && is_quiet(family);
}

void colli_family_disarm(colli_family *family) {
  for (int i = 0; i < family->nports && family->sleepers == 0; i++)
    if (family->ports[i].endpoint)
      family->ports[i].ops->disarm(family->ports[i].endpoint);
}

/* How long to sleep at most. */
static uint64_t longest_sleep(const coll_comm *comm, uint64_t until_ns) {
  uint64_t wait_ns = comm->failure.suspended ? SUSPECT_NS / 10 : SLEEP_MAX_NS;
  /* A bell may wake another thread, which takes what this one waits for. */
  if (comm->family->several)
    wait_ns = SLEEP_SHARED_NS;
  if (until_ns) {
    uint64_t left = until_ns > comm->watch.now_ns ? until_ns - comm->watch.now_ns : 0;
    wait_ns = left < wait_ns ? left : wait_ns;
  }
  return wait_ns;
}

/* Lets other threads of the family in while this one waits and does not look. */
static void let_in(coll_comm *comm) {
  if (comm->entry.locked)
    colli_family_unlock(comm->family);
}

static void come_back(coll_comm *comm) {
  if (comm->entry.locked)
    colli_family_lock(comm->family);
}

/* Sleeps until a doorbell rings, something else is due, or `until_ns`. */
static void sleep_a_while(coll_comm *comm, uint64_t until_ns) {
  colli_family *family = comm->family;
  struct pollfd fds[COLLI_MAX_BELLS];
  int count = 0;
  family->several |= family->inside > 1;
  uint64_t wait_ns = longest_sleep(comm, until_ns);
  bool ready =
      !arm(family, fds, &count) || look(comm) || look_at_siblings(comm) || !is_quiet(family);
  if (!ready && !atomic_load(&comm->failure.abort_flag)) {
    family->sleepers++;
    let_in(comm);
    poll(fds, (nfds_t)count, (int)((wait_ns + COLLI_NS_PER_MS - 1) / COLLI_NS_PER_MS));
    come_back(comm);
    family->sleepers--;
  }
  colli_family_disarm(family);
  comm->watch.control_ns = 0; /* something may have come: look at everything */
  watch(comm);
}

/* Forgets how long this rank has waited. */
void colli_comm_wait_begin(coll_comm *comm) {
  comm->watch.idle = 0;
  comm->watch.idle_since_ns = 0;
  comm->watch.given_ns = 0;
  comm->watch.now_ns = 0;
}

/* Messages sent to the one other rank on this core. */
static uint64_t sent_to_mate(const coll_comm *comm) {
  uint64_t sent = 0;
  for (int channel = 0; comm->watch.mate >= 0 && channel < COLLI_CHANNELS; channel++)
    sent += comm->exec.links[comm->watch.mate].posted[channel];
  return sent;
}

/*
 * Lets others run on this core. If somebody did, spinning only keeps the core from whom we may be
 * waiting for, so the next waits spin less; if nobody wants the core, they spin as long as they
 * may.
 */
static void hand_over(coll_comm *comm) {
  colli_watch *w = &comm->watch;
  uint64_t before = colli_now_ns();
  uint64_t sent = sent_to_mate(comm);
  if (sent != w->told_mate)
    w->turns = TURNS;
  else if (w->turns > 0)
    w->turns--;
  w->told_mate = sent;
  let_in(comm);
  sched_yield();
  come_back(comm);
  uint64_t away_ns = colli_now_ns() - before;
  if (away_ns > SHARED_NS) {
    w->spin = w->spin / 2 > SPIN_LEAST ? w->spin / 2 : SPIN_LEAST;
    w->given_ns += away_ns;
  } else {
    w->spin = w->spin * 2 < COLLI_SPIN_MOST ? w->spin * 2 : COLLI_SPIN_MOST;
  }
}

/* Whether this rank has not waited for long; a core that others use meanwhile is not burnt. */
static bool is_fresh(const colli_watch *w) {
  if (!w->idle_since_ns)
    return true;
  uint64_t idle_ns = w->now_ns - w->idle_since_ns;
  return idle_ns < SLEEP_AFTER_NS && idle_ns < BURNT_NS + w->given_ns;
}

/* Whether the mate has done its part of an operation so far, of which `lane` is at `step`: it has
 * messages for this rank, of which the next one is there, or all were received. */
static bool mate_is_through(const coll_comm *comm, const coll_request *op, int lane, int step) {
  const colli_sched *sched = op->sched;
  coll_conn *conn = comm->exec.links[comm->watch.mate].conn[lane];
  int had = 0, missing = 0;
  for (int i = sched->lane_first[lane]; i < sched->lane_first[lane + 1]; i++)
    if (sched->steps[i].bits & COLLI_RECV && sched->steps[i].peer_recv == comm->watch.mate)
      *(i < step ? &had : &missing) += 1;
  coll_tag tag;
  const void *msg;
  size_t bytes;
  if (!missing)
    return had > 0;
  /* A failure is not lost: it stays that of the connection, from which the message must come. */
  return conn && conn->ops->caps & COLL_CAP_SPIN && !coll_transport_expects(conn->ops) &&
         conn->ops->slot_peek(conn, &tag, &msg, &bytes) == COLL_T_DONE;
}

/*
 * How often to look for a rank on another core before this one is handed over: that rank may come
 * while two changes of ranks would take longer. For short messages, and where only one other rank,
 * the mate, wants this core.
 *
 * In an exchange the core is handed over as long as the mate has not done its part. Then it can do
 * no more than this rank, which waits until the other core has changed ranks, too.
 *
 * In operations with a root ranks need nobody on their own core, unless they are roots in turn. One
 * that has sent the mate something should not wait for others then: the mate has to run before the
 * next turn is over, and this core changes ranks while the other one does. The rank that runs then
 * has nothing to do for its mate until it is root itself, and waits as in an exchange.
 */
static unsigned looks_elsewhere(const coll_comm *comm) {
  const coll_request *op = comm->exec.oldest;
  if (!op || op->partition.piece * op->elem_bytes > ELSEWHERE_BYTES)
    return 0;
  if (op->coll == COLLI_SENDRECV || op->coll == COLLI_SCAN || op->coll == COLLI_EXSCAN)
    return 0;
  bool rooted = op->coll == COLLI_BROADCAST || op->coll == COLLI_SCATTER ||
                op->coll == COLLI_GATHER || op->coll == COLLI_REDUCE;
  int channel, step, peer = colli_engine_waits_for(op, &channel, &step);
  const coll_conn *conn = peer >= 0 ? comm->exec.links[peer].conn[channel] : NULL;
  if (!conn || !(conn->ops->caps & COLL_CAP_SPIN) ||
      comm->table[peer].core == comm->table[comm->rank].core)
    return 0;
  if (!rooted)
    return mate_is_through(comm, op, channel, step) ? LOOKS_IN_TURN : 0;
  if (!(op->sched->steps[step].bits & COLLI_RECV))
    return LOOKS_ELSEWHERE;
  if (sent_to_mate(comm) != comm->watch.told_mate)
    return 0;
  return comm->watch.turns ? LOOKS_IN_TURN : LOOKS_ELSEWHERE;
}

/* Looks once, and if nothing moved passes the time as long as it takes. */
void colli_comm_wait_a_bit(coll_comm *comm, uint64_t until_ns) {
  colli_watch *w = &comm->watch;
  colli_call_yield(comm); /* each time: what keeps this one from sleeping may be another's */
  if (look(comm)) {
    w->idle = 0;
    w->idle_since_ns = 0;
    w->given_ns = 0;
    return;
  }
  if (comm->world.pause) {
    bool moved = watch(comm) || w->idle == 0;
    w->idle++;
    comm->world.pause(comm->world.ctx, moved);
    return;
  }
  if (++w->idle % LOOKS_PER_WATCH == 0 && watch(comm))
    return;
  if (comm->watch.mate >= 0) {
    if (w->idle == 1)
      w->looks = looks_elsewhere(comm);
    if (w->elsewhere++ < w->looks)
      return;
  }
  w->elsewhere = 0;
  if (!is_fresh(w))
    sleep_a_while(comm, until_ns);
  else if (!comm->watch.crowded && w->idle <= w->spin)
    colli_cpu_relax();
  else
    hand_over(comm);
}

/* Moves everything on as far as it goes without waiting. */
int colli_comm_progress(coll_comm *comm) {
  int moved = look(comm);
  if (moved)
    comm->watch.idle = 0;
  else if (comm->watch.idle++ % 4 == 0)
    moved = watch(comm);
  return moved;
}
