/* on_stream.c: stream-ordered calls: their queue, and what becomes of them. */
#include "libcoll/api/on_stream.h"

#include <stdio.h>
#include <stdlib.h>

#include "libcoll/api/gpu_stage.h"
#include "libcoll/api/request.h"
#include "libcoll/api/run.h"
#include "libcoll/base/error.h"
#include "libcoll/comm/comm.h"
#include "libcoll/gpu/passage.h"
#include "libcoll/progress/doorbell.h"
#include "libcoll/progress/enter.h"
#include "libcoll/progress/progress_thread.h"
#include "libcoll/progress/wait.h"

#define FINISH_NS       (10 * COLLI_NS_PER_S)   /* the longest that a destroy waits for streams, */
#define RELEASE_NS      (100 * COLLI_NS_PER_MS) /* and for the ends of graphs that were destroyed */
#define POLLS_PER_CHECK 64u                     /* of the deadline of streams that are held */

typedef struct stream_call {
  coll_request *request; /* persistent, on the copies */
  colli_gpu_stage stage;
} stream_call;

typedef enum batch_state {
  EXPECTED, /* the stream has not come, or earlier batches have not started */
  RUNNING,
  ANSWERED
} batch_state;

/* Calls that begin together, at one place of a stream; in a graph, each time that it comes. */
typedef struct colli_stream_batch {
  TAILQ_ENTRY(colli_stream_batch) link;
  coll_comm *comm;
  colli_gpu_passage passage;
  batch_state state;
  int count, started;
  stream_call calls[];
} stream_batch;

/* ---- the life of a batch --------------------------------------------------------------------- */

/* The stream has come. A thread of the driver calls this. */
static void wake(void *arg) {
  const stream_batch *batch = arg;
  colli_family *family = batch->comm->family;
  if (batch->passage.captured)
    atomic_fetch_add(&batch->comm->streams->in_graphs, 1);
  atomic_fetch_add(&family->wakes, 1);
  colli_progress_wake(family);
  colli_doorbells_ring(family);
}

/* Frees a batch that no stream uses. */
static void free_batch(stream_batch *batch) {
  for (int i = 0; i < batch->count; i++) {
    colli_gpu_stage_free(&batch->calls[i].stage);
    colli_request_put(batch->calls[i].request);
  }
  colli_gpu_passage_close(&batch->passage);
  free(batch);
}

/* Remembers why an operation failed alone. */
static void note_status(coll_comm *comm, coll_status status) {
  if (comm->streams->status == COLL_OK)
    comm->streams->status = status;
}

/* Starts the calls, up to the first that fails. */
static void start(stream_batch *batch) {
  coll_comm *comm = batch->comm;
  batch->state = RUNNING;
  batch->started = 0;
  atomic_store(&batch->passage.reached, false); /* it does not come again before the answer */
  if (!batch->passage.captured)
    comm->streams->unstarted--;
  while (batch->started < batch->count) {
    const coll_status status = colli_call_start_again(comm, batch->calls[batch->started].request);
    if (status != COLL_OK) {
      note_status(comm, status);
      return;
    }
    batch->started++;
  }
}

/* Whether all its operations have ended. */
static bool has_ended(const stream_batch *batch) {
  for (int i = 0; i < batch->started; i++)
    if (!batch->calls[i].request->done)
      return false;
  return true;
}

/* Finishes the operations, and lets the stream go on. */
static void answer(stream_batch *batch) {
  for (int i = 0; i < batch->started; i++) {
    coll_request *request = batch->calls[i].request; /* persistent: it remains */
    const coll_status status = colli_request_complete(&request);
    if (status != COLL_OK)
      note_status(batch->comm, status);
  }
  batch->state = ANSWERED;
  colli_gpu_passage_answer(&batch->passage);
}

/* The stream has passed. In a graph, it may come again. */
static void end_passage(stream_batch *batch) {
  colli_streams *streams = batch->comm->streams;
  atomic_store(&batch->passage.left, false);
  batch->state = EXPECTED;
  if (batch->passage.captured) {
    atomic_fetch_sub(&streams->in_graphs, 1);
    return;
  }
  TAILQ_REMOVE(&streams->batches, batch, link);
  streams->open--;
  free_batch(batch);
}

/* Frees what was in graphs that are gone. */
static void free_released(colli_streams *streams) {
  stream_batch *batch = streams->captured > 0 ? TAILQ_FIRST(&streams->batches) : NULL;
  for (stream_batch *next; batch; batch = next) {
    next = TAILQ_NEXT(batch, link);
    if (!atomic_load(&batch->passage.released) || batch->state != EXPECTED)
      continue;
    streams->captured--;
    TAILQ_REMOVE(&streams->batches, batch, link);
    free_batch(batch);
  }
}

