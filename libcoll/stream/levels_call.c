/* levels_call.c: gates, parts and ends of calls that are divided among groups. */
#include "libcoll/stream/levels_call.h"

#include <stdio.h>
#include <stdlib.h>

#include "libcoll/base/error.h"
#include "libcoll/comm/comm.h"
#include "libcoll/comm/pool.h"
#include "libcoll/failure/failure.h"
#include "libcoll/progress/enter.h"
#include "libcoll/run/run.h"
#include "libcoll/stream/enqueue.h"
#include "libcoll/stream/levels.h"
#include "libcoll/stream/levels_messages.h"
#include "libcoll/stream/stream_batch.h"

typedef colli_stream_batch stream_batch;

/* Refuses a call for a reason that names no operation. */
static coll_status refuse(coll_comm *comm, const stream_batch *gate, coll_error *reason) {
  snprintf(reason->operation, sizeof(reason->operation), "%s", gate->calls[0].request->kept->name);
  return colli_comm_refuse_as(comm, reason);
}

/* Checks the stream, which the first part would do too late, and makes what the gate needs. */
static coll_status prepare(stream_batch *gate, void *stream) {
  coll_comm *comm = gate->comm;
  colli_gpu_passage *passage = &gate->passage;
  const char *name = gate->calls[0].request->kept->name;
  coll_error error = COLL_ERROR_INIT;
  bool primary = false;
  gate->stops = 1;
  gate->levelled = true;
  if (colli_gpu_passage_open(comm->gpu, stream, passage, &error) != COLL_OK ||
      colli_gpu_is_primary(comm->gpu, passage->device, passage->context, &primary, &error) !=
          COLL_OK)
    return refuse(comm, gate, &error);
  passage->on_reached = colli_batch_wake;
  passage->arg = gate;
  coll_status status = colli_direct_check_stream(comm, name, comm->levels->within->direct->peers,
                                                 passage->device, primary);
  if (status != COLL_OK)
    return status;
  colli_call_pause(comm); /* the driver may wait for kernels that wait for other ranks */
  status = colli_gpu_passage_take_answer(passage, &error);
  colli_call_resume(comm);
  return status == COLL_OK ? COLL_OK : refuse(comm, gate, &error);
}

/* Puts the gate into its stream and into the queue; *queued: the latter was done. */
static coll_status put_gate(stream_batch *gate, bool *queued, coll_error *error) {
  coll_comm *comm = gate->comm;
  colli_gpu_thread before;
  *queued = false;
  coll_status status = colli_gpu_passage_enter(&gate->passage, &before, error);
  if (status != COLL_OK)
    return status;
  status = colli_gpu_passage_join_capture(&gate->passage, error);
  *queued = status == COLL_OK || gate->passage.captured;
  if (*queued)
    colli_batch_append(gate);
  if (status == COLL_OK) {
    colli_call_pause(comm);
    status = colli_gpu_passage_wait(&gate->passage, error);
    colli_call_resume(comm);
  }
  colli_gpu_leave(comm->gpu, &before);
  return status;
}

/* Puts the end into the stream; then the gate may be gone. */
static coll_status put_end(stream_batch *gate, coll_error *error) {
  coll_comm *comm = gate->comm;
  colli_gpu_thread before;
  coll_status status = colli_gpu_passage_enter(&gate->passage, &before, error);
  if (status != COLL_OK)
    return status;
  colli_call_pause(comm);
  status = colli_gpu_passage_end(&gate->passage, error);
  colli_call_resume(comm);
  colli_gpu_leave(comm->gpu, &before);
  return status;
}

/* Puts a call into the stream, on a communicator of its own. */
static coll_status put_part(coll_comm *comm, coll_comm *part, const colli_call *call,
                            void *stream) {
  coll_request *request;
  colli_call_pause(comm); /* this thread goes into the part, where it waits in mode MEET */
  coll_status status = colli_call_enter(part);
  if (status != COLL_OK) {
    colli_call_resume(comm);
    return status;
  }
  status = colli_enqueue_ready(part, call->name);
  if (status == COLL_OK)
    status = colli_call_keep(part, call, &request);
  if (status == COLL_OK)
    status = colli_enqueue_one(part, request, stream);
  colli_call_leave(part);
  colli_call_resume(comm);
  return status;
}

