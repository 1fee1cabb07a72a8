/*
 * failure.c: failures. The first one is recorded, revokes the communicator, ends all operations and
 * is told to all ranks by way of the control links (notice.c), who do the same.
 *
 * A broken data connection does not say who is to blame: its other end may have left because of a
 * third rank. So the rank waits a moment (wait.c) for a neighbour's account before it blames the
 * peer.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/comm/comm.h"
#include "libcoll/comm/notice_send.h"
#include "libcoll/exec/connect.h"

/* Fills in which operation a record is about. */
void colli_comm_record_operation(coll_error *record, const coll_request *op) {
  const char *name = op->coll != COLLI_SENDRECV ? colli_coll_name(op->coll) : op->name;
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

/* Revokes the communicator for the reason in `record`, here only. */
void colli_comm_note_failure(coll_comm *comm, const coll_error *record) {
  if (comm->failure.status != COLL_OK)
    return;
  comm->failure.error = *record;
  comm->failure.status = record->status;
  colli_log_write(&comm->log, COLLI_LOG_ERROR, "%s: %s", coll_status_name(record->status),
                  record->message);
  colli_mux_mute(comm->child);
  /* Before the caller gets its buffers back: a transport may still be reading them. */
  colli_exec_disconnect(&comm->exec);
  colli_engine_cancel(&comm->exec, &comm->p2p, comm->failure.status);
}

/* Revokes the communicator for the reason in `record` and tells all ranks. */
void colli_comm_fail(coll_comm *comm, const coll_error *record) {
  if (comm->failure.status != COLL_OK)
    return;
  colli_ctrl_msg msg = {.kind = COLLI_CTRL_FAILED, .peer = -1, .error = *record};
  colli_notice_send(comm->family, comm->uid, &msg);
  colli_comm_note_failure(comm, record);
}

/* Records a bad argument and returns `status`. */
coll_status colli_comm_refuse(coll_comm *comm, coll_status status, const char *operation,
                              const char *format, ...) {
  char text[256];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  if (comm->failure.status != COLL_OK)
    return status;
  atomic_store_explicit(&comm->entry.misused, 0, memory_order_relaxed); /* this is the later news */
  colli_error_set(&comm->failure.error, status, operation, "%s (rank %d of %d on %s)", text,
                  comm->rank, comm->nranks, comm->host);
  comm->failure.error.rank = comm->rank;
  snprintf(comm->failure.error.host, sizeof(comm->failure.error.host), "%s", comm->host);
  return status;
}

/* A transport call of the executor failed. */
static void on_failed(void *ctx, coll_request *op, int peer, int channel, int step,
                      coll_status status) {
  coll_comm *comm = ctx;
  coll_error record;
  colli_comm_record(comm, &record, status, peer, op);
  record.channel = channel;
  record.step = step;
  const coll_error *said = &comm->family->reported;
  int base_rank = colli_comm_base_rank(comm, peer);
  bool about_it = said->status == status && said->peer == base_rank;
  if (about_it) {
    record.sys_errno = said->sys_errno;
    memcpy(record.syscall, said->syscall, sizeof(record.syscall));
  }
  char text[COLLI_OP_TEXT];
  int used = snprintf(record.message, sizeof(record.message),
                      "rank %d (host %s, pid %d) %s while rank %d (host %s) was in %s", peer,
                      record.peer_host, record.peer_pid,
                      status != COLL_ERR_PEER_LOST ? "could not be talked to"
                      : comm->failure.left[peer]   ? "has left the communicator"
                                                   : "is lost",
                      comm->rank, comm->host, op ? colli_op_text(op, text) : "no operation");
  if (step >= 0)
    used += snprintf(record.message + used, sizeof(record.message) - (size_t)used,
                     " at step %d of channel %d", step, channel);
  if (about_it)
    snprintf(record.message + used, sizeof(record.message) - (size_t)used, ": %s", said->message);
  if (status != COLL_ERR_PEER_LOST) {
    colli_comm_fail(comm, &record);
    return;
  }
  comm->failure.suspended = true;
  comm->failure.suspect = record;
  comm->failure.suspect_ns = comm->world.now_ns(comm->world.ctx);
}

/* A message of another operation came. */
static void on_mismatch(void *ctx, coll_request *op, int peer, const coll_tag *got,
                        size_t got_bytes) {
  (void)got_bytes;
  colli_watchdog_disagree(ctx, &op->tag, peer, got, op);
}

const colli_exec_events colli_comm_events = {.mismatch = on_mismatch, .failed = on_failed};
const colli_p2p_events colli_comm_p2p_events = {.unfit = colli_p2p_unfit,
                                                .broken = colli_p2p_broken};
