/*
 * watchdog.c: a rank whose operation has not moved for a while tells all ranks which operation it
 * is in and for whom it waits. From this, every rank can see whether another rank made a different
 * call. Shortly before its deadline a rank asks all others where they wait: whoever says nothing
 * then is frozen or elsewhere, and blame.c finds out for whom all this waits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/call/tag.h"
#include "libcoll/comm/comm.h"
#include "libcoll/comm/notice_send.h"
#include "libcoll/failure/blame.h"
#include "libcoll/failure/failure.h"
#include "libcoll/failure/op_text.h"
#include "libcoll/failure/watchdog.h"
#include "libcoll/failure/witness.h"

#define INTERVAL_NS    (250 * COLLI_NS_PER_MS)
#define LONGEST        8  /* intervals between two reports */
#define LEFT_INTERVALS 4  /* how long to wait for a rank that has left */
#define INTERVAL_RANKS 32 /* with more it is longer: each report takes O(n^2) messages in all */

/* The watchdog interval: how long an operation stands still before this rank tells the others, and
 * tells them again. */
uint64_t colli_watchdog_interval_ns(const coll_comm *comm) {
  uint64_t interval = INTERVAL_NS;
  if (comm->nranks > INTERVAL_RANKS)
    interval = interval * (uint64_t)comm->nranks / INTERVAL_RANKS;
  return comm->watch.timeout_ns / 3 < interval ? comm->watch.timeout_ns / 3 : interval;
}

uint64_t colli_watchdog_next_ns(const coll_comm *comm, uint64_t still) {
  const uint64_t interval = colli_watchdog_interval_ns(comm);
  const uint64_t most = comm->watch.timeout_ns / 8 < LONGEST * interval ? comm->watch.timeout_ns / 8
                                                                        : LONGEST * interval;
  const uint64_t next = still < most ? still : most;
  return next > interval ? next : interval;
}

/* Whether an operation in flight waits for a rank. */
static bool waits_for(const coll_comm *comm, int rank) {
  int waits[COLLI_CTRL_MORE + 1];
  int count = colli_engine_all_waits(&comm->exec, waits, COLLI_CTRL_MORE + 1);
  for (int i = 0; i < count; i++)
    if (waits[i] == rank)
      return true;
  return false;
}

/*
 * A rank is no longer in this communicator. Messages that it sent before may arrive later than the
 * notice over a control link, so wait some time for them.
 */
void colli_watchdog_heard_absent(coll_comm *comm, int absent) {
  const coll_request *op = comm->exec.oldest;
  uint64_t grace_ns = LEFT_INTERVALS * colli_watchdog_interval_ns(comm);
  if (grace_ns > comm->watch.timeout_ns / 2)
    grace_ns = comm->watch.timeout_ns / 2;
  if (!op || absent < 0 || comm->failure.status != COLL_OK || comm->failure.suspended ||
      !waits_for(comm, absent) || op->moved || comm->watch.waited_ns - op->moved_at < grace_ns)
    return;
  coll_error record;
  char text[COLLI_OP_TEXT];
  colli_comm_record(comm, &record, COLL_ERR_PEER_LOST, absent, op);
  snprintf(record.message, sizeof(record.message),
           "rank %d (host %s, pid %d) has ended its communicator while rank %d (host %s) waits for "
           "it in %s; see its own error, or let it take part as long as the others",
           absent, record.peer_host, record.peer_pid, comm->rank, comm->host,
           colli_op_text(op, text));
  const int root = colli_blame_departed(comm, &record, false);
  colli_comm_fail_for(comm, &record, root);
}

/* Whether what this rank waits for here keeps it from coming elsewhere: a thread is in a call (the
 * simulator's driver is in none), or another part of the same call must come first. */
static bool is_inside(coll_comm *comm) {
  return atomic_load(&comm->entry.guard.inside) == COLLI_INSIDE_CALL || comm->world.pause ||
         comm->levels || comm->is_part;
}

/* Keeps what a rank says of itself. */
static void keep_report(colli_family *family, const colli_ctrl_msg *msg) {
  colli_report *report = colli_reports_get(family->reports, msg->origin, msg->uid);
  if (!report)
    return; /* then it counts as silent */
  report->heard_ns = family->world.now_ns(family->world.ctx);
  report->again_ns = msg->again_ms * COLLI_NS_PER_MS;
  report->inside = msg->inside != 0;
  report->idle = !*msg->error.message;
  memcpy(report->name, msg->name, sizeof(report->name));
  snprintf(report->text, sizeof(report->text), "%.*s", COLLI_REPORT_TEXT - 1, msg->error.message);
  report->nwaits = 0;
  for (int i = -1; i < msg->nmore && i < COLLI_CTRL_MORE; i++) {
    int peer = i < 0 ? msg->peer : msg->more[i];
    if (peer >= 0 && peer < family->nranks)
      report->waits[report->nwaits++] = peer;
  }
}

