/*
 * watchdog.c: finds the rank to blame when nothing moves. A rank whose operation has not moved for
 * a while tells all ranks which operation it is in and for whom it waits. From this, every rank can
 * see whether another rank made a different call and, at the deadline, which rank has not come.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/call/tag.h"
#include "libcoll/comm/comm.h"
#include "libcoll/comm/notice_send.h"
#include "libcoll/failure/answer.h"
#include "libcoll/failure/failure.h"
#include "libcoll/failure/op_text.h"
#include "libcoll/failure/watchdog.h"

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
 * A rank is no longer in this communicator. If there is a connection, messages that it sent before
 * may still arrive, so a rank that has left altogether gets some time; one that reports its own
 * absence gets none.
 */
void colli_watchdog_heard_absent(coll_comm *comm, int absent, bool by_itself) {
  const coll_request *op = comm->exec.oldest;
  if (!op || absent < 0 || comm->failure.status != COLL_OK || comm->failure.suspended ||
      !waits_for(comm, absent))
    return;
  if (!by_itself && (op->moved || comm->watch.waited_ns - op->moved_at <
                                      LEFT_INTERVALS * colli_watchdog_interval_ns(comm)))
    return;
  coll_error record;
  char text[COLLI_OP_TEXT];
  colli_comm_record(comm, &record, COLL_ERR_PEER_LOST, absent, op);
  snprintf(record.message, sizeof(record.message),
           "rank %d (host %s, pid %d) has ended its communicator while rank %d (host %s) waits for "
           "it in %s; see its own error, or let it take part as long as the others",
           absent, record.peer_host, record.peer_pid, comm->rank, comm->host,
           colli_op_text(op, text));
  colli_comm_fail(comm, &record);
}

/* Tells all ranks that `op` does not move. Nobody else need answer for ranks that have said goodbye
 * to this one. */
void colli_watchdog_tell(coll_comm *comm, const coll_request *op, bool first) {
  int waits[COLLI_CTRL_MORE + 1] = {-1};
  int nwaits = colli_engine_all_waits(&comm->exec, waits, COLLI_CTRL_MORE + 1);
  colli_ctrl_msg msg = {.kind = COLLI_CTRL_WAITING,
                        .peer = nwaits > 0 ? colli_comm_base_rank(comm, waits[0]) : -1,
                        .nmore = nwaits > 1 ? nwaits - 1 : 0,
                        .once = first,
                        .again_ms = (uint32_t)(op->told_again / COLLI_NS_PER_MS + 1),
                        .sequence = op->sequence,
                        .since_ms =
                            (uint32_t)((comm->watch.waited_ns - op->moved_at) / COLLI_NS_PER_MS)};
  for (int i = 0; i < msg.nmore; i++)
    msg.more[i] = colli_comm_base_rank(comm, waits[i + 1]);
  memcpy(msg.signature, op->tag.word, sizeof(msg.signature));
  colli_notice_send(comm->family, comm->uid, &msg);
  for (int i = 0; i < nwaits; i++)
    if (comm->failure.left[waits[i]])
      colli_watchdog_heard_absent(comm, waits[i], false);
}

/* Says how two calls differ, in words. */
static void describe_mismatch(const coll_comm *comm, char *text, size_t bytes, const coll_tag *mine,
                              int peer, const coll_tag *theirs) {
  char a[COLLI_TAG_TEXT], b[COLLI_TAG_TEXT];
  if (colli_tag_same_call(mine, theirs)) {
    snprintf(text, bytes,
             "ranks %d (host %s) and %d (host %s) made the same call, %s, but chose different "
             "algorithms for it; set COLL_ALGO and COLL_SLOT_* to the same on all ranks, and use a "
             "tuner (COLL_TUNER) that gives all ranks the same answer",
             comm->rank, comm->host, peer, comm->table[peer].host, colli_tag_text(mine, a));
    return;
  }
  snprintf(
      text, bytes,
      "rank %d (host %s) called %s as its operation %u, but rank %d (host %s, pid %d) called %s "
      "as its operation %u; all ranks must make the same calls in the same order",
      comm->rank, comm->host, colli_tag_text(mine, a), colli_tag_sequence(mine), peer,
      comm->table[peer].host, comm->table[peer].pid, colli_tag_text(theirs, b),
      colli_tag_sequence(theirs));
}

/* Fails the communicator because another rank's call does not match. */
void colli_watchdog_disagree(coll_comm *comm, const coll_tag *mine, int peer,
                             const coll_tag *theirs, const coll_request *op) {
  coll_error record;
  colli_comm_record(comm, &record, COLL_ERR_MISMATCH, peer, op);
  describe_mismatch(comm, record.message, sizeof(record.message), mine, peer, theirs);
  colli_comm_fail(comm, &record);
}