/* Advances a batch. `first`: all before it have been started. */
static int move_batch(stream_batch *batch, bool first) {
  coll_comm *comm = batch->comm;
  const bool failed = comm->failure.status != COLL_OK;
  switch (batch->state) {
  case EXPECTED:
    if (!atomic_load(&batch->passage.reached) || !(first || failed))
      return 0;
    if (!failed && comm->failure.suspended)
      return 0;
    start(batch); /* of a failed communicator: none */
    return 1;
  case RUNNING:
    if (!has_ended(batch))
      return 0;
    answer(batch);
    return 1;
  case ANSWERED:
    if (!atomic_load(&batch->passage.left))
      return 0;
    end_passage(batch);
    return 1;
  }
  return 0;
}

/* Fails the communicator if a stream has waited for long, because the stream of an earlier call
 * does not come. */
static void check_deadline(coll_comm *comm) {
  const stream_batch *missing = TAILQ_FIRST(&comm->streams->batches), *late;
  while (missing && (missing->state != EXPECTED || missing->passage.captured))
    missing = TAILQ_NEXT(missing, link);
  for (late = missing; late; late = TAILQ_NEXT(late, link))
    if (late != missing && late->state == EXPECTED && atomic_load(&late->passage.reached))
      break;
  if (!late || comm->failure.status != COLL_OK) {
    comm->streams->held_ns = 0;
    return;
  }
  const uint64_t now_ns = colli_now_ns();
  if (comm->streams->held_ns == 0)
    comm->streams->held_ns = now_ns;
  if (now_ns - comm->streams->held_ns < comm->watch.timeout_ns)
    return;
  coll_error error = COLL_ERROR_INIT;
  colli_error_set(&error, COLL_ERR_TIMEOUT, NULL,
                  "a stream has come to %s and waits, because an earlier call, %s, must begin "
                  "first, and its stream has not come there; do the streams wait for each other?",
                  late->calls[0].request->kept->name, missing->calls[0].request->kept->name);
  (void)colli_gpu_fail_comm(comm, missing->calls[0].request->kept->name, &error);
}

/* The one in a graph that has come first, of those that have come; NULL: none has. */
static const stream_batch *first_in_graphs(const colli_streams *streams) {
  const stream_batch *batch, *first = NULL;
  TAILQ_FOREACH(batch, &streams->batches, link)
    if (batch->passage.captured && batch->state == EXPECTED &&
        atomic_load(&batch->passage.reached) &&
        (!first || batch->passage.arrival < first->passage.arrival))
      first = batch;
  return first;
}

/* Advances all. */
static int move_all(coll_comm *comm) {
  int moved = 0;
  bool first = true;
  const stream_batch *next_in_graphs =
      comm->streams->captured > 0 ? first_in_graphs(comm->streams) : NULL;
  if (comm->streams->unstarted > 1 && ++comm->streams->polls % POLLS_PER_CHECK == 0)
    check_deadline(comm);
  for (stream_batch *batch = TAILQ_FIRST(&comm->streams->batches), *next; batch; batch = next) {
    next = TAILQ_NEXT(batch, link);
    const bool captured = batch->passage.captured, expected = batch->state == EXPECTED;
    const int changed = move_batch(batch, captured ? batch == next_in_graphs : first);
    moved |= changed;
    first = first && (captured || !expected || changed);
    if (!first && comm->streams->captured == 0 && comm->failure.status == COLL_OK)
      break; /* the others have to wait: there may be thousands */
  }
  return moved;
}

/* ---- a new one ------------------------------------------------------------------------------- */

/* Puts copies and the host's turn into the stream. */
static coll_status fill_stream(stream_batch *batch, coll_error *error) {
  colli_gpu_passage *passage = &batch->passage;
  coll_status status = COLL_OK;
  for (int i = 0; i < batch->count && status == COLL_OK; i++) {
    const colli_gpu_piece pieces[] = {batch->calls[i].stage.input, batch->calls[i].stage.rest};
    status = colli_gpu_passage_copy(passage, COLLI_GPU_TO_HOST, pieces, 2, error);
  }
  if (status == COLL_OK)
    status = colli_gpu_passage_wait(passage, error);
  for (int i = 0; i < batch->count && status == COLL_OK; i++)
    status = colli_gpu_passage_copy(passage, COLLI_GPU_TO_DEVICE, batch->calls[i].stage.result,
                                    batch->calls[i].stage.nresult, error);
  if (status == COLL_OK)
    status = colli_gpu_passage_end(passage, error);
  return status;
}

/* Makes copies for the calls of a batch, and a passage. */
static coll_status prepare(stream_batch *batch, coll_request **requests, int count, void *stream) {
  coll_comm *comm = batch->comm;
  coll_error error = COLL_ERROR_INIT;
  coll_status status = COLL_OK;
  batch->count = count;
  for (int i = 0; i < count; i++)
    batch->calls[i].request = requests[i];
  for (int i = 0; i < count && status == COLL_OK; i++) {
    colli_call *call = requests[i]->kept;
    colli_gpu_places places;
    colli_gpu_find(comm, call, &places);
    status = colli_gpu_stage_make(comm, call, &places, &batch->calls[i].stage);
    if (status == COLL_OK)
      colli_gpu_stage_use(&batch->calls[i].stage, call);
  }
  if (status != COLL_OK)
    return status;
  if (colli_gpu_passage_open(comm->gpu, stream, &batch->passage, &error) != COLL_OK) {
    snprintf(error.operation, sizeof(error.operation), "%s", requests[0]->kept->name);
    return colli_comm_refuse_as(comm, &error);
  }
  batch->passage.on_reached = wake;
  batch->passage.arg = batch;
  return COLL_OK;
}

