/*
 * poll.c: the work of a waiting rank. It polls operations and transports each time, control links
 * and deadlines now and then.
 *
 * The watchdog's clock counts only time that the rank spends waiting inside the library, so that a
 * program that computes for a long time between calls does not time out.
 */
#include "libcoll/progress/poll.h"

#include "libcoll/failure/blame.h"
#include "libcoll/failure/failure.h"
#include "libcoll/failure/knock.h"
#include "libcoll/failure/notice.h"
#include "libcoll/failure/watchdog.h"
#include "libcoll/progress/handover.h"
#include "libcoll/progress/outsider.h"

#define CONTROL_NS 500000ull /* time between polls of the control links */
#define MAX_TOLD   4         /* how many operations, oldest first, are reported to others */
#define BUSY_MS    1         /* how soon a family with open operations moves on meanwhile */
#define LISTEN_MS  10        /* and one to which messages may come that wake nobody */
#define MAX_GAP_NS (100 * COLLI_NS_PER_MS) /* the most that one poll adds to the clock */

/* Whether an operation ends now, or will within `ahead` ns: by its own limit, or else because it
 * has not moved for `still` ns. */
static bool is_late(const coll_comm *comm, const coll_request *op, uint64_t still, uint64_t ahead) {
  if (colli_op_limited(op))
    return comm->watch.now_ns + ahead >= op->limit_ns;
  return still + ahead >= comm->watch.timeout_ns;
}

/* Fails or reports operations that have not moved for long, or are over their limit: 1 if any of
 * them ended alone. */
static int check_operations(coll_comm *comm) {
  uint64_t waited = comm->watch.waited_ns;
  uint64_t interval = colli_watchdog_interval_ns(comm);
  int age = 0, moved = 0;
  for (coll_request *op = comm->exec.oldest, *newer; op; op = newer) {
    newer = op->newer;
    if (op->moved) {
      op->moved = false;
      op->moved_at = waited;
      op->told_at = waited;
      op->told_again = interval;
    }
    uint64_t still = waited - op->moved_at;
    if (op->coll == COLLI_SENDRECV)
      colli_p2p_waited(&comm->p2p, colli_p2p_op_of(op), still, comm->watch.timeout_ns);
    if (age++ < MAX_TOLD && waited - op->told_at >= op->told_again) {
      const bool first = op->told_at == op->moved_at;
      op->told_again = colli_watchdog_next_ns(comm, still);
      op->told_at = waited;
      colli_p2p_abandoned(&comm->p2p);
      if (comm->failure.status != COLL_OK || comm->failure.suspended)
        return moved;
      colli_watchdog_tell(comm, op, first ? COLLI_TELL_FIRST : COLLI_TELL_ALL);
      if (comm->failure.status != COLL_OK)
        return moved;
    }
    if (colli_op_limited(op) && colli_p2p_can_retract(&comm->p2p, op)) {
      if (is_late(comm, op, still, 0)) {
        colli_blame_retract(comm, op);
        moved = 1;
      }
      continue;
    }
    if (is_late(comm, op, still, interval))
      colli_watchdog_ask(comm, op);
    if (comm->failure.status != COLL_OK)
      return moved;
    if (is_late(comm, op, still, 0) && colli_watchdog_has_answers(comm)) {
      colli_blame_timed_out(comm, op);
      return moved;
    }
  }
  return moved;
}

/* Fails all communicators of the family, because a transport no longer works. */
static void fail_family(colli_family *family, coll_status status) {
  family->reported.status = status;
  for (coll_comm *comm = family->members; comm; comm = comm->sibling)
    colli_comm_fail(comm, &family->reported);
}

/* Polls the transports, which establish connections and notice dead peers. */
static int poll_transports(colli_family *family) {
  int moved = 0;
  for (int i = 0; i < family->nports; i++) {
    colli_port *port = &family->ports[i];
    if (!port->endpoint)
      continue;
    int status = port->ops->progress(port->endpoint);
    if (status > 0 && status != 1) {
      fail_family(family, (coll_status)status);
      return 1;
    }
    moved |= status == 1;
  }
  if (family->mux)
    moved |= colli_mux_progress(family->mux);
  return moved;
}

/* Whether a communicator has operations in flight, messages to send, windows, or stream-ordered
 * calls. */
static bool is_busy(const coll_comm *comm) {
  if (colli_streams_busy(comm->streams))
    return true;
  return comm->failure.status == COLL_OK && (comm->exec.oldest || comm->p2p.busy > 0);
}

