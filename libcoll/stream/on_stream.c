/* on_stream.c: stream-ordered calls: the first one, groups, how they ended, and the end. */
#include "libcoll/stream/on_stream.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/comm/comm.h"
#include "libcoll/comm/pool.h"
#include "libcoll/progress/wait.h"
#include "libcoll/stream/direct_meet.h"
#include "libcoll/stream/enqueue.h"
#include "libcoll/stream/levels.h"
#include "libcoll/stream/levels_call.h"
#include "libcoll/stream/stream_batch.h"

#define FINISH_NS (10 * COLLI_NS_PER_S) /* the longest that a destroy waits, for all of them */

typedef colli_stream_batch stream_batch;

/* ---- calls ----------------------------------------------------------------------------------- */

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
  return colli_levels_takes(comm, request->kept) ? colli_levels_enqueue(comm, request, stream)
                                                 : colli_enqueue_one(comm, request, stream);
}

coll_status colli_stream_call(coll_comm *comm, const colli_call *call, void *stream,
                              colli_keep_fn *keep) {
  colli_group *group = &comm->calls.group;
  coll_request *request = NULL;
  coll_status status = colli_enqueue_ready(comm, call->name);
  if (status == COLL_OK)
    status = keep(comm, call, &request);
  if (status == COLL_OK)
    status =
        group->depth > 0 ? add_to_group(comm, request, stream) : enqueue_one(comm, request, stream);
  if (group->depth > 0 && group->refused == COLL_OK)
    group->refused = status;
  return status;
}

/* Puts the calls of a group into its stream: first those that are staged as a whole, together, then
 * the others. All ranks find the same ones among their collectives. */
static coll_status enqueue_group(coll_comm *comm, coll_request **requests, int count,
                                 void *stream) {
  int staged = 0;
  colli_direct_shape shape;
  coll_status status = COLL_OK;
  for (int i = 0; i < count; i++) /* insertion sort that keeps the order among equals */
    if (!colli_direct_takes(comm, requests[i]->kept, &shape) &&
        !colli_levels_takes(comm, requests[i]->kept)) {
      coll_request *request = requests[i];
      memmove(&requests[staged + 1], &requests[staged], (size_t)(i - staged) * sizeof(*requests));
      requests[staged++] = request;
    }
  if (staged > 0)
    status = colli_enqueue(comm, requests, staged, NULL, stream);
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

/* Whether the host does not know yet how the part of a call within this rank's group ended, or has
 * not told the other ranks yet that a part has failed. */
static bool are_parts_unsettled(const coll_comm *comm) {
  if (!comm->levels || comm->failure.status != COLL_OK)
    return false;
  const coll_comm *const parts[] = {comm->levels->within, comm->levels->across};
  for (int i = 0; i < 2; i++) { /* no part may have gone across: then there are no streams there */
    const colli_streams *streams = parts[i]->streams;
    if (parts[i]->failure.status != COLL_OK || (streams && streams->status != COLL_OK))
      return true;
    if (streams && colli_streams_silent(streams) && is_unsettled(parts[i]))
      return true;
  }
  return false;
}

coll_status colli_stream_status(coll_comm *comm) {
  if (!comm->streams)
    return COLL_OK;
  colli_comm_wait_begin(comm);
  while (comm->failure.status == COLL_OK &&
         ((colli_streams_silent(comm->streams) && is_unsettled(comm)) || are_parts_unsettled(comm)))
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

/* Waits until graphs are gone, which the driver says some time after they were destroyed. It cannot
 * wake this thread: it does not know what is left of the communicator once it has said so. So this
 * looks again and again. */
static void await_released(coll_comm *comm, uint64_t until_ns) {
  colli_streams *streams = comm->streams;
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
  await_released(comm, until_ns);
  for (int i = 0; i < streams->ngroup; i++)
    colli_request_put(streams->group[i]);
  const bool none = end_queue(comm) && !streams->lost;
  comm->streams = NULL;
  free(streams->group);
  free(streams);
  return none;
}
