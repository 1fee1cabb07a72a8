/*
 * notice.c: handles messages from the control links. Each is handled once, by the origin's serial
 * number, and forwarded to all neighbours, so it reaches every rank of the family, even those
 * outside the communicator that it names. The loss of a rank revokes all communicators that contain
 * it; every other message concerns only the one that it names.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/comm/comm.h"
#include "libcoll/comm/notice_send.h"
#include "libcoll/failure/answer.h"
#include "libcoll/failure/blame.h"
#include "libcoll/failure/failure.h"
#include "libcoll/failure/knock.h"
#include "libcoll/failure/notice.h"
#include "libcoll/failure/watchdog.h"
#include "libcoll/failure/witness.h"

/* The communicator with that name, or NULL. */
static coll_comm *find_member(const colli_family *family, uint64_t uid) {
  coll_comm *comm = family->members;
  while (comm && comm->uid != uid)
    comm = comm->sibling;
  return comm;
}

/* ---- a rank is lost -------------------------------------------------------------------------- */

/* Writes why a rank counts as lost, and what to do. `link`: who is at the other end of its link. */
static void describe_loss(coll_error *record, const char *link, bool silent) {
  const char *why = record->sys_errno ? strerror(record->sys_errno) : "";
  if (record->status == COLL_ERR_AUTH)
    snprintf(record->message, sizeof(record->message),
             "a message of rank %d (host %s, pid %d) was altered or injected on its way over the "
             "control link to %s; look who else has access to the network between them",
             record->peer, record->peer_host, record->peer_pid, link);
  else if (silent)
    snprintf(record->message, sizeof(record->message),
             "rank %d (host %s, pid %d) is silent: nothing comes over its control link to %s (%s); "
             "look whether its host is down or the network between them is cut",
             record->peer, record->peer_host, record->peer_pid, link, why);
  else
    snprintf(record->message, sizeof(record->message),
             "rank %d (host %s, pid %d) is lost: its control link to %s closed without a "
             "goodbye%s%s; look for what ended that process (signal, memory limit, crash)",
             record->peer, record->peer_host, record->peer_pid, link, *why ? ": " : "", why);
}

/* The error record of a lost rank for the base. */
static void lost_record(const colli_family *family, coll_error *record, int dead, int sys_errno,
                        bool silent) {
  const coll_comm *base = find_member(family, 0);
  colli_error_clear(record);
  record->status = sys_errno == EBADMSG ? COLL_ERR_AUTH : COLL_ERR_PEER_LOST;
  record->rank = family->rank;
  record->peer = dead;
  const colli_rank_info info = colli_rank_at(family->table, dead);
  record->peer_pid = info.pid;
  record->sys_errno = sys_errno;
  snprintf(record->host, sizeof(record->host), "%s", family->host);
  snprintf(record->peer_host, sizeof(record->peer_host), "%s", info.host);
  if (base && base->exec.oldest)
    colli_comm_record_operation(record, base->exec.oldest);
  char link[32];
  snprintf(link, sizeof(link), "rank %d", family->rank);
  describe_loss(record, link, silent);
}

/* The same for a communicator that was split. */
static void lost_record_of(const coll_comm *comm, coll_error *record, const colli_ctrl_msg *msg) {
  int peer = colli_comm_rank_of(comm, msg->peer), finder = msg->origin;
  const bool altered = msg->error.status == COLL_ERR_AUTH;
  colli_comm_record(comm, record, altered ? COLL_ERR_AUTH : COLL_ERR_PEER_LOST, peer,
                    comm->exec.oldest);
  if (colli_comm_rank_of(comm, finder) >= 0)
    record->rank = colli_comm_rank_of(comm, finder);
  record->sys_errno = msg->error.sys_errno;
  snprintf(record->host, sizeof(record->host), "%s",
           colli_rank_at(comm->family->table, finder).host);
  char link[96];
  snprintf(link, sizeof(link), "a process on host %s", record->host);
  describe_loss(record, link, msg->silent);
}

/* Revokes a communicator if a lost rank is one of its ranks. */
static void note_lost(coll_comm *comm, const colli_ctrl_msg *msg) {
  int rank = colli_comm_rank_of(comm, msg->peer);
  bool *known = msg->silent ? comm->failure.silent : comm->failure.lost;
  if (rank < 0 || known[rank])
    return;
  known[rank] = true;
  coll_error record = msg->error;
  if (comm->uid != 0)
    lost_record_of(comm, &record, msg);
  const int root = colli_blame_departed(comm, &record, true);
  colli_comm_note_failure(comm, &record, root);
}

/* Revokes all communicators that contain a lost rank. */
static void note_lost_everywhere(colli_family *family, const colli_ctrl_msg *msg) {
  (msg->silent ? family->silent : family->lost)[msg->peer] = true;
  for (coll_comm *comm = family->members; comm; comm = comm->sibling)
    note_lost(comm, msg);
}

