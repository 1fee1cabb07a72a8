/* stream_batch.c: the life of calls in a stream. */
#include "libcoll/stream/stream_batch.h"

#include <stdlib.h>

#include "libcoll/base/error.h"
#include "libcoll/progress/doorbell.h"
#include "libcoll/progress/progress_thread.h"
#include "libcoll/progress/wait.h"
#include "libcoll/run/request.h"
#include "libcoll/run/run.h"
#include "libcoll/stream/direct_in_place.h"
#include "libcoll/stream/direct_meet.h"

#define PER_THREAD_STREAM ((colli_cu_stream)2) /* CU_STREAM_PER_THREAD */
#define POLLS_PER_CHECK   64u                  /* of the deadline of streams that are held */

typedef colli_stream_batch stream_batch;

void colli_batch_wake(void *arg) {
  const stream_batch *batch = arg;
  colli_family *family = batch->comm->family;
  if (batch->passage.captured && batch->passage.come == 1)
    atomic_fetch_add(&batch->comm->streams->in_graphs, 1);
  atomic_fetch_add(&family->wakes, 1);
  colli_progress_wake(family);
  colli_doorbells_ring(family);
}

/* Whether a new batch is in another stream than the last one. The handle of the default stream of
 * each thread names several. */
static bool is_elsewhere(const stream_batch *batch) {
  return batch->passage.stream != batch->comm->streams->stream ||
         batch->passage.stream == PER_THREAD_STREAM;
}

bool colli_batch_waits(const stream_batch *batch) {
  const colli_streams *streams = batch->comm->streams;
  return !batch->passage.captured && streams->open > 0 && (streams->several || is_elsewhere(batch));
}

void colli_batch_append(stream_batch *batch) {
  colli_streams *streams = batch->comm->streams;
  TAILQ_INSERT_TAIL(&streams->batches, batch, link);
  streams->captured += batch->passage.captured;
  if (batch->passage.captured)
    return;
  streams->several = streams->open > 0 && (streams->several || is_elsewhere(batch));
  streams->stream = batch->passage.stream;
  streams->open++;
  if (batch->stops > 0)
    streams->unstarted++;
  else /* the host has met the others' in the call */
    batch->state = COLLI_BATCH_ANSWERED;
  streams->silent |= batch->in_gpu && batch->direct.way != COLLI_GPU_ORDERED;
}

stream_batch *colli_batch_make(coll_comm *comm, const char *name, int count, bool in_gpu) {
  stream_batch *batch = calloc(1, sizeof(*batch) + (size_t)count * sizeof(*batch->calls));
  if (!batch) {
    (void)colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, name, "out of memory for %d calls", count);
    return NULL;
  }
  batch->comm = comm;
  batch->in_gpu = in_gpu;
  batch->count = count;
  return batch;
}

void colli_batch_free(stream_batch *batch) {
  for (int i = 0; i < batch->count; i++) {
    colli_gpu_stage_free(&batch->calls[i].stage);
    if (batch->calls[i].request)
      colli_request_put(batch->calls[i].request);
  }
  if (batch->in_gpu)
    colli_direct_call_free(&batch->direct);
  colli_gpu_passage_close(&batch->passage);
  free(batch);
}

void colli_batch_abandon(stream_batch *batch) {
  colli_gpu_passage_abandon(&batch->passage);
  for (int i = 0; i < batch->count; i++)
    if (!(batch->calls[i].request->registered & COLLI_HAS_LENT))
      colli_exec_return_lent(batch->calls[i].stage.lent);
}

/* Whether the stream's own part of a call is in GPU memory, where those of others must not be in
 * its way. */
static bool works_in_gpu(const stream_batch *batch) {
  return batch->in_gpu || batch->levelled;
}

/* Remembers why an operation failed alone. */
static void note_status(coll_comm *comm, coll_status status) {
  if (comm->streams->status == COLL_OK)
    comm->streams->status = status;
}

/* Whether the stream does not wait for the host at its next stop, but for the other ranks. */
static bool spins_next(const stream_batch *batch) {
  return batch->in_gpu && batch->direct.way == COLLI_GPU_SPIN && batch->stop >= batch->direct.waits;
}

bool colli_batch_has_left(const stream_batch *batch) {
  if (!batch->in_gpu || batch->direct.way == COLLI_GPU_ORDERED)
    return atomic_load(&batch->passage.left);
  return colli_direct_is_past(colli_direct_ended(batch->comm->direct, batch->direct.number),
                              batch->direct.number);
}

