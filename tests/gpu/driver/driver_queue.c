/* driver_queue.c: the queues of the devices and the thread that works for all of them. */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "driver.h"

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
  s->kernels += op->kind == KERNEL;
  pthread_cond_broadcast(&s->work);
  return COLLI_CUDA_SUCCESS;
}

colli_cu_result driver_submit(driver_stream *stream, const driver_op *fields) {
  return stream->capture ? driver_graph_add(stream, fields) : enqueue(stream, fields);
}

void driver_wait(void) {
  driver_state *s = driver_get();
  pthread_cond_wait(&s->changed, &s->lock);
}

colli_cu_result driver_drain(driver_stream *stream, uint64_t position) {
  driver_context *context = stream->object.context;
  stream->object.users++;
  while (stream->done < position)
    driver_wait();
  driver_object_drop(&stream->object, false);
  return context->error;
}

/* Takes the operation out that heads a queue, and frees it. */
static void end_op(driver_device *d, driver_queue *q) {
  driver_state *s = driver_get();
  driver_op *op = q->first;
  q->first = op->next;
  d->legacy_pending -= op->stream->legacy;
  s->kernels -= op->kind == KERNEL;
  op->stream->done++;
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
  pthread_cond_broadcast(&s->changed);
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
 */
static bool go_around(driver_state *s, bool *polls) {
  const int queues = s->settings.queues;
  bool moved = false;
  const int start = (int)(driver_random(&s->random_turn) % (uint64_t)queues);
  for (int i = 0; i < s->settings.devices * queues && !s->stop; i++) {
    driver_device *d = &s->devices[i / queues];
    driver_queue *q = &d->queues[(i + start) % queues];
    if (!q->first || !in_order(d, q->first))
      continue;
    const op_progress progress = driver_run(q->first);
    moved = moved || progress != OP_WAITS;
    *polls = *polls || (progress == OP_WAITS && q->first->kind == WAIT_VALUE);
    if (progress == OP_ENDS)
      end_op(d, q);
  }
  return moved;
}

/* Releases the lock for a moment, until there is work if nothing else can change a queue. */
static void pause_worker(driver_state *s, bool moved, bool polls) {
  if (moved || s->wanted_rounds > s->rounds) {
    pthread_mutex_unlock(&s->lock);
    sched_yield();
    pthread_mutex_lock(&s->lock);
  } else if (polls) {
    struct timespec until; /* others write the value, and tell nobody */
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&s->work, &s->lock, &until);
  } else if (!s->stop) {
    pthread_cond_wait(&s->work, &s->lock);
  }
}

void *driver_work(void *state) {
  driver_state *s = state;
  pthread_mutex_lock(&s->lock);
  while (!s->stop) {
    bool polls = false;
    bool moved = go_around(s, &polls);
    moved = driver_user_objects_end() || moved;
    s->rounds++;
    if (s->wanted_rounds >= s->rounds)
      pthread_cond_broadcast(&s->changed);
    if (!s->running)
      driver_memory_unmap_freed();
    pause_worker(s, moved, polls);
  }
  pthread_mutex_unlock(&s->lock);
  return NULL;
}
