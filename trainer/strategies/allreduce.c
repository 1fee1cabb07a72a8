/*
 * allreduce.c: synchronous data parallel training. Every rank holds the whole model and works on
 * its part of each batch; gradients are summed over the ranks in buckets of whole layers while the
 * backward pass goes on, and every rank makes the same update.
 */
#include "trainer/strategies/buckets.h"
#include "trainer/strategies/strategies.h"

#include <stdlib.h>

static const char *const doing = "summing gradients";

static bool open_allreduce(worker *w, fail *why) {
  buckets *b = calloc(1, sizeof(*b));
  if (!b)
    return fail_memory(why, "the buckets");
  w->state = b;
  return buckets_create(b, w->comm, &w->model, w->o->bucket_bytes, why);
}

static void close_allreduce(worker *w) {
  if (w->state)
    buckets_destroy(w->state);
  free(w->state);
  w->state = NULL;
}

/* One step: this rank's part of the batch, the gradients of all, new weights. */
static bool step(worker *w, fail *why) {
  buckets *b = w->state;
  shard batch = worker_batch(w), part = shard_of(batch.count, w->rank, w->nranks);
  if (!worker_gradient(w, batch.first + part.first, part.count, 1.0f / (float)batch.count, b->grads,
                       buckets_listener(b), why))
    return false;
  bool whole = w->o->clip > 0; /* the length of all gradients must be known before the update */
  for (size_t i = 0; whole && i < b->count; i++)
    if (!worker_wait(w, &b->item[i].request, doing, why))
      return false;
  worker_clip(w, b->grads);
  for (size_t i = 0; i < b->count; i++) {
    const bucket *item = &b->item[i];
    if (!worker_wait(w, &b->item[i].request, doing, why))
      return false;
    worker_update(w, item->first, item->count, b->grads + item->first);
    if (!buckets_poll(b, why))
      return false;
  }
  w->updates++;
  w->sums.sent_bytes += worker_allreduce_bytes(w, w->model.params * sizeof(float));
  return true;
}

static bool epoch(worker *w, fail *why) {
  return worker_each_step(w, step, why);
}

static const float *settle(worker *w, fail *why) {
  (void)why;
  return w->params;
}

const strategy strategy_allreduce = {
    .name = "allreduce",
    .about = "gradients summed over the ranks during the backward pass (synchronous)",
    .bits = STRATEGY_EXACT | STRATEGY_ELASTIC,
    .open = open_allreduce,
    .close = close_allreduce,
    .epoch = epoch,
    .settle = settle,
};
