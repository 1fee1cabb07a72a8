/* on_stream.c: stream-ordered calls: what is put into streams, groups, and the end. */
#include "libcoll/stream/on_stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/progress/enter.h"
#include "libcoll/progress/progress_thread.h"
#include "libcoll/progress/wait.h"
#include "libcoll/run/gpu_lend.h"
#include "libcoll/run/request.h"
#include "libcoll/run/run.h"
#include "libcoll/stream/direct_meet.h"
#include "libcoll/stream/staged_parts.h"
#include "libcoll/stream/stream_batch.h"

#define FINISH_NS  (10 * COLLI_NS_PER_S)   /* the longest that a destroy waits for streams, */
#define RELEASE_NS (100 * COLLI_NS_PER_MS) /* and for the ends of graphs that were destroyed */

typedef colli_stream_batch stream_batch;

/* ---- a new one ------------------------------------------------------------------------------- */

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

/* Makes copies for the calls of a batch, in the memory of an earlier one unless that is NULL. Calls
 * in graphs lend nothing: their memory may be other memory each time. */
static coll_status stage(stream_batch *batch, const stream_batch *earlier) {
  coll_status status = COLL_OK;
  for (int i = 0; i < batch->count && status == COLL_OK; i++) {
    colli_call *call = batch->calls[i].request->kept;
    colli_gpu_places places;
    colli_gpu_find(batch->comm, call, &places);
    const bool lends = colli_gpu_may_lend(batch->comm, call, &places) &&
                       !colli_gpu_passage_is_captured(&batch->passage);
    status =
        colli_gpu_stage_make(batch->comm, call, &places, lends,
                             earlier ? &earlier->calls[i].stage : NULL, &batch->calls[i].stage);
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
  const stream_batch *earlier = i < COLLI_STAGED_DEPTH ? NULL : it->batches[i - COLLI_STAGED_DEPTH];
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
  coll_status status = stage(batch, earlier);
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

/* A batch of calls of persistent requests, which it takes over; NULL if out of memory. */
static stream_batch *make_batch(coll_comm *comm, coll_request **requests, int count, bool in_gpu) {
  stream_batch *batch = calloc(1, sizeof(*batch) + (size_t)count * sizeof(*batch->calls));
  if (!batch) {
    (void)colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, requests[0]->kept->name,
                            "out of memory for %d calls", count);
    for (int i = 0; i < count; i++)
      colli_request_put(requests[i]);
    return NULL;
  }
  batch->comm = comm;
  batch->in_gpu = in_gpu;
  batch->count = count;
  for (int i = 0; i < count; i++)
    batch->calls[i].request = requests[i];
  return batch;
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

/* Puts the calls of persistent requests, which it takes over, into a stream together. shape: of one
 * that is not staged; else NULL. */
static coll_status enqueue_calls(coll_comm *comm, coll_request **requests, int count,
                                 const colli_direct_shape *shape, void *stream) {
  const char *name = requests[0]->kept->name;
  stream_batch *batch = make_batch(comm, requests, count, shape != NULL);
  enqueued it = {&batch, 1, 0};
  return batch ? enqueue(comm, &it, name, shape, stream) : COLL_ERR_NO_MEMORY;
}

/* Makes a batch for each part of a staged call; on failure there is nothing to free. */
static coll_status make_parts(coll_comm *comm, const colli_call *call, enqueued *it) {
  coll_status status = COLL_OK;
  it->batches = calloc(it->count, sizeof(*it->batches));
  if (!it->batches)
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, call->name, "out of memory for %zu parts",
                             it->count);
  for (size_t i = 0; i < it->count && status == COLL_OK; i++) {
    const colli_call part = colli_staged_part(comm, call, i);
    coll_request *request;
    status = colli_call_keep(comm, &part, &request);
    if (status == COLL_OK && !(it->batches[i] = make_batch(comm, &request, 1, false)))
      status = COLL_ERR_NO_MEMORY;
  }
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

/* ---- calls ----------------------------------------------------------------------------------- */

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

/* Makes a communicator's queue, and starts the progress thread, on first use. */
static coll_status get_ready(coll_comm *comm, const char *name) {
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

/* Keeps a call for the end of its group. */
static coll_status add_to_group(coll_comm *comm, coll_request *request, void *stream) {
  colli_streams *streams = comm->streams;
  const char *name = request->kept->name;
  coll_status status = COLL_OK;
  if (streams->ngroup > 0 && stream != streams->group_stream)
    status = colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, name,
                               "the calls of a group are on two streams; give all the same one");
  if (status == COLL_OK && streams->ngroup == streams->group_capacity) {
    const int capacity = streams->group_capacity ? 2 * streams->group_capacity : 16;
    coll_request **grown = realloc(streams->group, (size_t)capacity * sizeof(*grown));
    if (grown) {
      streams->group = grown;
      streams->group_capacity = capacity;
    } else {
      status = colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, name,
                                 "out of memory for a group of %d calls", capacity);
    }
  }
  if (status != COLL_OK) {
    colli_request_put(request);
    return status;
  }
  streams->group_stream = stream;
  streams->group[streams->ngroup++] = request;
  return COLL_OK;
}

/* Puts a call alone into a stream. */
static coll_status enqueue_one(coll_comm *comm, coll_request *request, void *stream) {
  colli_direct_shape shape;
  if (colli_direct_takes(comm, request->kept, &shape))
    return enqueue_calls(comm, &request, 1, &shape, stream);
  const size_t parts = colli_staged_parts(comm, request->kept);
  return parts > 1 ? enqueue_parts(comm, request, parts, stream)
                   : enqueue_calls(comm, &request, 1, NULL, stream);
}

coll_status colli_stream_call(coll_comm *comm, const colli_call *call, void *stream,
                              colli_keep_fn *keep) {
  colli_group *group = &comm->calls.group;
  coll_request *request = NULL;
  coll_status status = get_ready(comm, call->name);
  if (status == COLL_OK)
    status = keep(comm, call, &request);
  if (status == COLL_OK)
    status =
        group->depth > 0 ? add_to_group(comm, request, stream) : enqueue_one(comm, request, stream);
  if (group->depth > 0 && group->refused == COLL_OK)
    group->refused = status;
  return status;
}

/* Puts the calls of a group into its stream: first those that are staged, together, then the
 * others. All ranks find the same ones among their collectives. */
static coll_status enqueue_group(coll_comm *comm, coll_request **requests, int count,
                                 void *stream) {
  int staged = 0;
  colli_direct_shape shape;
  coll_status status = COLL_OK;
  for (int i = 0; i < count; i++) /* insertion sort that keeps the order among equals */
    if (!colli_direct_takes(comm, requests[i]->kept, &shape)) {
      coll_request *request = requests[i];
      memmove(&requests[staged + 1], &requests[staged], (size_t)(i - staged) * sizeof(*requests));
      requests[staged++] = request;
    }
  if (staged > 0)
    status = enqueue_calls(comm, requests, staged, NULL, stream);
  for (int i = staged; i < count; i++) {
    if (status == COLL_OK)
      status = enqueue_one(comm, requests[i], stream);
    else
      colli_request_put(requests[i]);
  }
  return status;
}

bool colli_stream_has_group(const coll_comm *comm) {
  return comm->streams && comm->streams->ngroup > 0;
}

coll_status colli_stream_end_group(coll_comm *comm, coll_status refused) {
  colli_streams *streams = comm->streams;
  const int count = streams->ngroup;
  streams->ngroup = 0;
  if (refused == COLL_OK && comm->calls.group.count > 0)
    refused = colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, "group",
                                "%d calls of the group are on a stream and %d are not; make two "
                                "groups",
                                count, comm->calls.group.count);
  if (refused == COLL_OK)
    return enqueue_group(comm, streams->group, count, streams->group_stream);
  for (int i = 0; i < count; i++)
    colli_request_put(streams->group[i]);
  return refused;
}

