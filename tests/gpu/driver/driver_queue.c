/* driver_queue.c: the queues of the devices and the thread that works for all of them. */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "driver.h"

/* How long the worker dozes: calls that wait do its work. And so often, before it falls asleep. */
enum { DOZE_NS = 100000, IDLE_ROUNDS = 20 };

void driver_wake(void) {
  driver_state *s = driver_get();
  if (s->asleep)
    pthread_cond_signal(&s->work);
  s->asleep = false;
}

/* Appends a copy of an operation to the queue of its stream. */
static colli_cu_result enqueue(driver_stream *stream, const driver_op *fields) {
  driver_state *s = driver_get();
  driver_device *d = driver_device_of(stream->object.context);
  driver_queue *q = &d->queues[stream->queue];
  driver_op *op = malloc(sizeof(*op));
  if (!op)
    return COLLI_CUDA_ERROR_OUT_OF_MEMORY;
  *op = *fields;
  op->stream = stream;
  op->number = ++s->ops;
  op->next = NULL;
  if (q->first)
    q->last->next = op;
  else
    q->first = op;
  q->last = op;
  stream->queued++;
  stream->object.users++;
  if (op->after)
    op->after->object.users++;
  if (op->function)
    op->function->module->object.users++;
  if (op->graph)
    op->graph->users++;
  d->legacy_pending += stream->legacy;
  s->pending++;
  s->kernels += op->kind == KERNEL;
  driver_wake();
  return COLLI_CUDA_SUCCESS;
}

colli_cu_result driver_submit(driver_stream *stream, const driver_op *fields) {
  return stream->capture ? driver_graph_add(stream, fields) : enqueue(stream, fields);
}

void driver_wait(void) {
  driver_state *s = driver_get();
  pthread_cond_wait(&s->changed, &s->lock);
}

/* Takes the operation out that heads a queue, and frees it. */
static void end_op(driver_device *d, driver_queue *q) {
  driver_state *s = driver_get();
  driver_op *op = q->first;
  q->first = op->next;
  d->legacy_pending -= op->stream->legacy;
  s->pending--;
  s->kernels -= op->kind == KERNEL;
  op->stream->done++;
  for (driver_waiter *w = op->stream->waiters; w; w = w->next)
    if (op->stream->done >= w->position)
      pthread_cond_signal(&w->ended);
  if (!s->kernels)
    pthread_cond_broadcast(&s->changed);
  if (op->after)
    driver_object_drop(&op->after->object, false);
  if (op->function)
    driver_object_drop(&op->function->module->object, false);
  driver_object_drop(&op->stream->object, false);
  if (op->graph)
    driver_object_drop(op->graph, false);
  else
    free(op->params);
  free(op->staged);
  free(op);
}

/*
 * Whether an operation may begin as far as the default stream matters: that stream waits for all
 * earlier operations of streams that are not apart, and those wait for its earlier ones.
 */
static bool in_order(const driver_device *d, const driver_op *op) {
  if (op->stream->apart || (!op->stream->legacy && !d->legacy_pending))
    return true;
  for (int i = 0; i < driver_get()->settings.queues; i++)
    for (const driver_op *o = d->queues[i].first; o && o->number < op->number; o = o->next)
      if (!o->stream->apart && o->stream->legacy != op->stream->legacy)
        return false;
  return true;
}

/* Goes once around all queues. True if something went on; says whether a queue waits for a value.
 * Functions of the program are for the worker, because threads of the program may hold locks. */
static bool go_around(driver_state *s, bool worker, bool *polls) {
  const int queues = s->settings.queues;
  bool moved = false;
  const int start = (int)(driver_random(&s->random_turn) % (uint64_t)queues);
  for (int i = 0; i < s->settings.devices * queues && !s->stop; i++) {
    driver_device *d = &s->devices[i / queues];
    driver_queue *q = &d->queues[(i + start) % queues];
    if (!q->first || !in_order(d, q->first))
      continue;
    if (q->first->kind == HOST && !worker) {
      s->asleep = false;
      pthread_cond_signal(&s->work);
      continue;
    }
    const op_progress progress = driver_run(q->first);
    moved = moved || progress != OP_WAITS;
    *polls = *polls || (progress == OP_WAITS && q->first->kind == WAIT_VALUE);
    if (progress == OP_ENDS)
      end_op(d, q);
  }
  return moved;
}

