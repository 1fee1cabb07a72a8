/* enqueue.c: puts batches into streams: a call, a group, or the parts of a long call. */
#include "libcoll/stream/enqueue.h"

#include <stdio.h>
#include <stdlib.h>

#include "libcoll/base/error.h"
#include "libcoll/comm/comm.h"
#include "libcoll/progress/enter.h"
#include "libcoll/progress/progress_thread.h"
#include "libcoll/progress/wait.h"
#include "libcoll/run/gpu_lend.h"
#include "libcoll/run/request.h"
#include "libcoll/run/run.h"
#include "libcoll/stream/direct_meet.h"
#include "libcoll/stream/staged_parts.h"
#include "libcoll/stream/stream_batch.h"

typedef colli_stream_batch stream_batch;

/* What is put into a stream at once: one batch, or one for each part of a long staged call. */
typedef struct enqueued {
  stream_batch **batches; /* NULL: not in the queue */
  size_t count;
  size_t filled; /* wholly in the stream */
} enqueued;

/* Puts copies to the host and the host's turn into the stream. */
static coll_status put_inputs(stream_batch *batch, coll_error *error) {
  coll_status status = COLL_OK;
  for (int i = 0; i < batch->count && status == COLL_OK; i++) {
    const colli_gpu_piece pieces[] = {batch->calls[i].stage.input, batch->calls[i].stage.rest};
    status = colli_gpu_passage_copy(&batch->passage, COLLI_GPU_TO_HOST, pieces, 2, error);
  }
  return status == COLL_OK ? colli_gpu_passage_tell(&batch->passage, error) : status;
}

/* Puts the wait for the host, copies to the device, and the end into the stream. */
static coll_status put_results(stream_batch *batch, coll_error *error) {
  coll_status status = colli_gpu_passage_await(&batch->passage, error);
  for (int i = 0; i < batch->count && status == COLL_OK; i++)
    status =
        colli_gpu_passage_copy(&batch->passage, COLLI_GPU_TO_DEVICE, batch->calls[i].stage.result,
                               batch->calls[i].stage.nresult, error);
  return status == COLL_OK ? colli_gpu_passage_end(&batch->passage, error) : status;
}

/* Puts staged batches into the stream: the inputs of some go ahead of the results of the first, so
 * that the host need not wait for copies. */
static coll_status fill_staged(enqueued *it, coll_error *error) {
  coll_status status = COLL_OK;
  size_t ahead = 0;
  while (it->filled < it->count && status == COLL_OK) {
    if (ahead < it->count && ahead < it->filled + COLLI_STAGED_DEPTH) {
      status = put_inputs(it->batches[ahead++], error);
      continue;
    }
    status = put_results(it->batches[it->filled], error);
    it->filled += status == COLL_OK;
  }
  return status;
}

/* Makes copies for the calls of a batch, or lends what can be lent; calls in graphs lend nothing:
 * their memory may be other memory each time. */
static coll_status stage(stream_batch *batch) {
  coll_status status = COLL_OK;
  for (int i = 0; i < batch->count && status == COLL_OK; i++) {
    colli_call *call = batch->calls[i].request->kept;
    colli_gpu_places places;
    colli_gpu_find(batch->comm, call, &places);
    const bool lends = colli_gpu_may_lend(batch->comm, call, &places) &&
                       !colli_gpu_passage_is_captured(&batch->passage);
    status = colli_gpu_stage_make(batch->comm, call, &places, lends, NULL, &batch->calls[i].stage);
    if (status == COLL_OK)
      colli_gpu_stage_use(&batch->calls[i].stage, call);
  }
  return status;
}

/* Refuses a batch for a reason that names no operation. */
static coll_status refuse(coll_comm *comm, const char *name, coll_error *reason) {
  snprintf(reason->operation, sizeof(reason->operation), "%s", name);
  return colli_comm_refuse_as(comm, reason);
}

/* Makes what a call in GPU memory needs. */
static coll_status prepare_direct(stream_batch *batch, const colli_direct_shape *shape) {
  coll_comm *comm = batch->comm;
  const colli_gpu_passage *passage = &batch->passage;
  bool primary = false;
  coll_error error = COLL_ERROR_INIT;
  if (colli_gpu_is_primary(comm->gpu, passage->device, passage->context, &primary, &error) !=
      COLL_OK)
    return refuse(comm, batch->calls[0].request->kept->name, &error);
  return colli_direct_call_make(comm, batch->calls[0].request, shape, passage->device, primary,
                                &batch->direct);
}