/* Whether the stream of some call has ended it, but the host does not know yet how it ended. */
static bool is_unsettled(const coll_comm *comm) {
  const stream_batch *batch;
  TAILQ_FOREACH(batch, &comm->streams->batches, link)
    if (batch->in_gpu && batch->direct.way == COLLI_GPU_SPIN &&
        batch->state != COLLI_BATCH_ANSWERED && colli_batch_has_left(batch))
      return true;
  return false;
}

coll_status colli_stream_status(coll_comm *comm) {
  if (!comm->streams)
    return COLL_OK;
  colli_comm_wait_begin(comm);
  while (comm->failure.status == COLL_OK && colli_streams_silent(comm->streams) &&
         is_unsettled(comm))
    colli_comm_wait_a_bit(comm, 0);
  return comm->failure.status == COLL_OK ? comm->streams->status : comm->failure.status;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Ends the queue: what a graph may still launch goes on without the communicator. Whether nothing
 * remains. */
static bool end_queue(coll_comm *comm) {
  colli_streams *streams = comm->streams;
  bool none = true;
  stream_batch *batch;
  if (comm->direct && !TAILQ_EMPTY(&streams->batches))
    colli_direct_stop(comm->direct);
  TAILQ_FOREACH(batch, &streams->batches, link) {
    colli_batch_abandon(batch);
    none = false;
  }
  return none;
}

/* The driver says some time after a graph's end that it is gone. */
static void await_released(coll_comm *comm) {
  colli_streams *streams = comm->streams;
  const uint64_t until_ns = colli_now_ns() + RELEASE_NS;
  colli_comm_wait_begin(comm);
  for (colli_batches_free_released(streams); !TAILQ_EMPTY(&streams->batches);
       colli_batches_free_released(streams)) {
    if (colli_now_ns() >= until_ns)
      return;
    colli_comm_wait_a_bit(comm, until_ns);
  }
}

bool colli_stream_finish(coll_comm *comm) {
  colli_streams *streams = comm->streams;
  if (!streams)
    return true;
  const uint64_t limit_ns = comm->watch.timeout_ns < FINISH_NS ? comm->watch.timeout_ns : FINISH_NS;
  const uint64_t until_ns = colli_now_ns() + limit_ns;
  colli_comm_wait_begin(comm);
  while (colli_streams_busy(streams) && colli_now_ns() < until_ns)
    colli_comm_wait_a_bit(comm, until_ns);
  await_released(comm);
  for (int i = 0; i < streams->ngroup; i++)
    colli_request_put(streams->group[i]);
  const bool none = end_queue(comm) && !streams->lost;
  comm->streams = NULL;
  free(streams->group);
  free(streams);
  return none;
}
