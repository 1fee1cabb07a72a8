/*
 * blame.c: finds the root cause of a failure. Ranks wait for each other in several communicators of
 * a family: this rank for b here, b for c elsewhere, and c is frozen. Each has told all others
 * where it waits (watchdog.c), so this rank follows "waits for" from rank to rank and communicator
 * to communicator, to one that says nothing. If a failure has stopped that rank, the cause of that
 * failure is the cause of this one too.
 */
#include "libcoll/failure/blame.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/failure/answer.h"
#include "libcoll/failure/failure.h"
#include "libcoll/failure/op_text.h"

#define NAME_TEXT    (COLLI_NAME + 48)
#define PROCESS_TEXT (NAME_TEXT + 96)

/* ---- names ----------------------------------------------------------------------------------- */

/* "rank 3", or, if it is not in `comm`, "rank 5 of "world"". */
static const char *rank_text(const coll_comm *comm, int base_rank, char text[NAME_TEXT]) {
  int rank = colli_comm_rank_of(comm, base_rank);
  if (rank >= 0)
    snprintf(text, NAME_TEXT, "rank %d", rank);
  else
    snprintf(text, NAME_TEXT, "rank %d of \"%s\"", base_rank, comm->family->name);
  return text;
}

/* The same with host and process. */
static const char *process_text(const coll_comm *comm, int base_rank, char text[PROCESS_TEXT]) {
  char name[NAME_TEXT];
  const colli_rank_info info = colli_rank_at(comm->family->table, base_rank);
  snprintf(text, PROCESS_TEXT, "%s (host %s, pid %d)", rank_text(comm, base_rank, name), info.host,
           info.pid);
  return text;
}

/* Makes a rank the one to blame. */
static void set_peer(const coll_comm *comm, coll_error *record, int base_rank) {
  const colli_rank_info info = colli_rank_at(comm->family->table, base_rank);
  record->peer = colli_comm_rank_of(comm, base_rank);
  record->peer_pid = info.pid;
  snprintf(record->peer_host, sizeof(record->peer_host), "%s", info.host);
}

/* Appends to the message of a record; what does not fit is cut. */
__attribute__((format(printf, 2, 3))) static void say(coll_error *record, const char *format, ...) {
  const size_t used = strlen(record->message);
  va_list args;
  va_start(args, format);
  vsnprintf(record->message + used, sizeof(record->message) - used, format, args);
  va_end(args);
}

/* ---- ranks that a failure has stopped ------------------------------------------------------- */

/* The failure that is known to have stopped a rank, or NULL. */
static const colli_affected *stopped_by(const coll_comm *comm, int base_rank) {
  const colli_affected *affected = comm->family->reports->at[base_rank].affected;
  return affected && affected->root != base_rank ? affected : NULL;
}

/* The recent failure that may have stopped a rank, or NULL. */
static const colli_affected *maybe_stopped_by(const coll_comm *comm, int base_rank) {
  const colli_reports *reports = comm->family->reports;
  const uint64_t now_ns = comm->world.now_ns(comm->world.ctx);
  const bool recent =
      reports->recent_ns && now_ns - reports->recent_ns <= colli_cause_window_ns(comm->family);
  return recent && reports->recent.root != base_rank ? &reports->recent : NULL;
}

/* How a rank does not come. */
typedef enum absence {
  GONE, /* its process has ended, which no abort does; nor is another failure presumed */
  LEFT, /* it has left */
  LATE  /* it may be frozen; a program goes on after an abort, so that explains nothing */
} absence;

/*
 * Makes a record that blames `base_rank`, which does not come, one about the failure that stopped
 * that rank, with the previous message behind. Returns the rank to blame.
 */
static int blame_root(const coll_comm *comm, coll_error *record, int base_rank, absence how) {
  char root[PROCESS_TEXT], stopped[NAME_TEXT], before[sizeof(record->message)];
  const colli_affected *affected = stopped_by(comm, base_rank);
  if (affected && affected->status == COLL_ERR_ABORTED && how != LEFT)
    affected = NULL;
  const bool known = affected != NULL;
  if (!known && how != GONE)
    affected = maybe_stopped_by(comm, base_rank);
  if (!affected)
    return base_rank;
  memcpy(before, record->message, sizeof(before));
  record->status = affected->status;
  set_peer(comm, record, affected->root);
  process_text(comm, affected->root, root);
  rank_text(comm, base_rank, stopped);
  *record->message = 0;
  say(record, "%s is %sto blame: it stopped %s on communicator \"%s\" (%.300s); therefore %s", root,
      known ? "" : "probably ", known ? stopped : "others", affected->name, affected->message,
      before);
  return affected->root;
}

int colli_blame_departed(const coll_comm *comm, coll_error *record, bool gone) {
  if (record->peer < 0 || record->status != COLL_ERR_PEER_LOST)
    return -1;
  return blame_root(comm, record, colli_comm_base_rank(comm, record->peer), gone ? GONE : LEFT);
}