/* Tells all ranks that `op` does not move. Nobody else need answer for ranks that have said goodbye
 * to this one. */
void colli_watchdog_tell(coll_comm *comm, const coll_request *op, colli_tell how) {
  int waits[COLLI_CTRL_MORE + 1] = {-1};
  char text[COLLI_OP_TEXT];
  int nwaits = colli_engine_all_waits(&comm->exec, waits, COLLI_CTRL_MORE + 1);
  colli_ctrl_msg msg = {.kind = COLLI_CTRL_WAITING,
                        .peer = nwaits > 0 ? colli_comm_base_rank(comm, waits[0]) : -1,
                        .nmore = nwaits > 1 ? nwaits - 1 : 0,
                        .once = how == COLLI_TELL_FIRST,
                        .ask = how == COLLI_TELL_ASK,
                        .inside = is_inside(comm),
                        .again_ms = (uint32_t)(op->told_again / COLLI_NS_PER_MS + 1),
                        .sequence = op->sequence,
                        .since_ms =
                            (uint32_t)((comm->watch.waited_ns - op->moved_at) / COLLI_NS_PER_MS)};
  for (int i = 0; i < msg.nmore; i++)
    msg.more[i] = colli_comm_base_rank(comm, waits[i + 1]);
  memcpy(msg.signature, op->tag.word, sizeof(msg.signature));
  memcpy(msg.name, comm->name, sizeof(msg.name));
  colli_error_clear(&msg.error);
  snprintf(msg.error.message, sizeof(msg.error.message), "%s", colli_op_text(op, text));
  if (how != COLLI_TELL_FIRST) /* which does not pass frozen ranks, so it is no answer to all */
    comm->watch.told_ns = comm->world.now_ns(comm->world.ctx);
  colli_notice_send(comm->family, comm->uid, &msg);
  keep_report(comm->family, &msg); /* others may wait for this rank there */
  for (int i = 0; i < nwaits; i++)
    if (comm->failure.left[waits[i]])
      colli_watchdog_heard_absent(comm, waits[i]);
}

/* Adds the names of two calls' user-defined operations, as far as this rank knows them. */
static void add_names(const coll_comm *comm, char *text, size_t bytes, const coll_tag *mine,
                      const coll_tag *theirs) {
  const colli_plans *plans = &comm->calls.plans;
  const colli_user_op *a = colli_plans_user_op(plans, mine),
                      *b = colli_plans_user_op(plans, theirs);
  const colli_user_op *users[] = {a, a && b && a->number == b->number ? NULL : b};
  for (int i = 0; i < 2; i++) {
    const size_t used = strlen(text);
    if (users[i] && !users[i]->premul)
      snprintf(text + used, bytes - used, "; operation 0x%06x is \"%s\"", users[i]->number,
               users[i]->name);
  }
}

/* Whether data of a call moves by itself. */
static bool is_direct(const coll_tag *tag) {
  return colli_tag_get(tag, COLLI_TAG_ALGO) == COLLI_TAG_ALGO_DIRECT;
}

/* Whether two such calls are captured both or neither, and meet in the same way:
 * stream/direct_meet.h has these bits last. */
static bool same_form(const coll_tag *a, const coll_tag *b) {
  return ((colli_tag_get(a, COLLI_TAG_PASSES) ^ colli_tag_get(b, COLLI_TAG_PASSES)) & 3) == 0;
}

/* Says how two calls differ, in words. */
static void describe_mismatch(const coll_comm *comm, char *text, size_t bytes, const coll_tag *mine,
                              int peer, const coll_tag *theirs) {
  char a[COLLI_TAG_TEXT], b[COLLI_TAG_TEXT];
  if (colli_tag_same_call(mine, theirs)) {
    /* The tags of most v-forms have no counts. */
    const bool lengths =
        colli_tag_get(mine, COLLI_TAG_VARYING) &&
        colli_tag_get(mine, COLLI_TAG_ALGO) == colli_tag_get(theirs, COLLI_TAG_ALGO);
    const bool direct = is_direct(mine) || is_direct(theirs);
    const bool places = is_direct(mine) && is_direct(theirs) && same_form(mine, theirs);
    snprintf(text, bytes, "ranks %d (host %s) and %d (host %s) made the same call, %s, but %s",
             comm->rank, comm->host, peer, colli_rank_at(comm->table, peer).host,
             colli_tag_text(mine, a),
             places ? "not with buffers at the same place of the same registration (docs/gpu.md)"
             : direct
                 ? "not all of them in a stream, or not all of them captured; where GPUs share "
                   "memory (docs/gpu.md) all ranks must use the same form"
             : lengths ? "one sends a block that is longer or shorter than the other expects; "
                         "compare their counts and types"
                       : "chose different algorithms for it; set COLL_ALGO and COLL_SLOT_* to the "
                         "same on all ranks, and use a tuner (COLL_TUNER) that gives all ranks the "
                         "same answer");
    return;
  }
  snprintf(
      text, bytes,
      "rank %d (host %s) called %s as its operation %u, but rank %d (host %s, pid %d) called %s "
      "as its operation %u; all ranks must make the same calls in the same order",
      comm->rank, comm->host, colli_tag_text(mine, a), colli_tag_sequence(mine), peer,
      colli_rank_at(comm->table, peer).host, colli_rank_at(comm->table, peer).pid,
      colli_tag_text(theirs, b), colli_tag_sequence(theirs));
}

