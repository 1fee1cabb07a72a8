/* answer.c: a rank that hears that others wait for it tells them what it did last. */
#include "libcoll/failure/answer.h"

#include <stdio.h>
#include <string.h>

#include "libcoll/base/line.h"
#include "libcoll/call/tag.h"
#include "libcoll/comm/notice_send.h"
#include "libcoll/failure/witness.h"

bool colli_reports_waiting(const coll_comm *comm, int rank) {
  const colli_wait_report *report = &comm->failure.wait_reports[rank];
  uint64_t now = comm->world.now_ns(comm->world.ctx);
  return report->serial && now - report->heard_ns < 5 * report->again_ns / 2;
}

/* ---- answers --------------------------------------------------------------------------------- */

void colli_answer_send(coll_comm *comm, const colli_ctrl_msg *waiting, uint64_t interval_ns) {
  const colli_flights *flights = &comm->exec.flights;
  uint64_t now = comm->world.now_ns(comm->world.ctx);
  if (waiting->sequence == 0 ||
      waiting->sequence <= flights->rings->last || /* it reports that itself */
      (comm->failure.answered_ns && now - comm->failure.answered_ns < interval_ns))
    return;
  comm->failure.answered_ns = now;
  colli_ctrl_msg msg = {.kind = COLLI_CTRL_ANSWER, .peer = -1, .sequence = flights->rings->last};
  const colli_flight *last = colli_flight_last_ended(flights);
  if (last) {
    memcpy(msg.signature, last->tag.word, sizeof(msg.signature));
    uint64_t age_ms = colli_flight_age_ns(flights, last->ended) / COLLI_NS_PER_MS;
    msg.since_ms = age_ms < UINT32_MAX ? (uint32_t)age_ms : UINT32_MAX;
    msg.ended = 1;
  }
  colli_notice_send(comm->family, comm->uid, &msg);
}

void colli_answer_heard(coll_comm *comm, const colli_ctrl_msg *msg) {
  int origin = colli_comm_rank_of(comm, msg->origin);
  if (origin < 0)
    return;
  colli_answer *answer = &comm->failure.wait_reports[origin].answer;
  answer->heard_ns = comm->world.now_ns(comm->world.ctx);
  answer->entered = msg->sequence;
  answer->ended = msg->ended;
  answer->since_ms = msg->since_ms;
  memcpy(answer->tag.word, msg->signature, sizeof(msg->signature));
}

/* ---- the message ----------------------------------------------------------------------------- */

/* How long a rank has waited in `op`, in ms; -1 if it is not known to. */
static long long waited_ms(const coll_comm *comm, const coll_request *op, int rank) {
  const colli_wait_report *report = &comm->failure.wait_reports[rank];
  if (rank == comm->rank)
    return (long long)((comm->watch.waited_ns - op->moved_at) / COLLI_NS_PER_MS);
  if (!colli_reports_waiting(comm, rank) || report->sequence != op->sequence)
    return -1;
  uint64_t since = comm->world.now_ns(comm->world.ctx) - report->heard_ns;
  return (long long)(report->since_ms + since / COLLI_NS_PER_MS);
}

/* Adds "ranks 0-2, 5 have waited for 30.0 s". */
static void add_waiting(colli_line *l, const coll_comm *comm, const coll_request *op) {
  long long longest = 0;
  int count = 0, first = -1;
  colli_line ranks = {(char[128]){0}, 128, 0};
  for (int rank = 0; rank <= comm->nranks; rank++) {
    long long ms = rank < comm->nranks ? waited_ms(comm, op, rank) : -1;
    longest = ms > longest ? ms : longest;
    count += ms >= 0;
    if (ms >= 0 && first < 0)
      first = rank;
    if (ms >= 0 || first < 0)
      continue;
    colli_line_add(&ranks, "%s%d", ranks.used ? ", " : "", first);
    if (rank - 1 > first)
      colli_line_add(&ranks, "%s%d", rank - 1 > first + 1 ? "-" : ", ", rank - 1);
    first = -1;
  }
  colli_line_add(l, "rank%s %s %s waited for %.1f s", count > 1 ? "s" : "", ranks.text,
                 count > 1 ? "have" : "has", (double)longest / 1e3);
}

/* Adds the operation that ended last, and when. */
static void add_last(colli_line *l, const coll_tag *tag, uint64_t age_ms) {
  char text[COLLI_TAG_TEXT];
  colli_line_add(l, " last was %s, finished %.1f s ago", colli_tag_brief(tag, text),
                 (double)age_ms / 1e3);
}

