/*
 * failure.c: the first failure of a communicator. It is recorded, revokes the communicator, ends
 * all operations, and is sent to all ranks over the control links (notice.c), which do the same.
 */
#include "libcoll/failure/failure.h"

#include <stdio.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/comm/completion.h"
#include "libcoll/comm/notice_send.h"
#include "libcoll/exec/connect.h"
#include "libcoll/exec/event.h"

#define CAUSE_TIMEOUTS 4 /* a failure explains what follows for so many timeouts */

/* Fills in which operation a record is about. */
void colli_comm_record_operation(coll_error *record, const coll_request *op) {
  /* Not op->coll, which is a barrier where ranks only meet. */
  const colli_coll coll = (colli_coll)colli_tag_get(&op->tag, COLLI_TAG_COLL);
  const char *name = coll != COLLI_SENDRECV ? colli_coll_name(coll) : op->name;
  record->sequence = op->sequence;
  snprintf(record->operation, sizeof(record->operation), "%s", name);
}

/* A record of this rank, with operation and peer filled in. */
void colli_comm_record(const coll_comm *comm, coll_error *record, coll_status status, int peer,
                       const coll_request *op) {
  colli_error_clear(record);
  record->status = status;
  record->rank = comm->rank;
  snprintf(record->host, sizeof(record->host), "%s", comm->host);
  if (peer >= 0 && peer < comm->nranks && comm->table) {
    const colli_rank_info info = colli_rank_at(comm->table, peer);
    record->peer = peer;
    record->peer_pid = info.pid;
    snprintf(record->peer_host, sizeof(record->peer_host), "%s", info.host);
  }
  if (op)
    colli_comm_record_operation(record, op);
}

uint64_t colli_cause_window_ns(const colli_family *family) {
  return CAUSE_TIMEOUTS * (uint64_t)family->params.number[COLLI_PARAM_TIMEOUT_MS] * COLLI_NS_PER_MS;
}

/* Keeps who caused a failure of some communicator of the family. A program may abort one and go on
 * with others, so what follows there is presumed to have other causes. */
void colli_comm_note_cause(colli_family *family, int root, const char *name,
                           const coll_error *record) {
  if (root < 0 || !family->reports || record->status == COLL_ERR_ABORTED)
    return;
  const uint64_t now_ns = family->world.now_ns(family->world.ctx);
  const uint64_t window_ns = colli_cause_window_ns(family);
  colli_reports_note_recent(family->reports, root, name, record, now_ns,
                            now_ns > window_ns ? now_ns - window_ns : 0);
}

/* Tells the family that this rank's caller knows of the failure, unless it has only this
 * communicator. If it is making another one, others may have theirs, and wait there for it. */
void colli_comm_admit(coll_comm *comm) {
  const colli_family *family = comm->family;
  const bool only = family->members == comm && !comm->sibling && family->making == 0;
  if (comm->failure.admitted || comm->failure.root < 0 || only)
    return;
  comm->failure.admitted = true;
  colli_ctrl_msg msg = {.kind = COLLI_CTRL_AFFECTED,
                        .peer = -1,
                        .root = comm->failure.root,
                        .error = comm->failure.error};
  memcpy(msg.name, comm->name, sizeof(msg.name));
  colli_notice_send(comm->family, comm->uid, &msg);
}

/* Ends the parts of a communicator with levels. The other ranks' end with their communicators. */
static void fail_parts(const colli_levels *levels, const coll_error *record, int root) {
  colli_comm_note_failure(levels->within, record, root);
  colli_comm_note_failure(levels->across, record, root);
}

/* Revokes the communicator for the reason in `record`, only on this rank. */
void colli_comm_note_failure(coll_comm *comm, const coll_error *record, int root) {
  if (comm->failure.status != COLL_OK)
    return;
  COLLI_ASSERT_RANK(record->status != COLL_OK && record->status != COLL_IN_PROGRESS, comm->rank);
  comm->failure.error = *record;
  comm->failure.root = root;
  comm->failure.status = record->status;
  if (comm->shown)
    comm->shown->failed = (int32_t)record->status;
  colli_comm_note_cause(comm->family, root, comm->name, record);
  colli_log_write(&comm->log, COLLI_LOG_ERROR, "%s: %s", coll_status_name(record->status),
                  record->message);
  colli_event_fails(&comm->exec, &comm->failure.error);
  if (comm->exec.oldest || comm->p2p.busy > 0)
    colli_comm_admit(comm);
  colli_mux_mute(comm->child);
  /* This comes before the caller gets its buffers back, because a transport may still be reading
   * them, and a peer may be working on them. */
  colli_exec_disconnect(&comm->exec);
  colli_memory_detach(comm);
  colli_engine_cancel(&comm->exec, &comm->p2p, comm->failure.status);
  colli_bell_ring_anyway(comm); /* a program that has nothing in flight may have only read it */
  COLLI_ASSERT_RANK(!comm->exec.oldest && !comm->exec.active && comm->p2p.busy == 0, comm->rank);
  if (comm->levels)
    fail_parts(comm->levels, record, root);
}

/* Revokes the communicator for the reason in `record` and tells all ranks. */
void colli_comm_fail_for(coll_comm *comm, const coll_error *record, int root) {
  if (comm->failure.status != COLL_OK)
    return;
  colli_ctrl_msg msg = {.kind = COLLI_CTRL_FAILED, .peer = -1, .root = root, .error = *record};
  colli_notice_send(comm->family, comm->uid, &msg);
  colli_comm_note_failure(comm, record, root);
}

void colli_comm_fail(coll_comm *comm, const coll_error *record) {
  colli_comm_fail_for(comm, record, -1);
}

/* The rank that a rank of a part has in the whole; -1: none. */
static int in_whole(const coll_comm *comm, const coll_comm *part, int rank) {
  if (rank < 0 || rank >= part->nranks)
    return -1;
  return colli_comm_rank_of(comm, colli_comm_base_rank(part, rank));
}

/* The record of a part that has failed, as one of the whole. Its text counts the ranks of the part,
 * and says so. */
static coll_error record_of_part(const coll_comm *comm, const coll_comm *part, coll_status status) {
  coll_error record = part->failure.error;
  record.status = status;
  record.rank = in_whole(comm, part, record.rank);
  record.peer = in_whole(comm, part, record.peer);
  if (record.peer < 0 && part->failure.root >= 0) /* who is to blame is in another part */
    record.peer = colli_comm_rank_of(comm, part->failure.root);
  snprintf(record.operation, sizeof(record.operation), "%s", comm->levels->operation);
  snprintf(record.message, sizeof(record.message),
           "%.480s (in a part of %s, in which \"%s\" are counted from 0)",
           part->failure.error.message, comm->levels->operation, part->name);
  return record;
}

void colli_comm_check_levels(coll_comm *comm) {
  if (!comm->levels || comm->failure.status != COLL_OK || comm->failure.suspended)
    return;
  const coll_comm *const parts[] = {comm->levels->within, comm->levels->across};
  for (int i = 0; i < 2; i++) {
    coll_status status = parts[i]->failure.status;
    if (status == COLL_OK && parts[i]->streams) /* a call of it has failed alone: others wait */
      status = parts[i]->streams->status;
    if (status == COLL_OK)
      continue;
    const coll_error record = record_of_part(comm, parts[i], status);
    colli_comm_fail_for(comm, &record, parts[i]->failure.root);
    return;
  }
}
