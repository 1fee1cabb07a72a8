/*
 * allreduce.c: synchronous data parallel training. Every rank holds the whole model and works on
 * its part of each batch; gradients are summed over the ranks in buckets of whole layers while the
 * backward pass goes on, and every rank makes the same update. With --wire they travel in packets.
 */
#include "trainer/strategies/packets.h"
#include "trainer/strategies/strategies.h"

#include <stdlib.h>

static const char *const doing = "summing gradients";

typedef struct everywhere {
  buckets b;
  packets p; /* with --wire */
} everywhere;

static bool open_allreduce(worker *w, fail *why) {
  everywhere *e = w->state = calloc(1, sizeof(*e));
  if (!e)
    return fail_memory(why, "the buckets");
  return buckets_create(&e->b, w->comm, &w->model, w->o->bucket_bytes, why) &&
         (!w->pending || packets_open(&e->p, w, &e->b, true, why));
}

static void close_allreduce(worker *w) {
  everywhere *e = w->state;
  if (!e)
    return;
  packets_close(&e->p);
  buckets_destroy(&e->b);
  free(e);
  w->state = NULL;
}

/* With --wire, when the packets of all buckets are on their way: adds them, and sends the sums. The
 * ranks do this in the same order, whichever bucket comes first. */
static bool send_sums(worker *w, fail *why) {
  everywhere *e = w->state;
  for (size_t i = 0; w->pending && i < e->b.count; i++)
    if (!packets_sum(&e->p, i, why) || !packets_share(&e->p, i, why))
      return false;
  return true;
}

/* Waits until bucket i has the sums of all ranks. */
static bool reduce_bucket(worker *w, size_t i, fail *why) {
  everywhere *e = w->state;
  return w->pending ? packets_take(&e->p, i, why)
                    : worker_wait(w, &e->b.item[i].request, doing, why);
}

/* One step: this rank's part of the batch, the gradients of all, new weights. */
static bool allreduce_step(worker *w, fail *why) {
  buckets *b = &((everywhere *)w->state)->b;
  shard batch = worker_batch(w), part = shard_of(batch.count, w->rank, w->nranks);
  if (!worker_gradient(w, batch.first + part.first, part.count, 1.0f / (float)batch.count, b->grads,
                       buckets_listener(b), why) ||
      !send_sums(w, why))
    return false;
  bool whole = w->o->clip > 0; /* the length of all gradients must be known before the update */
  for (size_t i = 0; whole && i < b->count; i++)
    if (!reduce_bucket(w, i, why))
      return false;
  worker_clip(w, b->grads);
  for (size_t i = 0; i < b->count; i++) {
    const bucket *item = &b->item[i];
    if (!reduce_bucket(w, i, why))
      return false;
    worker_update(w, item->first, item->count, b->grads + item->first);
    if (!buckets_poll(b, why))
      return false;
  }
  w->updates++;
  if (!w->pending)
    w->sums.sent_bytes += worker_allreduce_bytes(w, w->model.params * sizeof(float));
  return true;
}

static bool allreduce_epoch(worker *w, fail *why) {
  return worker_each_step(w, allreduce_step, why);
}

static const float *allreduce_settle(worker *w, fail *why) {
  everywhere *e = w->state;
  (void)why;
  packets_settle(&e->p);
  return w->params;
}

const strategy strategy_allreduce = {
    .name = "allreduce",
    .about = "gradients summed over the ranks during the backward pass (synchronous)",
    .bits = STRATEGY_EXACT | STRATEGY_ELASTIC,
    .open = open_allreduce,
    .close = close_allreduce,
    .epoch = allreduce_epoch,
    .settle = allreduce_settle,
};