/* Keeps what another rank says of itself. */
static void keep_report(coll_comm *comm, colli_wait_report *report, const colli_ctrl_msg *msg) {
  report->serial = msg->serial;
  report->sequence = msg->sequence;
  report->since_ms = msg->since_ms;
  report->heard_ns = comm->world.now_ns(comm->world.ctx);
  report->again_ns = msg->again_ms * COLLI_NS_PER_MS;
  memcpy(report->tag.word, msg->signature, sizeof(msg->signature));
  report->nwaits = 0;
  for (int i = -1; i < msg->nmore && i < COLLI_CTRL_MORE; i++) {
    int peer = i < 0 ? msg->peer : msg->more[i];
    peer = peer >= 0 ? colli_comm_rank_of(comm, peer) : -1;
    if (peer >= 0)
      report->waits[report->nwaits++] = peer;
  }
}

/* Another rank told where it waits. */
void colli_watchdog_heard(coll_comm *comm, const colli_ctrl_msg *msg) {
  int origin = colli_comm_rank_of(comm, msg->origin);
  if (origin < 0)
    return;
  colli_wait_report *report = &comm->failure.wait_reports[origin];
  keep_report(comm, report, msg);
  const colli_flight *mine = colli_flight_of(&comm->exec.flights, msg->sequence);
  if (!mine || comm->failure.status != COLL_OK)
    return;
  if (memcmp(&mine->tag, &report->tag, sizeof(mine->tag)) != 0)
    colli_watchdog_disagree(comm, &mine->tag, origin, &report->tag, comm->exec.oldest);
}

/*
 * Follows "waits for" from rank to rank, nearest first, to one that has not reported that it waits.
 * If all have, returns the rank for which `op` waits.
 */
static int find_culprit(const coll_comm *comm, int first) {
  int own[COLLI_CTRL_MORE + 1];
  int count = colli_engine_all_waits(&comm->exec, own, COLLI_CTRL_MORE + 1);
  int *queue = malloc((size_t)comm->nranks * sizeof(*queue));
  bool *seen = calloc((size_t)comm->nranks, sizeof(*seen));
  int culprit = first >= 0 ? first : count > 0 ? own[0] : -1, head = 0, tail = 0;
  const int *next = own;
  while (queue && seen) {
    for (int i = 0; i < count; i++)
      if (next[i] != comm->rank && !seen[next[i]]) {
        seen[next[i]] = true;
        queue[tail++] = next[i];
      }
    if (head == tail)
      break;
    int rank = queue[head++];
    if (!colli_reports_waiting(comm, rank)) {
      culprit = rank;
      break;
    }
    next = comm->failure.wait_reports[rank].waits;
    count = comm->failure.wait_reports[rank].nwaits;
  }
  free(queue);
  free(seen);
  return culprit;
}

/* Fails the communicator because `op` did not move for the whole timeout. */
void colli_watchdog_timed_out(coll_comm *comm, const coll_request *op) {
  int channel, step;
  int first = colli_engine_waits_for(op, &channel, &step);
  bool anybody = first < 0 && op->coll == COLLI_SENDRECV;
  int peer = anybody ? -1 : find_culprit(comm, first);
  coll_error record;
  colli_comm_record(comm, &record, COLL_ERR_TIMEOUT, peer, op);
  record.channel = channel;
  record.step = step;
  char text[COLLI_OP_TEXT];
  colli_op_text(op, text);
  unsigned long long waited_ms = comm->watch.timeout_ns / COLLI_NS_PER_MS;
  if (peer < 0) {
    snprintf(record.message, sizeof(record.message),
             "%s, did not move for %llu ms on rank %d (host %s): it waits for anybody, and nobody "
             "has sent what it takes; look at the ranks that should have, or raise COLL_TIMEOUT_MS",
             text, waited_ms, comm->rank, comm->host);
    colli_comm_fail(comm, &record);
    return;
  }
  const bool waits = colli_reports_waiting(comm, peer);
  if (!waits && op->coll != COLLI_SENDRECV) {
    colli_answer_text(comm, op, peer, record.message, sizeof(record.message));
    colli_comm_fail(comm, &record);
    return;
  }
  const char *verdict = waits
                            ? ", which waits as well"
                            : ", which has not come to this operation, or is frozen, or cannot be "
                              "reached";
  snprintf(record.message, sizeof(record.message),
           "%s, did not move for %llu ms on rank %d (host %s): waiting for rank %d (host %s, pid "
           "%d)%s; look at that process, or raise COLL_TIMEOUT_MS",
           text, waited_ms, comm->rank, comm->host, peer, record.peer_host, record.peer_pid,
           verdict);
  colli_comm_fail(comm, &record);
}
