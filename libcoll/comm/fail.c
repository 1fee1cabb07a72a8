/*
 * fail.c: failures. The first one is recorded, revokes the communicator, ends all operations and is
 * told to the neighbours on the control links, who do the same: so it reaches every rank.
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
  if (op) {
    record->sequence = op->sequence;
    const char *name = op->coll != COLLI_SENDRECV ? colli_coll_name(op->coll)
                       : op->sending              ? "send"
                                                  : "recv";
    snprintf(record->operation, sizeof(record->operation), "%s", name);
  }
}

/* Sends a message made here to all neighbours. */
static void tell_neighbours(coll_comm *comm, const colli_ctrl_msg *msg) {
  int neighbours[8];
  int count = colli_ctrl_neighbours(comm->ctrl, neighbours);
  for (int i = 0; i < count; i++)
    colli_ctrl_send(comm->ctrl, neighbours[i], msg);
}

/* Revokes the communicator for the reason in `record` and tells the neighbours. */
void colli_comm_fail(coll_comm *comm, const coll_error *record) {
  if (comm->failed != COLL_OK)
    return;
  comm->error = *record;
  comm->failed = record->status;
  colli_log_write(&comm->log, COLLI_LOG_ERROR, "%s: %s", coll_status_name(record->status),
                  record->message);
  if (comm->ctrl) {
    colli_ctrl_msg msg = {.kind = COLLI_CTRL_FAILED,
                          .origin = comm->rank,
                          .serial = ++comm->serial,
                          .peer = -1,
                          .error = *record};
    tell_neighbours(comm, &msg);
  }
  /* Before the caller gets its buffers back: a transport may still be reading them. */
  colli_exec_disconnect(&comm->exec);
  colli_exec_cancel(&comm->exec, comm->failed);
}

/* Records a bad argument and returns `status`. */
coll_status colli_comm_refuse(coll_comm *comm, coll_status status, const char *operation,
                              const char *format, ...) {
  char text[256];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  if (comm->failed != COLL_OK)
    return status;
  colli_error_set(&comm->error, status, operation, "%s (rank %d of %d on %s)", text, comm->rank,
                  comm->nranks, comm->host);
  comm->error.rank = comm->rank;
  snprintf(comm->error.host, sizeof(comm->error.host), "%s", comm->host);
  return status;
}

/* Keeps what a transport says for the executor's report. */
void colli_comm_transport_failed(void *ctx, const coll_transport_failure *failure) {
  coll_comm *comm = ctx;
  coll_error *record = &comm->reported;
  colli_comm_record(comm, record, failure->status, failure->peer, NULL);
  record->channel = failure->channel;
  record->sys_errno = failure->sys_errno;
  if (failure->syscall)
    snprintf(record->syscall, sizeof(record->syscall), "%s", failure->syscall);
  size_t used = 0;
  if (failure->syscall && failure->sys_errno)
    used = (size_t)snprintf(record->message, sizeof(record->message), "%s: %s: ", failure->syscall,
                            strerror(failure->sys_errno));
  snprintf(record->message + used, sizeof(record->message) - used, "%s",
           failure->detail ? failure->detail : "the transport gave no reason");
}

/* A transport call of the executor failed. */
static void on_failed(void *ctx, coll_request *op, int peer, int channel, int step,
                      coll_status status) {
  coll_comm *comm = ctx;
  coll_error record;
  colli_comm_record(comm, &record, status, peer, op);
  record.channel = channel;
  record.step = step;
  const coll_error *said = &comm->reported;
  bool about_it = said->status == status && said->peer == peer;
  if (about_it) {
    record.sys_errno = said->sys_errno;
    memcpy(record.syscall, said->syscall, sizeof(record.syscall));
  }
  char tag[COLLI_TAG_TEXT];
  int used = snprintf(record.message, sizeof(record.message),
                      "rank %d (host %s, pid %d) %s while rank %d (host %s) was in operation %llu, "
                      "%s",
                      peer, record.peer_host, record.peer_pid,
                      status != COLL_ERR_PEER_LOST ? "could not be talked to"
                      : comm->left[peer]           ? "has left the communicator"
                                                   : "is lost",
                      comm->rank, comm->host, (unsigned long long)op->sequence,
                      colli_tag_text(&op->tag, tag));
  if (step >= 0)
    used += snprintf(record.message + used, sizeof(record.message) - (size_t)used,
                     " at step %d of channel %d", step, channel);
  if (about_it)
    snprintf(record.message + used, sizeof(record.message) - (size_t)used, ": %s", said->message);
  if (status != COLL_ERR_PEER_LOST) {
    colli_comm_fail(comm, &record);
    return;
  }
  comm->suspended = true;
  comm->suspect = record;
  comm->suspect_ns = comm->world.now_ns(comm->world.ctx);
}