/* Makes what the calls of the i-th batch need, and a passage. shape: of one that is not staged. */
static coll_status prepare(const enqueued *it, size_t i, const colli_direct_shape *shape,
                           void *stream) {
  stream_batch *batch = it->batches[i];
  coll_comm *comm = batch->comm;
  const char *name = batch->calls[0].request->kept->name;
  coll_error error = COLL_ERROR_INIT;
  batch->stops = 1;
  if (i > 0)
    colli_gpu_passage_follow(&it->batches[0]->passage, &batch->passage);
  else if (colli_gpu_passage_open(comm->gpu, stream, &batch->passage, &error) != COLL_OK)
    return refuse(comm, name, &error);
  batch->passage.on_reached = colli_batch_wake;
  batch->passage.arg = batch;
  if (batch->in_gpu)
    return prepare_direct(batch, shape);
  coll_status status = it->count > 1 ? COLL_OK : stage(batch); /* parts have copies */
  if (status != COLL_OK)
    return status;
  colli_call_pause(comm); /* the driver may wait for kernels that wait for other ranks */
  status = colli_gpu_passage_take_answer(&batch->passage, &error);
  colli_call_resume(comm);
  return status == COLL_OK ? COLL_OK : refuse(comm, name, &error);
}

/* Puts batches into the queue, if all went well so far; else only those that graphs know already.
 */
static void append(enqueued *it, coll_status status) {
  for (size_t i = 0; i < it->count; i++) {
    stream_batch *batch = it->batches[i];
    if (status == COLL_OK || batch->passage.captured) {
      colli_batch_append(batch);
    } else {
      colli_batch_free(batch);
      it->batches[i] = NULL;
    }
  }
}

/* Puts the calls and their ends into the stream. The driver may wait in this until the stream,
 * which may be full, has done some of its work: others get the family meanwhile, to move that. When
 * a whole batch is in the stream it may have ended. */
static coll_status fill_stream(coll_comm *comm, enqueued *it, coll_error *error) {
  stream_batch *first = it->batches[0];
  coll_status status;
  colli_call_pause(comm);
  if (first->in_gpu)
    status = colli_direct_call_fill(&first->direct, &first->passage, error);
  else
    status = fill_staged(it, error);
  colli_call_resume(comm);
  return status;
}

/* Puts batches into their stream, and takes them over. */
static coll_status submit(coll_comm *comm, enqueued *it, coll_error *error) {
  stream_batch *first = it->batches[0];
  colli_gpu_thread before;
  coll_status status = colli_gpu_passage_enter(&first->passage, &before, error);
  const bool entered = status == COLL_OK;
  for (size_t i = 0; i < it->count && status == COLL_OK; i++)
    status = colli_gpu_passage_join_capture(&it->batches[i]->passage, error);
  if (status == COLL_OK && first->in_gpu)
    status = colli_direct_call_settle(&first->direct, &first->passage, colli_batch_waits(first),
                                      &first->stops, error);
  append(it, status);
  if (status == COLL_OK)
    status = fill_stream(comm, it, error);
  for (size_t i = it->filled; i < it->count && status != COLL_OK; i++)
    if (it->batches[i])
      colli_batch_give_up(it->batches[i]);
  if (entered)
    colli_gpu_leave(comm->gpu, &before);
  return status;
}

/* Puts batches into a stream, and takes them over. shape: of one that is not staged; else NULL. */
static coll_status enqueue(coll_comm *comm, enqueued *it, const char *name,
                           const colli_direct_shape *shape, void *stream) {
  coll_error error = COLL_ERROR_INIT;
  coll_status status = COLL_OK;
  colli_batches_free_released(comm->streams);
  if (shape && colli_direct_way(comm->direct, false) == COLLI_GPU_MEET &&
      colli_streams_unstarted(comm))
    status = colli_comm_await_streams(comm, name); /* this one may meet at once */
  for (size_t i = 0; i < it->count && status == COLL_OK; i++)
    status = prepare(it, i, shape, stream);
  if (status != COLL_OK) {
    for (size_t i = 0; i < it->count; i++)
      colli_batch_free(it->batches[i]);
    return status;
  }
  status = submit(comm, it, &error);
  if (status == COLL_OK)
    return COLL_OK;
  if (status != COLL_ERR_INVALID_USAGE)
    return colli_gpu_fail_comm(comm, name, &error);
  return refuse(comm, name, &error);
}

coll_status colli_enqueue(coll_comm *comm, coll_request **requests, int count,
                          const colli_direct_shape *shape, void *stream) {
  const char *name = requests[0]->kept->name;
  stream_batch *batch = colli_batch_make(comm, name, count, shape != NULL);
  enqueued it = {&batch, 1, 0};
  for (int i = 0; i < count; i++)
    if (batch)
      batch->calls[i].request = requests[i];
    else
      colli_request_put(requests[i]);
  return batch ? enqueue(comm, &it, name, shape, stream) : COLL_ERR_NO_MEMORY;
}

