/*
 * allreduce.c: synchronous data parallel training. Every rank holds the whole model and works on
 * its part of each batch; the gradients are summed over the ranks, so all make the same update.
 *
 *     for each batch, on every rank:
 *       g = gradient of this rank's part of the batch / samples of the whole batch
 *       g = all-reduce(g)       bucket by bucket (buckets.h), during the backward pass
 *       w = optimizer(w, g)     bucket by bucket
 *
 * Each rank sends 2 (n - 1) / n times the model in a step.
 *
 * S. Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training, VLDB 2020.
 */
#include "trainer/strategies/buckets.h"
#include "trainer/strategies/strategy.h"

static bool open_allreduce(worker *w, fail *why) {
  return buckets_open(w->state, w, false, why);
}

/* What packets of sums lacked is not lost. */
static void close_allreduce(worker *w) {
  buckets_settle(w->state);
}

/* With --clip: cuts all gradients to length, for which all must have come. */
static bool clip(worker *w, buckets *b, fail *why) {
  for (size_t i = 0; i < b->count; i++)
    if (!buckets_wait(b, i, why))
      return false;
  worker_clip(w, b->grads);
  return true;
}

/* One step: this rank's part of the batch, the gradients of all, new weights. */
static bool allreduce_step(worker *w, fail *why) {
  buckets *b = w->state;
  if (!worker_batch_gradient(w, w->rank, w->nranks, b->grads, buckets_listener(b), why) ||
      (w->o->clip > 0 && !clip(w, b, why)))
    return false;
  for (size_t i = 0; i < b->count; i++) {
    const bucket *item = &b->item[i];
    if (!buckets_wait(b, i, why))
      return false;
    worker_update(w, item->first, item->count, b->grads + item->first);
  }
  w->updates++;
  return true;
}

static const float *allreduce_settle(worker *w, fail *why) {
  (void)why;
  buckets_settle(w->state);
  return w->params;
}

const strategy strategy_allreduce = {
    .name = "allreduce",
    .about = "gradients summed over the ranks during the backward pass (synchronous)",
    .bits = STRATEGY_EXACT | STRATEGY_ELASTIC,
    .bytes = sizeof(buckets),
    .open = open_allreduce,
    .close = close_allreduce,
    .step = allreduce_step,
    .settle = allreduce_settle,
};
