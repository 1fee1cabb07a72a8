/*
 * events.c: handles the failures that the executor reports.
 *
 * A broken data connection does not show who is to blame, because its other end may have left
 * because of a third rank. So the rank waits a moment (libcoll/progress) for a failure notice from
 * a neighbour before it blames the peer.
 */
#include "libcoll/failure/events.h"

#include <stdio.h>
#include <string.h>

#include "libcoll/failure/failure.h"
#include "libcoll/failure/op_text.h"
#include "libcoll/failure/watchdog.h"

/* A transport call failed for a reason that lies with this rank. */
static void fail_here(coll_comm *comm, coll_request *op, coll_status status,
                      const coll_error *said) {
  coll_error record;
  char text[COLLI_OP_TEXT];
  colli_comm_record(comm, &record, status, -1, op);
  record.sys_errno = said->sys_errno;
  memcpy(record.syscall, said->syscall, sizeof(record.syscall));
  int used = snprintf(record.message, sizeof(record.message),
                      "rank %d (host %s) failed in %s: ", comm->rank, comm->host,
                      op ? colli_op_text(op, text) : "no operation");
  snprintf(record.message + used, sizeof(record.message) - (size_t)used, "%s", said->message);
  colli_comm_fail(comm, &record);
}

/* Whether a shortage here explains why a call failed. Several calls may have failed because of it,
 * in different ways. */
static bool is_explained(const coll_error *own, coll_status status) {
  const bool is_short = status == COLL_ERR_SYSTEM || status == COLL_ERR_NO_MEMORY;
  return own->status == status ||
         (is_short && (own->status == COLL_ERR_SYSTEM || own->status == COLL_ERR_NO_MEMORY));
}

/* A transport call of the executor failed. */
static void on_failed(void *ctx, coll_request *op, int peer, int channel, int step,
                      coll_status status) {
  coll_comm *comm = ctx;
  coll_error record;
  const coll_error *said = &comm->family->reported, *own = &comm->family->own_fault;
  const int base_rank = colli_comm_base_rank(comm, peer);
  const bool about_it = said->status == status && said->peer == base_rank;
  /* Other connections may have failed since, for other reasons. */
  if (!about_it && is_explained(own, status)) {
    fail_here(comm, op, own->status, own);
    return;
  }
  colli_comm_record(comm, &record, status, peer, op);
  record.channel = channel;
  record.step = step;
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

/* A message and the receive that matched it differ in type or number of elements. That concerns
 * this receive alone: the sender may have completed long ago, and the communicator stays usable. */
static void on_unfit(void *ctx, const colli_post *recv, int peer, const colli_p2p_header *head) {
  coll_comm *comm = ctx;
  coll_error record;
  char text[COLLI_POST_TEXT], type[COLLI_TYPE_TEXT];
  colli_comm_record(comm, &record, COLL_ERR_MISMATCH, peer, &recv->op->request);
  colli_post_text(recv, text);
  const char *advice = head->type != recv->type   ? "give both the same type"
                       : head->word < recv->count ? "give the receive a coll_message, or the same "
                                                    "count"
                                                  : "make room for it in the receive";
  snprintf(record.message, sizeof(record.message),
           "rank %d (host %s) called %s, but rank %d (host %s, pid %d) called send(count %llu, %s) "
           "to it, tag %d; %s",
           comm->rank, comm->host, text, peer, record.peer_host, record.peer_pid,
           (unsigned long long)head->word, colli_type_text(head->type, type), head->tag, advice);
  colli_comm_refuse_op(comm, &record);
}

/* A message arrived that this version of libcoll does not send. */
static void on_broken(void *ctx, coll_request *op, int peer, const char *detail) {
  coll_comm *comm = ctx;
  coll_error record;
  colli_comm_record(comm, &record, COLL_ERR_PROTOCOL, peer, op);
  snprintf(record.message, sizeof(record.message),
           "rank %d (host %s, pid %d) sent rank %d (host %s) %s; all ranks must run the same "
           "libcoll",
           peer, record.peer_host, record.peer_pid, comm->rank, comm->host, detail);
  colli_comm_fail(comm, &record);
}

const colli_exec_events colli_comm_events = {.mismatch = on_mismatch, .failed = on_failed};
const colli_p2p_events colli_comm_p2p_events = {.unfit = on_unfit, .broken = on_broken};