/* Makes the batch of a part, with copies: in the memory of an earlier one if there is one. A part
 * cannot be checked before it uses them, because its blocks have gaps. */
static coll_status make_part(coll_comm *comm, const colli_call *call,
                             const colli_gpu_places *places, const enqueued *it, size_t i) {
  colli_call part = colli_staged_part(comm, call, i);
  const stream_batch *earlier = i < COLLI_STAGED_DEPTH ? NULL : it->batches[i - COLLI_STAGED_DEPTH];
  stream_batch *batch = colli_batch_make(comm, call->name, 1, false);
  it->batches[i] = batch;
  if (!batch)
    return COLL_ERR_NO_MEMORY;
  colli_batch_call *its = &batch->calls[0];
  const coll_status status = colli_gpu_stage_make(
      comm, &part, places, false, earlier ? &earlier->calls[0].stage : NULL, &its->stage);
  if (status != COLL_OK)
    return status;
  colli_gpu_stage_use(&its->stage, &part);
  return colli_call_keep(comm, &part, &its->request);
}

/* Makes a batch for each part of a staged call; on failure there is nothing to free. */
static coll_status make_parts(coll_comm *comm, const colli_call *call, enqueued *it) {
  coll_status status = COLL_OK;
  colli_gpu_places places;
  it->batches = calloc(it->count, sizeof(*it->batches));
  if (!it->batches)
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, call->name, "out of memory for %zu parts",
                             it->count);
  colli_gpu_find(comm, call, &places);
  for (size_t i = 0; i < it->count && status == COLL_OK; i++)
    status = make_part(comm, call, &places, it, i);
  if (status == COLL_OK)
    return COLL_OK;
  for (size_t i = 0; i < it->count && it->batches[i]; i++)
    colli_batch_free(it->batches[i]);
  free(it->batches);
  return status;
}

/* Puts a staged call, which it takes over, into a stream in parts. */
static coll_status enqueue_parts(coll_comm *comm, coll_request *request, size_t count,
                                 void *stream) {
  const char *name = request->kept->name;
  enqueued it = {NULL, count, 0};
  coll_status status = make_parts(comm, request->kept, &it);
  colli_request_put(request);
  if (status != COLL_OK)
    return status;
  status = enqueue(comm, &it, name, NULL, stream);
  free(it.batches);
  return status;
}

coll_status colli_enqueue_one(coll_comm *comm, coll_request *request, void *stream) {
  colli_direct_shape shape;
  if (colli_direct_takes(comm, request->kept, &shape))
    return colli_enqueue(comm, &request, 1, &shape, stream);
  const size_t parts = colli_staged_parts(comm, request->kept);
  return parts > 1 ? enqueue_parts(comm, request, parts, stream)
                   : colli_enqueue(comm, &request, 1, NULL, stream);
}

/* ---- first use ----------------------------------------------------------------------------------
 */

/* Finds the driver if the program has loaded it since the communicator was made. */
static coll_status find_gpu(coll_comm *comm, const char *name) {
  colli_family *family = comm->family;
  coll_error error = COLL_ERROR_INIT;
  if (!family->gpu && colli_world_is_real(&family->world) &&
      colli_gpu_open(&family->gpu, &family->log, &error) != COLL_OK)
    return colli_comm_refuse_as(comm, &error);
  for (coll_comm *one = family->members; one; one = one->sibling)
    one->gpu = family->gpu;
  if (comm->gpu)
    return COLL_OK;
  return colli_comm_refuse(comm, COLL_ERR_UNSUPPORTED, name,
                           "this process has not loaded CUDA's driver, or it finds no GPU; use "
                           "coll_%s or coll_i%s, or initialise CUDA first",
                           name, name);
}

coll_status colli_enqueue_ready(coll_comm *comm, const char *name) {
  coll_error error = COLL_ERROR_INIT;
  coll_status status = comm->gpu ? COLL_OK : find_gpu(comm, name);
  if (status != COLL_OK || comm->streams)
    return status;
  colli_family_share(comm->family, comm);
  if (colli_progress_start(comm->family, &error) != COLL_OK)
    return colli_comm_refuse_as(comm, &error);
  comm->streams = calloc(1, sizeof(*comm->streams));
  if (!comm->streams)
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, name, "out of memory for a queue of calls");
  TAILQ_INIT(&comm->streams->batches);
  comm->streams->move = colli_batches_move;
  comm->streams->part_bytes = colli_staged_part_bytes(comm);
  return COLL_OK;
}