/* The same unless somebody else is busy with it. */
static bool take_turn(driver_state *s, bool worker, bool *polls) {
  if (s->busy)
    return false;
  s->busy = true;
  const bool moved = go_around(s, worker, polls);
  s->busy = false;
  driver_memory_unmap_freed();
  return moved;
}

/* Lets others have the lock for a moment. */
static void give_way(driver_state *s) {
  pthread_mutex_unlock(&s->lock);
  sched_yield();
  pthread_mutex_lock(&s->lock);
}

/* Waits until an operation has ended, and does the worker's work meanwhile. */
static void wait_as(driver_stream *stream, driver_waiter *me) {
  driver_state *s = driver_get();
  bool polls = false;
  while (stream->done < me->position) {
    const bool moved = take_turn(s, false, &polls);
    if (stream->done >= me->position)
      break;
    if (moved)
      give_way(s);
    else
      pthread_cond_wait(&me->ended, &s->lock);
  }
}

colli_cu_result driver_drain(driver_stream *stream, uint64_t position) {
  driver_context *context = stream->object.context;
  driver_waiter me = {.position = position, .next = stream->waiters}, **link = &stream->waiters;
  if (stream->done >= position)
    return context->error;
  pthread_cond_init(&me.ended, NULL);
  stream->waiters = &me;
  stream->object.users++;
  wait_as(stream, &me);
  while (*link != &me)
    link = &(*link)->next;
  *link = me.next;
  pthread_cond_destroy(&me.ended);
  driver_object_drop(&stream->object, false);
  return context->error;
}

colli_cu_result driver_poll(driver_stream *stream, uint64_t position) {
  driver_context *context = stream->object.context;
  bool polls = false;
  if (stream->done >= position)
    return context->error;
  stream->object.users++;
  take_turn(driver_get(), false, &polls);
  const bool ended = stream->done >= position;
  driver_object_drop(&stream->object, false);
  return context->error ? context->error : ended ? COLLI_CUDA_SUCCESS : COLLI_CUDA_ERROR_NOT_READY;
}

/* Lets the worker sleep, but not longer than this. */
static void doze(driver_state *s) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += DOZE_NS;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  pthread_cond_timedwait(&s->work, &s->lock, &until);
}

/* Lets the worker sleep until somebody wakes it. */
static void sleep_until_woken(driver_state *s) {
  s->asleep = true;
  while (s->asleep && !s->stop)
    pthread_cond_wait(&s->work, &s->lock);
  s->asleep = false;
}

void *driver_work(void *state) {
  driver_state *s = state;
  uint64_t ops = 0;
  int idle = 0; /* rounds in which nothing went on, and no operation was new */
  pthread_mutex_lock(&s->lock);
  while (!s->stop) {
    bool polls = s->busy; /* others write values, or go around the queues, and tell nobody */
    const bool round = !s->busy;
    bool moved = take_turn(s, true, &polls);
    moved = driver_user_objects_end() || moved;
    s->rounds += round;
    if (s->wanted_rounds >= s->rounds)
      pthread_cond_broadcast(&s->changed);
    idle = moved || polls || ops != s->ops ? 0 : idle + 1;
    ops = s->ops;
    if ((moved && s->pending) || s->unused || (round && s->wanted_rounds > s->rounds))
      give_way(s);
    else if (idle < IDLE_ROUNDS)
      doze(s);
    else
      sleep_until_woken(s);
  }
  pthread_mutex_unlock(&s->lock);
  return NULL;
}