/* A control link closed without a goodbye, so the neighbour's process is gone. Or it is silent, and
 * the process may be alive. */
static void neighbour_lost(colli_family *family, int peer, int sys_errno, bool silent) {
  if (family->lost[peer] || (silent && family->silent[peer]))
    return;
  colli_ctrl_msg msg = {.kind = COLLI_CTRL_FAILED, .peer = peer, .silent = silent};
  lost_record(family, &msg.error, peer, sys_errno, silent);
  colli_notice_send(family, 0, &msg);
  note_lost_everywhere(family, &msg);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Keeps a failure for a communicator that this rank may be creating. */
static void keep_early(colli_family *family, const colli_ctrl_msg *msg) {
  if (family->making == 0)
    return;
  if (!family->early)
    family->early = calloc(COLLI_EARLY, sizeof(*family->early));
  if (family->early)
    family->early[family->nearly++ % COLLI_EARLY] = *msg;
}

/* Who is to blame, as a message says. */
static int root_of(const colli_family *family, const colli_ctrl_msg *msg) {
  return msg->root >= 0 && msg->root < family->nranks ? msg->root : -1;
}

/* Whether a message tells a failure. */
static bool is_failure(const coll_error *record) {
  return record->status > COLL_IN_PROGRESS && record->status <= COLL_ERR_INTERNAL;
}

/* Adopts a failure that another rank found. */
static void heard_failed(colli_family *family, colli_ctrl_msg *msg) {
  coll_error *record = &msg->error;
  if (!is_failure(record))
    return;
  record->size = sizeof(*record);
  if (msg->peer >= 0) {
    note_lost_everywhere(family, msg);
    return;
  }
  coll_comm *comm = find_member(family, msg->uid);
  if (comm)
    colli_comm_note_failure(comm, record, root_of(family, msg));
  else
    keep_early(family, msg);
}

/* A failure has reached the caller of another rank. */
static void heard_affected(colli_family *family, const colli_ctrl_msg *msg) {
  if (!is_failure(&msg->error) || root_of(family, msg) < 0)
    return;
  colli_reports_note_affected(family->reports, msg);
  colli_comm_note_cause(family, msg->root, msg->name, &msg->error);
}

/* Tells a rank that the one for which it waits is not in the communicator. */
static void tell_absent(colli_family *family, const colli_ctrl_msg *waiting, int absent) {
  colli_ctrl_msg msg = {
      .kind = COLLI_CTRL_ABSENT, .peer = waiting->origin, .nmore = 1, .more = {absent}};
  colli_notice_send(family, waiting->uid, &msg);
}

/*
 * Another rank waits in an operation. If it waits for this rank, which has destroyed that
 * communicator or could not create it, this rank answers, because the other may never have had a
 * connection whose end it could see. For a rank that has left altogether, those to which it said
 * goodbye answer.
 */
static void heard_waiting(colli_family *family, const colli_ctrl_msg *msg) {
  coll_comm *comm = find_member(family, msg->uid);
  bool mine = !comm && family->making == 0;
  colli_watchdog_heard(family, comm, msg);
  for (int i = -1; i < msg->nmore && i < COLLI_CTRL_MORE; i++) {
    int rank = i < 0 ? msg->peer : msg->more[i];
    if (comm && rank == family->rank)
      colli_answer_send(comm, msg, colli_watchdog_interval_ns(comm) / 2);
    if (rank >= 0 && rank < family->nranks &&
        (rank == family->rank ? mine : family->left[rank] && !family->lost[rank]))
      tell_absent(family, msg, rank);
  }
}

/* Another rank reports that a rank for which this one waits is not in the communicator. */
static void heard_absent(colli_family *family, const colli_ctrl_msg *msg) {
  coll_comm *comm = find_member(family, msg->uid);
  int absent = msg->nmore == 1 ? msg->more[0] : -1;
  if (msg->peer == family->rank && comm && absent >= 0 && absent < family->nranks)
    colli_watchdog_heard_absent(comm, colli_comm_rank_of(comm, absent));
}

/* A rank for which others wait tells what it did last, or one of its host has seen it. */
static void heard_answer(colli_family *family, const colli_ctrl_msg *msg) {
  coll_comm *comm = find_member(family, msg->uid);
  if (msg->peer >= 0)
    colli_witness_heard(family, msg);
  else if (comm)
    colli_answer_heard(comm, msg);
}

/* A shrink or agreement was aborted. */
static void heard_aborted(colli_family *family, const colli_ctrl_msg *msg) {
  coll_comm *comm = find_member(family, msg->uid);
  const bool known = comm && msg->peer >= 0 && msg->peer < family->nranks;
  const int aborter = known ? colli_comm_rank_of(comm, msg->peer) : -1;
  if (aborter < 0 || msg->sequence <= comm->shrink.aborted)
    return;
  comm->shrink.aborted = msg->sequence;
  comm->shrink.aborter = aborter;
}

/* A rank ran short in a shrink or agreement. */
static void heard_short(colli_family *family, const colli_ctrl_msg *msg) {
  coll_comm *comm = find_member(family, msg->uid);
  const bool known = comm && msg->peer >= 0 && msg->peer < family->nranks;
  const int rank = known ? colli_comm_rank_of(comm, msg->peer) : -1;
  if (rank >= 0 && msg->error.rank == rank && msg->error.status == COLL_ERR_SYSTEM)
    colli_shrink_note_short(&comm->shrink, msg->sequence, &msg->error);
}

/* A rank leaves all its communicators as planned. */
static void heard_goodbye(colli_family *family, int from) {
  family->left[from] = true;
  for (coll_comm *comm = family->members; comm; comm = comm->sibling)
    if (colli_comm_rank_of(comm, from) >= 0)
      comm->failure.left[colli_comm_rank_of(comm, from)] = true;
}

/* Handles a notice, unless it already arrived over another link. */
static void take_notice(colli_family *family, int from, colli_ctrl_msg *msg) {
  if (msg->kind == COLLI_CTRL_GOODBYE) {
    heard_goodbye(family, from);
    return;
  }
  if (msg->kind == COLLI_CTRL_KNOCK) {
    colli_knock_heard(family, msg);
    return;
  }
  if (msg->origin == family->rank || msg->serial <= family->heard[msg->origin])
    return;
  family->heard[msg->origin] = msg->serial;
  msg->name[sizeof(msg->name) - 1] = 0;
  colli_notice_forward(family, msg, from);
  if (msg->kind == COLLI_CTRL_FAILED)
    heard_failed(family, msg);
  else if (msg->kind == COLLI_CTRL_WAITING)
    heard_waiting(family, msg);
  else if (msg->kind == COLLI_CTRL_ABSENT)
    heard_absent(family, msg);
  else if (msg->kind == COLLI_CTRL_ANSWER)
    heard_answer(family, msg);
  else if (msg->kind == COLLI_CTRL_AFFECTED)
    heard_affected(family, msg);
  else if (msg->kind == COLLI_CTRL_ABORTED)
    heard_aborted(family, msg);
  else if (msg->kind == COLLI_CTRL_SHORT)
    heard_short(family, msg);
}

/* Fails a communicator on which coll_comm_abort() was called. */
static void check_abort(coll_comm *comm) {
  if (!atomic_load(&comm->failure.aborts) || comm->failure.status != COLL_OK)
    return;
  coll_error record;
  colli_comm_record(comm, &record, COLL_ERR_ABORTED, comm->rank, comm->exec.oldest);
  snprintf(record.message, sizeof(record.message),
           "coll_comm_abort() was called on rank %d (host %s, pid %d)", comm->rank, comm->host,
           record.peer_pid);
  colli_comm_fail_for(comm, &record, comm->family->rank);
}

/* Handles all notices that have arrived, what services of other hosts have shown, closed control
 * links, failures of parts, and coll_comm_abort(). */
void colli_notice_poll(colli_family *family) {
  for (coll_comm *comm = family->members; comm; comm = comm->sibling) {
    check_abort(comm);
    colli_comm_check_levels(comm);
  }
  colli_witness_take(family);
  int peer = -1, sys_errno = 0;
  colli_ctrl_msg msg;
  while (family->ctrl) {
    switch (colli_ctrl_poll(family->ctrl, &peer, &msg, &sys_errno)) {
    case COLLI_CTRL_NOTHING:
      return;
    case COLLI_CTRL_CLOSED:
      neighbour_lost(family, peer, sys_errno, false);
      break;
    case COLLI_CTRL_SILENT:
      neighbour_lost(family, peer, sys_errno, true);
      break;
    case COLLI_CTRL_MESSAGE:
      take_notice(family, peer, &msg);
      break;
    }
  }
}

/* Revokes a new communicator if it failed before it was complete. */
void colli_notice_catch_up(colli_family *family, coll_comm *comm) {
  for (int rank = 0; rank < comm->nranks; rank++) {
    int base_rank = colli_comm_base_rank(comm, rank);
    comm->failure.left[rank] = family->left[base_rank];
    if (family->lost[base_rank] || family->silent[base_rank])
      note_lost(comm, &(colli_ctrl_msg){.origin = family->rank,
                                        .peer = base_rank,
                                        .silent = !family->lost[base_rank]});
  }
  for (int i = 0; i < COLLI_EARLY && i < family->nearly; i++)
    if (family->early[i].uid == comm->uid)
      colli_comm_note_failure(comm, &family->early[i].error, root_of(family, &family->early[i]));
}