/* Whether the stream has come to its next stop, or has gone on without the others. */
static bool has_come(const stream_batch *batch) {
  if (!spins_next(batch))
    return atomic_load(&batch->passage.reached);
  const colli_direct_words *words = colli_direct_words_of(batch->comm->direct);
  const uint32_t meet = batch->direct.first + batch->stop - batch->direct.waits;
  return colli_direct_is_past(&words->arrived, meet) || colli_batch_has_left(batch);
}

/* Whether the stream will not stop again. */
static bool is_at_last_stop(const stream_batch *batch) {
  return batch->stop + 1 >= batch->stops;
}

/* Fails the communicator because a call that has begun cannot go on. */
static void fail_call(const stream_batch *batch) {
  coll_comm *comm = batch->comm;
  const coll_error reason = comm->failure.error;
  if (comm->failure.status == COLL_OK)
    (void)colli_gpu_fail_comm(comm, batch->calls[0].request->kept->name, &reason);
}

/* Starts the calls, up to the first that fails; or lets all ranks come to a stop of one call. */
static void start(stream_batch *batch) {
  coll_comm *comm = batch->comm;
  /* Not all ranks have the stop where a stream waits for calls in other streams. */
  const unsigned place =
      colli_direct_place(COLLI_GPU_ORDERED, batch->passage.captured,
                         batch->stop - batch->direct.waits, batch->direct.places.check);
  batch->state = COLLI_BATCH_RUNNING;
  batch->started = 0;
  atomic_store(&batch->passage.reached, false); /* it does not come again before the answer */
  if (!batch->passage.captured && is_at_last_stop(batch))
    comm->streams->unstarted--;
  if (batch->levelled)
    comm->levels->operation = batch->calls[0].request->kept->name;
  while (batch->started < batch->count) {
    coll_request *request = batch->calls[batch->started].request;
    colli_gpu_stage_pack(&batch->calls[batch->started].stage);
    const coll_status status = works_in_gpu(batch) ? colli_call_meet(comm, request, place)
                                                   : colli_call_start_again(comm, request);
    if (status != COLL_OK) {
      note_status(comm, status);
      if (works_in_gpu(batch)) /* its stream goes on without the others, who must not trust it */
        fail_call(batch);
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

/* Whether the ranks have met, but one had gone on without the others while this one read its
 * memory: for a moment its reason is awaited. */
static bool is_torn(stream_batch *batch) {
  coll_comm *comm = batch->comm;
  if (!batch->in_gpu || comm->failure.status != COLL_OK || !colli_direct_is_torn(&batch->direct))
    return false;
  const uint64_t now_ns = colli_now_ns();
  if (batch->direct.torn_ns == 0)
    batch->direct.torn_ns = now_ns;
  if (now_ns - batch->direct.torn_ns < COLLI_DIRECT_REASON_NS)
    return true;
  const char *name = batch->calls[0].request->kept->name;
  coll_error error = COLL_ERROR_INIT;
  colli_direct_set_unexplained(&error);
  (void)colli_gpu_fail_comm(comm, name, &error);
  return false;
}

/* Lets the stream go on to its next stop, or to the end. */
static void pass(stream_batch *batch) {
  const bool spins = spins_next(batch);
  if (batch->comm->failure.status != COLL_OK && batch->comm->direct)
    colli_direct_stop(batch->comm->direct);
  batch->stop++;
  batch->state = batch->stop < batch->stops ? COLLI_BATCH_EXPECTED : COLLI_BATCH_ANSWERED;
  if (spins)
    return;
  atomic_store(&batch->passage.reached, false);
  colli_gpu_passage_answer(&batch->passage);
}

/* Finishes the operations, and lets the stream go on. */
static void answer(stream_batch *batch) {
  for (int i = 0; i < batch->started; i++) {
    coll_request *request = batch->calls[i].request; /* persistent: it remains */
    const char *name = request->kept->name;
    coll_status status = colli_request_complete(&request);
    if (status == COLL_OK)
      status = colli_gpu_stage_arrive(batch->comm, name, &batch->calls[i].stage);
    if (status == COLL_OK)
      colli_gpu_stage_unpack(&batch->calls[i].stage);
    else
      note_status(batch->comm, status);
  }
  pass(batch);
}

/* The stream has passed. In a graph, it may come again. */
static void end_passage(stream_batch *batch) {
  colli_streams *streams = batch->comm->streams;
  atomic_store(&batch->passage.left, false);
  batch->state = COLLI_BATCH_EXPECTED;
  batch->stop = 0;
  if (batch->passage.captured) {
    atomic_fetch_sub(&streams->in_graphs, 1);
    return;
  }
  TAILQ_REMOVE(&streams->batches, batch, link);
  streams->open--;
  colli_batch_free(batch);
}

/* Whether a batch has begun, and will stop again. */
static bool is_midway(const stream_batch *batch) {
  return batch->state == COLLI_BATCH_RUNNING ? !is_at_last_stop(batch)
                                             : batch->state == COLLI_BATCH_EXPECTED && batch->stop;
}

/* Whether neither this batch nor one behind it has begun: they begin in this order but for those in
 * graphs. There may be thousands. */
static bool is_first_waiting(const stream_batch *batch) {
  return batch->state == COLLI_BATCH_EXPECTED && batch->stop == 0 &&
         batch->comm->streams->captured == 0;
}

/* The batch that is midway, or NULL. No other begins meanwhile, because the ranks' stops could
 * follow each other in another order. */
static const stream_batch *find_midway(const colli_streams *streams) {
  const stream_batch *batch;
  TAILQ_FOREACH(batch, &streams->batches, link) {
    if (is_midway(batch))
      return batch;
    if (is_first_waiting(batch))
      break;
  }
  return NULL;
}

/* Whether the stream of another call still uses slots. */
static bool are_slots_used(const stream_batch *batch) {
  const stream_batch *other;
  TAILQ_FOREACH(other, &batch->comm->streams->batches, link) {
    if (is_first_waiting(other))
      break;
    if (other != batch && works_in_gpu(other) &&
        (other->state != COLLI_BATCH_EXPECTED || other->stop) && !colli_batch_has_left(other))
      return true;
  }
  return false;
}

void colli_batches_free_released(colli_streams *streams) {
  stream_batch *batch = streams->captured > 0 ? TAILQ_FIRST(&streams->batches) : NULL;
  for (stream_batch *next; batch; batch = next) {
    next = TAILQ_NEXT(batch, link);
    if (!atomic_load(&batch->passage.released) || batch->state != COLLI_BATCH_EXPECTED)
      continue;
    streams->captured--;
    TAILQ_REMOVE(&streams->batches, batch, link);
    colli_batch_free(batch);
  }
}

/* Whether a batch whose stream has come may go on. `first`: all before it have been started. */
static bool is_its_turn(const stream_batch *batch, bool first, const stream_batch *midway) {
  const coll_comm *comm = batch->comm;
  if (comm->failure.status != COLL_OK)
    return true; /* to end without a result */
  if (comm->failure.suspended || !first || (midway && midway != batch))
    return false;
  return !works_in_gpu(batch) || batch->stop > 0 || !are_slots_used(batch);
}

/* Advances a batch. */
static int move_batch(stream_batch *batch, bool first, const stream_batch *midway) {
  switch (batch->state) {
  case COLLI_BATCH_EXPECTED:
    if (!has_come(batch) || !is_its_turn(batch, first, midway))
      return 0;
    if (batch->in_gpu && batch->direct.waits && batch->stop == 0)
      pass(batch); /* nobody else is waited for */
    else
      start(batch); /* of a failed communicator: none */
    return 1;
  case COLLI_BATCH_RUNNING:
    if (!has_ended(batch) || (is_at_last_stop(batch) && is_torn(batch)))
      return 0;
    answer(batch);
    return 1;
  case COLLI_BATCH_ANSWERED: {
    const bool stopped = atomic_load(&batch->passage.reached); /* before `left`: it may be again */
    if (colli_batch_has_left(batch)) {
      end_passage(batch);
      return 1;
    }
    if (stopped) /* it was given up */
      pass(batch);
    return stopped;
  }
  }
  return 0;
}

/* Whether all ranks are awaited, which has a deadline of its own. */
static bool is_running(const colli_streams *streams) {
  const stream_batch *batch;
  TAILQ_FOREACH(batch, &streams->batches, link)
    if (batch->state == COLLI_BATCH_RUNNING)
      return true;
  return false;
}

/* Fails the communicator if a stream has waited for long, because the stream of an earlier call
 * does not come. */
static void check_deadline(coll_comm *comm) {
  const stream_batch *missing = TAILQ_FIRST(&comm->streams->batches), *late;
  while (missing && (missing->state != COLLI_BATCH_EXPECTED || missing->passage.captured))
    missing = TAILQ_NEXT(missing, link);
  for (late = missing; late; late = TAILQ_NEXT(late, link))
    if (late != missing && late->state == COLLI_BATCH_EXPECTED && has_come(late))
      break;
  if (!late || comm->failure.status != COLL_OK || is_running(comm->streams)) {
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

/* Whether the stream of a batch in a graph has come and the batch waits to begin; perhaps the host
 * does not know yet that the stream had left it before. */
static bool has_come_in_graph(const stream_batch *batch) {
  const bool begins = (batch->state == COLLI_BATCH_EXPECTED && batch->stop == 0) ||
                      batch->state == COLLI_BATCH_ANSWERED;
  return batch->passage.captured && begins && atomic_load(&batch->passage.reached);
}

/* The one in a graph that has come first, of those that have come and not begun; NULL: none has. */
static const stream_batch *first_in_graphs(const colli_streams *streams) {
  const stream_batch *batch, *first = NULL;
  /* Streams come meanwhile: to one that was looked at before, and then to the one found. The second
   * look sees all that came before that. */
  for (int look = 0; look == 0 || (look < 2 && first); look++)
    TAILQ_FOREACH(batch, &streams->batches, link)
      if (has_come_in_graph(batch) && (!first || batch->passage.arrival < first->passage.arrival))
        first = batch;
  return first;
}

/* Whether a call that is not in a graph has met the others without the host, which has not begun it
 * yet: no graph goes first, because its stream may have come after that. */
static bool is_behind(const colli_streams *streams) {
  const stream_batch *batch;
  TAILQ_FOREACH(batch, &streams->batches, link)
    if (!batch->passage.captured && batch->state == COLLI_BATCH_EXPECTED)
      return spins_next(batch) && has_come(batch); /* only the first may begin */
  return false;
}

int colli_batches_move(coll_comm *comm) {
  int moved = 0;
  bool first = true;
  colli_streams *streams = comm->streams;
  const bool graphs = streams->captured > 0 && !is_behind(streams);
  const stream_batch *next_in_graphs = graphs ? first_in_graphs(streams) : NULL;
  const stream_batch *midway = comm->direct ? find_midway(streams) : NULL;
  if (streams->unstarted > 1 && ++streams->polls % POLLS_PER_CHECK == 0)
    check_deadline(comm);
  for (stream_batch *batch = TAILQ_FIRST(&streams->batches), *next; batch; batch = next) {
    next = TAILQ_NEXT(batch, link);
    const bool captured = batch->passage.captured;
    const bool ends = batch->state == COLLI_BATCH_ANSWERED; /* perhaps it is freed now */
    const bool leads = captured ? batch == next_in_graphs || batch->stop > 0 : first;
    moved |= move_batch(batch, leads, midway);
    if (ends)
      continue;
    if (is_midway(batch))
      midway = batch;
    else if (midway == batch)
      midway = NULL;
    first = first && (captured || (batch->state != COLLI_BATCH_EXPECTED && !is_midway(batch)));
    if (!first && streams->captured == 0 && comm->failure.status == COLL_OK)
      break; /* the others have to wait: there may be thousands */
  }
  return moved;
}

/* Puts the end of a batch into its stream. */
static coll_status put_end(stream_batch *batch) {
  if (batch->in_gpu && batch->direct.way != COLLI_GPU_ORDERED)
    return colli_direct_put_end(batch->comm->direct, &batch->passage, batch->direct.number, NULL);
  return colli_gpu_passage_end(&batch->passage, NULL);
}

void colli_batch_give_up(stream_batch *batch) {
  colli_streams *streams = batch->comm->streams;
  if (batch->in_gpu)
    colli_direct_stop(batch->comm->direct);
  colli_gpu_passage_answer(&batch->passage);
  if (batch->passage.captured) /* its capture has failed, and there will be no graph */
    return;
  if (batch->state != COLLI_BATCH_ANSWERED &&
      !(batch->state == COLLI_BATCH_RUNNING && is_at_last_stop(batch)))
    streams->unstarted--;
  batch->state = COLLI_BATCH_ANSWERED;
  batch->stop = batch->stops;
  if (put_end(batch) == COLL_OK)
    return;
  colli_batch_abandon(batch);
  TAILQ_REMOVE(&streams->batches, batch, link);
  streams->open--;
  streams->lost = true;
}