/* ---- the search ------------------------------------------------------------------------------ */

/* A search through the ranks of the base, nearest first. */
typedef struct search {
  const coll_comm *comm;
  uint64_t fresh_ns;       /* reports since then count */
  int *queue, head, tail;  /* ranks that somebody waits for */
  int *waiter;             /* by rank: who was found to wait for it first; -1: nobody */
  const colli_report **in; /* by rank: where that one does; NULL: this rank, here */
} search;

/* Allocates a search; false if out of memory. */
static bool begin_search(search *s, const coll_comm *comm) {
  const size_t n = (size_t)comm->family->nranks;
  *s = (search){.comm = comm};
  s->fresh_ns = comm->watch.fresh_ns;
  s->queue = malloc(n * sizeof(*s->queue));
  s->waiter = malloc(n * sizeof(*s->waiter));
  s->in = calloc(n, sizeof(*s->in));
  for (size_t i = 0; s->waiter && i < n; i++)
    s->waiter[i] = -1;
  return s->queue && s->waiter && s->in;
}

static void end_search(search *s) {
  free(s->queue);
  free(s->waiter);
  free(s->in);
}

/* `waiter` waits for `rank`. */
static void add_wait(search *s, int waiter, const colli_report *in, int rank) {
  if ((rank == s->comm->family->rank && !in) || s->waiter[rank] >= 0)
    return;
  s->waiter[rank] = waiter;
  s->in[rank] = in;
  s->queue[s->tail++] = rank;
}

/* Whether a report says what holds a rank up that others wait for on communicator `uid`. */
static bool holds_up(const search *s, const colli_report *report, uint64_t uid) {
  return report->heard_ns >= s->fresh_ns && !report->idle && (report->inside || report->uid == uid);
}

/* What holds a rank up where others wait for it, or NULL. */
static const colli_report *first_hold(const search *s, int rank) {
  const uint64_t uid = s->in[rank] ? s->in[rank]->uid : s->comm->uid;
  const colli_report *report = s->comm->family->reports->at[rank].waits;
  while (report && !holds_up(s, report, uid))
    report = report->next;
  return report;
}

/* For whom a rank waits, as far as it is one; or -1. */
static int next_of(const search *s, int rank) {
  const colli_report *report = first_hold(s, rank);
  return report && report->nwaits > 0 ? report->waits[0] : -1;
}

/* All ranks wait: the lowest other one in the circle at the end of the way from the first. */
static int find_circle(const search *s) {
  int rank = s->queue[0], lowest = -1;
  for (int i = 0; i < s->comm->family->nranks && next_of(s, rank) >= 0; i++)
    rank = next_of(s, rank);
  const int start = rank;
  do {
    if (rank != s->comm->family->rank && (lowest < 0 || rank < lowest))
      lowest = rank;
    rank = next_of(s, rank);
  } while (rank >= 0 && rank != start);
  return lowest >= 0 ? lowest : s->queue[0];
}

/* The nearest rank that does not say that it waits; or else one that waits for anybody, one of a
 * circle, or -1. */
static int find_root(search *s) {
  int own[COLLI_CTRL_MORE + 1], anybody = -1;
  int count = colli_engine_all_waits(&s->comm->exec, own, COLLI_CTRL_MORE + 1);
  for (int i = 0; i < count; i++)
    add_wait(s, s->comm->family->rank, NULL, colli_comm_base_rank(s->comm, own[i]));
  while (s->head < s->tail) {
    const int rank = s->queue[s->head++];
    const uint64_t uid = s->in[rank] ? s->in[rank]->uid : s->comm->uid;
    const colli_report *report = first_hold(s, rank);
    if (!report && rank == s->comm->family->rank)
      continue; /* what it waits for has the search begun with */
    if (!report)
      return rank;
    for (; report; report = report->next) {
      if (!holds_up(s, report, uid))
        continue;
      anybody = report->nwaits == 0 && anybody < 0 ? rank : anybody;
      for (int i = 0; i < report->nwaits; i++)
        add_wait(s, rank, report, report->waits[i]);
    }
  }
  return anybody >= 0 ? anybody : s->tail > 0 ? find_circle(s) : -1;
}

/* ---- the verdict ----------------------------------------------------------------------------- */

/* What is known of the one to blame. */
static const char *state_of(const search *s, int rank) {
  for (const colli_report *r = s->comm->family->reports->at[rank].waits; r; r = r->next)
    if (r->heard_ns >= s->fresh_ns && (r->idle || !r->inside))
      return "is alive, but in no call that would bring it to";
  return "has not come to, or froze in,";
}

/* "; rank 1 waits for it there; rank 0 (host h) waits for rank 1 in ...": the way back from the one
 * to blame to this rank. */