/* Queues a batch. */
static void append(stream_batch *batch) {
  colli_streams *streams = batch->comm->streams;
  TAILQ_INSERT_TAIL(&streams->batches, batch, link);
  streams->captured += batch->passage.captured;
  if (batch->passage.captured)
    return;
  streams->open++;
  streams->unstarted++;
}

/* The driver did not take all of a passage: what it took goes on at once, or never ends. */
static void give_up(stream_batch *batch) {
  colli_streams *streams = batch->comm->streams;
  colli_gpu_passage_answer(&batch->passage);
  if (batch->passage.captured) /* its capture has failed, and there will be no graph */
    return;
  if (batch->state == EXPECTED)
    streams->unstarted--;
  batch->state = ANSWERED;
  if (colli_gpu_passage_end(&batch->passage, NULL) == COLL_OK)
    return;
  TAILQ_REMOVE(&streams->batches, batch, link);
  streams->open--;
  streams->lost = true;
}

/* Puts a batch into its stream. The driver may wait in this until the stream, which may be full,
 * has done some of its work: others get the family meanwhile, to move that. When the whole batch is
 * in the stream it may have ended. */
static coll_status submit(stream_batch *batch, coll_error *error) {
  coll_comm *comm = batch->comm;
  colli_gpu_thread before;
  coll_status status = colli_gpu_passage_enter(&batch->passage, &before, error);
  if (status == COLL_OK) {
    status = colli_gpu_passage_join_capture(&batch->passage, error);
    if (status != COLL_OK && !batch->passage.captured)
      colli_gpu_leave(comm->gpu, &before);
  }
  if (status != COLL_OK && !batch->passage.captured) { /* nothing is in the stream */
    free_batch(batch);
    return status;
  }
  append(batch);
  colli_call_pause(comm);
  if (status == COLL_OK)
    status = fill_stream(batch, error);
  colli_call_resume(comm);
  if (status != COLL_OK)
    give_up(batch);
  colli_gpu_leave(comm->gpu, &before);
  return status;
}

/* Puts the calls of persistent requests, which it takes over, into a stream. */
static coll_status enqueue(coll_comm *comm, coll_request **requests, int count, void *stream) {
  coll_error error = COLL_ERROR_INIT;
  const char *name = requests[0]->kept->name;
  stream_batch *batch = calloc(1, sizeof(*batch) + (size_t)count * sizeof(*batch->calls));
  if (!batch) {
    for (int i = 0; i < count; i++)
      colli_request_put(requests[i]);
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, name, "out of memory for %d calls", count);
  }
  batch->comm = comm;
  free_released(comm->streams);
  coll_status status = prepare(batch, requests, count, stream);
  if (status != COLL_OK) {
    free_batch(batch);
    return status;
  }
  status = submit(batch, &error);
  if (status == COLL_OK)
    return COLL_OK;
  if (status != COLL_ERR_INVALID_USAGE)
    return colli_gpu_fail_comm(comm, name, &error);
  snprintf(error.operation, sizeof(error.operation), "%s", name);
  return colli_comm_refuse_as(comm, &error);
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
  comm->streams->move = move_all;
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

coll_status colli_stream_call(coll_comm *comm, const colli_call *call, void *stream,
                              colli_keep_fn *keep) {
  colli_group *group = &comm->calls.group;
  coll_request *request = NULL;
  coll_status status = get_ready(comm, call->name);
  if (status == COLL_OK)
    status = keep(comm, call, &request);
  if (status == COLL_OK)
    status =
        group->depth > 0 ? add_to_group(comm, request, stream) : enqueue(comm, &request, 1, stream);
  if (group->depth > 0 && group->refused == COLL_OK)
    group->refused = status;
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
    return enqueue(comm, streams->group, count, streams->group_stream);
  for (int i = 0; i < count; i++)
    colli_request_put(streams->group[i]);
  return refused;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Ends the queue: what a graph may still launch goes on without the communicator. Whether nothing
 * remains. */
static bool end_queue(colli_streams *streams) {
  bool none = true;
  stream_batch *batch;
  TAILQ_FOREACH(batch, &streams->batches, link) {
    colli_gpu_passage_abandon(&batch->passage);
    none = false;
  }
  return none;
}

/* The driver says some time after a graph's end that it is gone. */
static void await_released(coll_comm *comm) {
  colli_streams *streams = comm->streams;
  const uint64_t until_ns = colli_now_ns() + RELEASE_NS;
  colli_comm_wait_begin(comm);
  for (free_released(streams); !TAILQ_EMPTY(&streams->batches); free_released(streams)) {
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
  const bool none = end_queue(streams) && !streams->lost;
  comm->streams = NULL;
  free(streams->group);
  free(streams);
  return none;
}