/*
 * Polls the other communicators of the family, except those with a thread inside that can do it.
 * Ranks may wait for operations of several communicators in different orders; none must block
 * another.
 */
int colli_comm_poll_siblings(coll_comm *comm) {
  int moved = 0;
  for (coll_comm *other = comm->family->members; other; other = other->sibling)
    if (other != comm && is_busy(other) &&
        (!atomic_load(&other->entry.guard.inside) || other->entry.paused))
      moved |= colli_comm_poll(other);
  return moved;
}

int colli_comm_listen(coll_comm *comm) {
  if (comm->failure.status != COLL_OK || comm->failure.suspended || comm->p2p.busy > 0 ||
      !comm->p2p.first_peer)
    return 0;
  return colli_p2p_progress(&comm->p2p);
}

/* Takes in messages that no operation of this rank waits for, and asks peers for connections. */
static int tend_messages(coll_comm *comm) {
  int moved = 0;
  for (coll_comm *one = comm->family->members; one; one = one->sibling)
    if (one == comm || !atomic_load(&one->entry.guard.inside)) {
      moved |= colli_comm_listen(one);
      colli_knock(one);
    }
  return moved;
}

/* Advances the clock of a communicator; true when control links and deadlines are due. */
static bool advance_clock(coll_comm *comm) {
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

/* Fails a communicator whose deadline has passed, or whose broken connection no notice has
 * explained; 1 if an operation ended alone. */
static int check_deadlines(coll_comm *comm) {
  if (comm->failure.status == COLL_OK && comm->failure.suspended &&
      comm->watch.now_ns - comm->failure.suspect_ns >= COLLI_SUSPECT_NS) {
    const int root = colli_blame_departed(comm, &comm->failure.suspect, false);
    colli_comm_fail_for(comm, &comm->failure.suspect, root);
  }
  if (comm->failure.status == COLL_OK && !comm->failure.suspended)
    return check_operations(comm);
  return 0;
}

/* Polls transports and sibling communicators; from time to time control links and deadlines. A
 * failure counts as progress, so that a waiting rank does not go to sleep after one. */
int colli_comm_watch(coll_comm *comm) {
  const coll_status before = comm->failure.status;
  int moved = poll_transports(comm->family) | colli_comm_poll_siblings(comm);
  if (advance_clock(comm)) {
    colli_notice_poll(comm->family);
    moved |= check_deadlines(comm);
    moved |= tend_messages(comm);
    colli_movers_move(&comm->family->mover);
    colli_handover_look(comm);
    if (comm->watch.now_ns >= comm->family->outsider.next_ns)
      colli_outsider_look(comm);
  }
  return moved | (comm->failure.status != before);
}

void colli_comm_serve(coll_comm *comm) {
  colli_notice_poll(comm->family);
  poll_transports(comm->family);
  colli_comm_poll(comm);
  colli_comm_poll_siblings(comm);
  tend_messages(comm);
}

bool colli_family_busy(const colli_family *family) {
  for (const coll_comm *comm = family->members; comm; comm = comm->sibling)
    if (is_busy(comm))
      return true;
  return false;
}

int colli_family_poll(colli_family *family) {
  int moved = 0;
  for (coll_comm *comm = family->members; comm; comm = comm->sibling)
    if (is_busy(comm))
      moved |= colli_comm_poll(comm);
  return moved;
}

int colli_family_watch(colli_family *family, bool now) {
  int moved = poll_transports(family);
  for (coll_comm *comm = family->members; comm; comm = comm->sibling)
    now |= is_busy(comm) && advance_clock(comm);
  if (!now)
    return moved;
  colli_notice_poll(family);
  for (coll_comm *comm = family->members; comm; comm = comm->sibling)
    if (is_busy(comm))
      moved |= check_deadlines(comm);
  return moved;
}

int colli_family_move(colli_family *family, int *within_ms) {
  int moved = poll_transports(family);
  colli_notice_poll(family);
  for (coll_comm *comm = family->members; comm; comm = comm->sibling) {
    if (atomic_load(&comm->entry.guard.inside) == COLLI_INSIDE_CALL)
      continue;
    moved |= is_busy(comm) ? colli_comm_poll(comm) : colli_comm_listen(comm);
    colli_knock(comm);
    if (comm->failure.suspended && comm->failure.status == COLL_OK) {
      comm->watch.now_ns = comm->world.now_ns(comm->world.ctx);
      moved |= check_deadlines(comm);
    }
    if (is_busy(comm))
      *within_ms = BUSY_MS;
    else if (comm->p2p.first_peer && *within_ms < 0)
      *within_ms = LISTEN_MS;
  }
  return moved;
}