/* Fails the communicator because another rank's call does not match. */
void colli_watchdog_disagree(coll_comm *comm, const coll_tag *mine, int peer,
                             const coll_tag *theirs, const coll_request *op) {
  coll_error record;
  colli_comm_record(comm, &record, COLL_ERR_MISMATCH, peer, op);
  describe_mismatch(comm, record.message, sizeof(record.message), mine, peer, theirs);
  add_names(comm, record.message, sizeof(record.message), mine, theirs);
  colli_comm_fail(comm, &record);
}

/* Tells all ranks that this one is alive and waits for nobody. */
static void tell_idle(colli_family *family, uint64_t uid) {
  colli_ctrl_msg msg = {.kind = COLLI_CTRL_WAITING, .peer = -1};
  family->idle_ns = family->world.now_ns(family->world.ctx);
  colli_notice_send(family, uid, &msg);
}

/* A rank asks who waits where. What was said just now need not be said again. */
static void answer(colli_family *family, uint64_t uid) {
  const uint64_t now_ns = family->world.now_ns(family->world.ctx);
  bool waits = false;
  for (coll_comm *comm = family->members; comm; comm = comm->sibling) {
    const coll_request *op = comm->exec.oldest;
    if (!op || comm->failure.status != COLL_OK)
      continue;
    waits = true;
    if (now_ns - comm->watch.told_ns >= colli_watchdog_interval_ns(comm) / 4)
      colli_watchdog_tell(comm, op, COLLI_TELL_ALL);
  }
  if (!waits && now_ns - family->idle_ns >= INTERVAL_NS / 4)
    tell_idle(family, uid);
}

/* Another rank told where it waits. */
void colli_watchdog_heard(colli_family *family, coll_comm *comm, const colli_ctrl_msg *msg) {
  keep_report(family, msg);
  if (msg->ask) {
    answer(family, msg->uid);
    colli_witness_asked(family);
  } else {
    colli_witness_told(family, msg);
  }
  int origin = comm ? colli_comm_rank_of(comm, msg->origin) : -1;
  if (origin < 0)
    return;
  colli_wait_report *report = &comm->failure.wait_reports[origin];
  report->serial = msg->serial;
  report->sequence = msg->sequence;
  report->since_ms = msg->since_ms;
  report->heard_ns = comm->world.now_ns(comm->world.ctx);
  report->again_ns = msg->again_ms * COLLI_NS_PER_MS;
  const colli_flight *mine = colli_flight_of(&comm->exec.flights, msg->sequence);
  if (!mine || comm->failure.status != COLL_OK)
    return;
  coll_tag theirs;
  memcpy(theirs.word, msg->signature, sizeof(msg->signature));
  if (memcmp(&mine->tag, &theirs, sizeof(theirs)) != 0)
    colli_watchdog_disagree(comm, &mine->tag, origin, &theirs, comm->exec.oldest);
}

void colli_watchdog_ask(coll_comm *comm, const coll_request *op) {
  const uint64_t now_ns = comm->world.now_ns(comm->world.ctx);
  if (comm->watch.asked_ns && now_ns - comm->watch.asked_ns < 2 * colli_watchdog_interval_ns(comm))
    return;
  /* Those who said so just before do not say it again. */
  const uint64_t slack_ns = colli_watchdog_interval_ns(comm) / 4;
  comm->watch.asked_ns = now_ns;
  comm->watch.fresh_ns = now_ns > slack_ns ? now_ns - slack_ns : 0;
  colli_watchdog_tell(comm, op, COLLI_TELL_ASK);
  answer(comm->family, comm->uid);
  colli_witness_asked(comm->family);
}

bool colli_watchdog_has_answers(const coll_comm *comm) {
  const uint64_t now_ns = comm->world.now_ns(comm->world.ctx);
  return comm->watch.asked_ns &&
         now_ns - comm->watch.asked_ns >= colli_watchdog_interval_ns(comm) / 2;
}