/* Puts all parts into the stream. *failed: the communicator of the one that could not be. */
static coll_status put_parts(const stream_batch *gate, size_t *tables, void *stream,
                             coll_comm **failed) {
  coll_comm *comm = gate->comm;
  const colli_call *call = gate->calls[0].request->kept;
  const size_t count = colli_levels_count(comm, call);
  /* Of the two rooms for results, parts use one themselves, captured or not. The other one is
   * free: no other call is between its gate and its end. */
  const colli_gpu_peers *peers = comm->levels->within->direct->peers;
  const uint64_t room = colli_gpu_peers_result(peers, !gate->passage.captured);
  const uint64_t own_room = colli_gpu_peers_result(peers, gate->passage.captured);
  const colli_levels_space space = {tables, (char *)(uintptr_t)room};
  coll_status status = COLL_OK;
  for (size_t i = 0; i < count && status == COLL_OK; i++) {
    colli_call part;
    *failed = colli_levels_part(comm, call, i, &space, &part);
    /* Graphs lend no memory; and of two of them, whose streams may come at any time, one could stop
     * the other between its messages. */
    const bool may_send = *failed == comm->levels->across && !gate->passage.captured;
    if (may_send && colli_levels_can_message(comm, &part)) {
      *failed = comm;
      status = colli_levels_put_messages(comm, &part, &gate->passage, (char *)(uintptr_t)own_room);
    } else {
      status = put_part(comm, *failed, &part, stream);
    }
  }
  return status;
}

/* Fails the communicator because a part could not be put into the stream. */
static void fail_with(coll_comm *comm, const coll_comm *part, const char *name) {
  colli_comm_check_levels(comm); /* perhaps the part has failed, and says who is to blame */
  if (comm->failure.status == COLL_OK)
    (void)colli_gpu_fail_comm(comm, name, &part->failure.error);
}

/* Puts gate, parts and end into the stream. After the gate, other ranks rely on this one, so what
 * fails then is a failure of the communicator. */
static coll_status submit(stream_batch *gate, size_t *tables, void *stream) {
  coll_comm *comm = gate->comm, *failed = NULL;
  const char *name = gate->calls[0].request->kept->name;
  coll_error error = COLL_ERROR_INIT;
  bool queued;
  coll_status status = put_gate(gate, &queued, &error);
  if (!queued) {
    status = status == COLL_ERR_INVALID_USAGE ? refuse(comm, gate, &error)
                                              : colli_gpu_fail_comm(comm, name, &error);
    colli_batch_free(gate);
    return status;
  }
  if (status == COLL_OK && put_parts(gate, tables, stream, &failed) != COLL_OK)
    fail_with(comm, failed, name);
  if (status == COLL_OK)
    status = put_end(gate, &error);
  if (status != COLL_OK) {
    colli_batch_give_up(gate);
    return colli_gpu_fail_comm(comm, name, &error);
  }
  return comm->failure.status;
}

coll_status colli_levels_enqueue(coll_comm *comm, coll_request *request, void *stream) {
  const colli_levels *levels = comm->levels;
  const size_t most = (size_t)(levels->size > levels->ngroups ? levels->size : levels->ngroups);
  colli_batches_free_released(comm->streams);
  stream_batch *gate = colli_batch_make(comm, request->kept->name, 1, false);
  if (!gate) {
    colli_request_put(request);
    return COLL_ERR_NO_MEMORY;
  }
  gate->calls[0].request = request;
  size_t *tables = malloc(COLLI_LEVELS_TABLES * most * sizeof(*tables));
  coll_status status = COLL_OK;
  if (!tables)
    status = colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, request->kept->name,
                               "out of memory for %zu pieces", most);
  if (status == COLL_OK)
    status = prepare(gate, stream);
  if (status == COLL_OK)
    status = submit(gate, tables, stream);
  else
    colli_batch_free(gate);
  free(tables);
  return status;
}
