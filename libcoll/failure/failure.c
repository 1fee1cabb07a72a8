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
    record->peer = peer;
    record->peer_pid = comm->table[peer].pid;
    snprintf(record->peer_host, sizeof(record->peer_host), "%s", comm->table[peer].host);
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