/* Milliseconds since a moment. */
static uint64_t ms_since(const coll_comm *comm, uint64_t ns) {
  return (comm->world.now_ns(comm->world.ctx) - ns) / COLLI_NS_PER_MS;
}

/* Adds what another rank has seen of one that does not answer. */
static void add_seen(colli_line *l, const coll_comm *comm, const colli_seen *seen) {
  const char *state = colli_witness_state_text(seen);
  if (seen->ended) {
    colli_line_add(l, "; its");
    add_last(l, &seen->tag, seen->since_ms + ms_since(comm, seen->at_ns));
  } else {
    colli_line_add(l, "; it has finished none before");
  }
  if (state)
    colli_line_add(l, "; %s", state);
}

void colli_answer_seen_text(const coll_comm *comm, int base_rank, uint64_t uid, char *text,
                            size_t bytes) {
  const colli_seen *seen = colli_witness_of(comm, base_rank, uid);
  colli_line l = {text, bytes, 0};
  *text = 0;
  if (seen)
    add_seen(&l, comm, seen);
}

/* What is known of the late rank: at most one of the two. */
typedef struct known {
  const colli_answer *answer; /* its own */
  const colli_seen *seen;     /* from a rank of its host */
} known;

/* What it said itself counts, unless it did not answer the last question (it is asked at least that
 * often) and somebody has seen it since. */
static known find_known(const coll_comm *comm, const coll_request *op, int peer) {
  const colli_answer *answer = &comm->failure.wait_reports[peer].answer;
  const uint64_t interval_ns = 4 * (comm->watch.asked_ns - comm->watch.fresh_ns);
  const bool late = answer->heard_ns + interval_ns < comm->watch.asked_ns;
  known k = {.seen = colli_witness_of(comm, colli_comm_base_rank(comm, peer), comm->uid)};
  if (answer->heard_ns && answer->entered < op->sequence && !(late && k.seen))
    k = (known){.answer = answer};
  return k;
}

/* Adds that it has not entered the operation, as far as this is known. */
static void add_missing(colli_line *l, const coll_comm *comm, const coll_request *op, int peer,
                        known k) {
  char call[COLLI_TAG_TEXT];
  const bool inside = k.seen && k.seen->entered >= op->sequence;
  const uint64_t quiet_ms = k.answer ? ms_since(comm, k.answer->heard_ns) : 0;
  const colli_rank_info info = colli_rank_at(comm->table, peer);
  colli_line_add(l, "rank %d (host %s, pid %d) has %sentered %s on communicator \"%s\"", peer,
                 info.host, info.pid, inside ? "" : "not ", colli_tag_brief(&op->tag, call),
                 comm->name);
  if (inside)
    colli_line_add(l, ", but does not move on in it");
  else if (!k.answer && !k.seen)
    colli_line_add(l, ", or is frozen, or cannot be reached: it does not answer");
  else if (quiet_ms >= comm->watch.timeout_ns / 2 / COLLI_NS_PER_MS)
    colli_line_add(l, ", and has not answered for %.1f s", (double)quiet_ms / 1e3);
  colli_line_add(l, "; ");
}

void colli_answer_text(const coll_comm *comm, const coll_request *op, int peer, char *text,
                       size_t bytes) {
  colli_line l = {text, bytes, 0};
  const known k = find_known(comm, op, peer);
  const colli_flight *mine = colli_flight_last_ended(&comm->exec.flights);
  add_missing(&l, comm, op, peer, k);
  add_waiting(&l, comm, op);
  if (k.answer && k.answer->ended) {
    colli_line_add(&l, "; its");
    add_last(&l, &k.answer->tag, k.answer->since_ms + ms_since(comm, k.answer->heard_ns));
  } else if (k.answer) {
    colli_line_add(&l, "; it has finished none before");
  } else if (k.seen) {
    add_seen(&l, comm, k.seen);
  } else if (mine) {
    colli_line_add(&l, "; rank %d's", comm->rank);
    add_last(&l, &mine->tag,
             colli_flight_age_ns(&comm->exec.flights, mine->ended) / COLLI_NS_PER_MS);
  }
  if (colli_op_limited(op))
    colli_line_add(&l,
                   "; the limit of %d ms has passed; look at that process, or give it more time",
                   op->limit_ms);
  else
    colli_line_add(&l, "; look at that process, or raise COLL_TIMEOUT_MS");
}