/* A message of another operation came. */
static void on_mismatch(void *ctx, coll_request *op, int peer, const coll_tag *got,
                        size_t got_bytes) {
  (void)got_bytes;
  colli_comm_disagree(ctx, &op->tag, peer, got, op);
}

const colli_exec_events colli_comm_events = {.mismatch = on_mismatch, .failed = on_failed};

/* The control link to a rank broke without a goodbye: that rank is dead. */
static void neighbour_lost(coll_comm *comm, int peer, int sys_errno) {
  coll_error record;
  comm->lost[peer] = true;
  colli_comm_record(comm, &record, COLL_ERR_PEER_LOST, peer, comm->exec.oldest);
  record.sys_errno = sys_errno;
  snprintf(record.message, sizeof(record.message),
           "rank %d (host %s, pid %d) is lost: its control link to rank %d closed without a "
           "goodbye%s%s; "
           "look for what ended that process (signal, memory limit, crash)",
           peer, record.peer_host, record.peer_pid, comm->rank, sys_errno ? ": " : "",
           sys_errno ? strerror(sys_errno) : "");
  colli_comm_fail(comm, &record);
}

/* Takes over a failure that another rank found. */
static void heard_failed(coll_comm *comm, const colli_ctrl_msg *msg) {
  coll_error record = msg->error;
  if (record.status <= COLL_IN_PROGRESS || record.status > COLL_ERR_INTERNAL)
    return;
  record.size = sizeof(record);
  record.operation[sizeof(record.operation) - 1] = 0;
  record.syscall[sizeof(record.syscall) - 1] = 0;
  record.host[sizeof(record.host) - 1] = 0;
  record.peer_host[sizeof(record.peer_host) - 1] = 0;
  record.message[sizeof(record.message) - 1] = 0;
  colli_comm_fail(comm, &record);
}

/* Handles everything that the control links bring, and an abort. */
void colli_comm_listen(coll_comm *comm) {
  if (atomic_load(&comm->abort_flag) && comm->failed == COLL_OK) {
    coll_error record;
    colli_comm_record(comm, &record, COLL_ERR_ABORTED, comm->rank, comm->exec.oldest);
    snprintf(record.message, sizeof(record.message),
             "coll_comm_abort() was called on rank %d (host %s, pid %d)", comm->rank, comm->host,
             record.peer_pid);
    colli_comm_fail(comm, &record);
  }
  int peer = -1, sys_errno = 0;
  colli_ctrl_msg msg;
  for (;;) {
    switch (colli_ctrl_poll(comm->ctrl, &peer, &msg, &sys_errno)) {
    case COLLI_CTRL_NOTHING:
      return;
    case COLLI_CTRL_CLOSED:
      neighbour_lost(comm, peer, sys_errno);
      break;
    case COLLI_CTRL_MESSAGE:
      if (msg.kind == COLLI_CTRL_FAILED)
        heard_failed(comm, &msg);
      else if (msg.kind == COLLI_CTRL_STALLED)
        colli_comm_heard_stalled(comm, peer, &msg);
      else if (msg.kind == COLLI_CTRL_GOODBYE)
        comm->left[peer] = true;
      break;
    }
  }
}