static void describe_way(const search *s, coll_error *record, int rank, const char *own_text) {
  const coll_comm *comm = s->comm;
  char who[PROCESS_TEXT], whom[NAME_TEXT];
  for (bool first = true; rank != comm->family->rank; rank = s->waiter[rank], first = false) {
    const colli_report *in = s->in[rank];
    if (in)
      rank_text(comm, s->waiter[rank], who);
    else
      snprintf(who, sizeof(who), "rank %d (host %s)", comm->rank, comm->host);
    if (first)
      say(record, "; %s waits for it there", who);
    else
      say(record, "; %s waits for %s in %s on \"%s\"", who, rank_text(comm, rank, whom),
          in ? in->text : own_text, in ? in->name : comm->name);
  }
}

/* For whom a rank waits. */
static const char *whom_text(const search *s, const colli_report *report, char text[NAME_TEXT]) {
  if (report->nwaits > 0)
    return rank_text(s->comm, report->waits[0], text);
  return "anybody";
}

/* Says how long this rank has waited, and what to do. */
static void say_end(const coll_comm *comm, coll_error *record, const coll_request *op) {
  if (colli_op_limited(op)) {
    say(record, "; its limit of %d ms has passed: look at that process, or give it more time",
        op->limit_ms);
    return;
  }
  say(record, "; nothing moved for %llu ms: look at that process, or raise COLL_TIMEOUT_MS",
      (unsigned long long)(comm->watch.timeout_ns / COLLI_NS_PER_MS));
}

/* Writes that all ranks on the way wait, so that none can be singled out. */
static void describe_circle(const search *s, coll_error *record, int rank, const char *own_text) {
  const colli_report *report = first_hold(s, rank);
  char who[PROCESS_TEXT], next[NAME_TEXT];
  say(record,
      "%s on \"%s\": rank %d (host %s) waits for %s, which waits as well, in %s on \"%s\", for %s",
      own_text, s->comm->name, s->comm->rank, s->comm->host, process_text(s->comm, rank, who),
      report->text, report->name, whom_text(s, report, next));
}

/* Writes the verdict; returns the root cause, or -1. */
static int describe_verdict(const search *s, coll_error *record, const coll_request *op, int rank) {
  char who[PROCESS_TEXT], own_text[COLLI_OP_TEXT], seen[COLLI_SEEN_TEXT];
  const colli_report *in = s->in[rank];
  colli_op_text(op, own_text);
  set_peer(s->comm, record, rank);
  const bool here = !in || in->uid == s->comm->uid;
  const colli_report *hold = first_hold(s, rank);
  if (here && op->coll != COLLI_SENDRECV && !(hold && hold->uid == s->comm->uid)) {
    colli_answer_text(s->comm, op, record->peer, record->message, sizeof(record->message));
    if (!hold)
      return blame_root(s->comm, record, rank, LATE);
    say(record, "; it waits for %s in %s on \"%s\"", whom_text(s, hold, who), hold->text,
        hold->name);
    return next_of(s, rank) == rank ? rank : -1;
  }
  if (hold) {
    describe_circle(s, record, rank, own_text);
    say_end(s->comm, record, op);
    return -1;
  }
  say(record, "%s %s %s on communicator \"%s\"", process_text(s->comm, rank, who),
      state_of(s, rank), in ? in->text : own_text, in ? in->name : s->comm->name);
  colli_answer_seen_text(s->comm, rank, in ? in->uid : s->comm->uid, seen, sizeof(seen));
  say(record, "%s", seen);
  describe_way(s, record, rank, own_text);
  say_end(s->comm, record, op);
  return blame_root(s->comm, record, rank, LATE);
}

void colli_blame_timed_out(coll_comm *comm, const coll_request *op) {
  int channel, step;
  const int first = colli_engine_waits_for(op, &channel, &step);
  const bool anybody = first < 0 && op->coll == COLLI_SENDRECV;
  coll_error record;
  search s;
  int rank = -1, root = -1;
  char text[COLLI_OP_TEXT];
  colli_op_text(op, text);
  if (begin_search(&s, comm) && !anybody)
    rank = find_root(&s);
  colli_comm_record(comm, &record, COLL_ERR_TIMEOUT, -1, op);
  record.channel = channel;
  record.step = step;
  if (rank >= 0) {
    root = describe_verdict(&s, &record, op, rank);
  } else {
    say(&record,
        "%s on \"%s\": rank %d (host %s) waits for anybody, and nobody has sent what it takes",
        text, comm->name, comm->rank, comm->host);
    say_end(comm, &record, op);
  }
  end_search(&s);
  colli_comm_fail_for(comm, &record, root);
}

void colli_blame_retract(coll_comm *comm, coll_request *op) {
  coll_error record;
  char text[COLLI_OP_TEXT];
  colli_comm_record(comm, &record, COLL_ERR_TIMEOUT, op->partner, op);
  say(&record,
      "no message for %s came to rank %d (host %s) within its limit of %d ms; it has been taken "
      "back, and the communicator \"%s\" stays usable; look at the sender, or give it more time",
      colli_op_text(op, text), comm->rank, comm->host, op->limit_ms, comm->name);
  colli_comm_refuse_op(comm, &record);
  colli_p2p_retract(&comm->p2p, op);
}
