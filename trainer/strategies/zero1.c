/*
 * zero1.c: synchronous training with the optimizer's memory split over the ranks. An all-reduce is
 * a reduce-scatter and an all-gather. Here the update comes between them, so a rank updates one
 * part of each bucket, and needs the velocity (and Adam's squares) of that part alone:
 *
 *     rank 0   [ g g | g g | g g ]  reduce-   [ g ]  update  [ w ]  all-     [ w w | w w | w w ]
 *     rank 1   [ g g | g g | g g ]  scatter   [ g ]  of one  [ w ]  gather   [ w w | w w | w w ]
 *     rank 2   [ g g | g g | g g ]  ------->  [ g ]  part    [ w ]  ------>  [ w w | w w | w w ]
 *
 *     for each batch, on every rank:
 *       g = gradient of this rank's part of the batch / samples of the whole batch
 *       for each bucket:
 *         g[mine] = reduce-scatter(g)              during the backward pass
 *         w[mine] = optimizer(w[mine], g[mine])
 *         w = all-gather(w[mine])                  while later buckets are updated
 *
 * Each rank sends 2 (n - 1) / n times the model in a step, as allreduce does, and has 1 / n of the
 * optimizer's memory. For a checkpoint rank 0 gathers the whole, until the next epoch. If a rank is
 * lost, its part of the optimizer's memory begins at 0 again. With --wire gradients travel in
 * packets, and weights as they are.
 *
 * S. Rajbhandari, J. Rasley, O. Ruwase, Y. He, ZeRO: Memory Optimizations Toward Training Trillion
 * Parameter Models, SC 2020 (stage 1).
 */
#include "trainer/ranks.h"
#include "trainer/strategies/buckets.h"
#include "trainer/strategies/strategy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORIES = 2 }; /* velocity, and squares if the optimizer has them */

typedef struct zero {
  buckets b;
  float *memory[MEMORIES]; /* of this rank's parts, bucket after bucket; NULL: not needed */
} zero;

static const char *const doing = "sharing an update";

/* The worker's array for one memory of the optimizer, of the whole model. */
static float **whole_of(worker *w, int m) {
  return m == 0 ? &w->velocity : &w->squares;
}

/* This rank's part of bucket i. */
static shard part_of(const zero *z, size_t i) {
  return buckets_part(&z->b, &z->b.item[i], z->b.rank);
}

/* Copies this rank's parts of an array of the whole model to its own memory; `back`: from there. */
static void copy_parts(const zero *z, float *whole, float *own, bool back) {
  for (size_t i = 0; i < z->b.count; i++) {
    shard part = part_of(z, i);
    float *there = whole + part.first;
    memcpy(back ? there : own, back ? own : there, part.count * sizeof(float));
    own += part.count;
  }
}

/* Frees the optimizer's memory of the whole model. */
static void drop_whole(worker *w) {
  for (int m = 0; m < MEMORIES; m++) {
    free(*whole_of(w, m));
    *whole_of(w, m) = NULL;
  }
}

/* How many memories the optimizer has. */
static int memories(const worker *w) {
  return optim_has_squares(w->o) ? 2 : 1;
}

/* Takes memory for the whole model again, all 0. */
static bool take_whole(worker *w, fail *why) {
  drop_whole(w);
  for (int m = 0; m < memories(w); m++)
    if (!(*whole_of(w, m) = matrix_zeroes(w->model.params)))
      return fail_memory(why, "the optimizer of the whole model");
  return true;
}

/* Keeps this rank's parts of the optimizer's memory, and frees the whole. */
static bool open_zero(worker *w, fail *why) {
  zero *z = w->state;
  size_t bytes = 0;
  if (!buckets_open(&z->b, w, true, why))
    return false;
  for (size_t i = 0; i < z->b.count; i++)
    bytes += part_of(z, i).count * sizeof(float);
  for (int m = 0; m < memories(w); m++) {
    if (!(z->memory[m] = worker_memory(w, bytes, why)))
      return false;
    copy_parts(z, *whole_of(w, m), z->memory[m], false);
  }
  w->optimizer_bytes = (size_t)memories(w) * bytes;
  drop_whole(w);
  return true;
}

/* With --clip: the norm of all gradients, of which each rank has the sums of its parts. */
static bool clip(worker *w, fail *why) {
  zero *z = w->state;
  double square = 0;
  for (size_t i = 0; i < z->b.count; i++) {
    shard part = part_of(z, i);
    if (!buckets_wait(&z->b, i, why))
      return false;
    square += pow(optim_norm(part.count, z->b.grads + part.first), 2);
  }
  coll_request *request = NULL;
  coll_status status =
      coll_iallreduce(&square, &square, 1, COLL_FLOAT64, COLL_SUM, w->comm, &request);
  if (!worker_finish(w, status, &request, doing, why))
    return false;
  float factor = (float)((double)w->o->clip / sqrt(square));
  if (factor < 1.0f)
    for (size_t i = 0; i < z->b.count; i++)
      optim_scale(part_of(z, i).count, z->b.grads + part_of(z, i).first, factor);
  return true;
}

/* Starts to put the new parts of bucket i together on all ranks. */
static bool gather_weights(worker *w, size_t i, fail *why) {
  zero *z = w->state;
  bucket *item = &z->b.item[i];
  coll_status status =
      coll_iallgatherv(w->params + part_of(z, i).first, w->params + item->first,
                       buckets_lengths(&z->b, item), NULL, COLL_FLOAT32, w->comm, &item->request);
  w->sums.sent_bytes += allreduce_bytes(w->nranks, item->count * sizeof(float)) / 2;
  return succeeded(why, w->comm, status, doing);
}

/* One step: this rank's part of the batch, the sums of its parts of the gradients, new weights. */
static bool zero1_step(worker *w, fail *why) {
  zero *z = w->state;
  buckets *b = &z->b;
  size_t at = 0;
  if (!worker_batch_gradient(w, w->rank, w->nranks, b->grads, buckets_listener(b), why) ||
      (w->o->clip > 0 && !clip(w, why)))
    return false;
  for (size_t i = 0; i < b->count; i++) {
    if (!buckets_wait(b, i, why))
      return false;
    shard part = part_of(z, i);
    worker_update_arrays(w, part.count, w->params + part.first, z->memory[0] + at,
                         z->memory[1] ? z->memory[1] + at : NULL, b->grads + part.first);
    if (!gather_weights(w, i, why))
      return false;
    at += part.count;
  }
  for (size_t i = 0; i < b->count; i++)
    if (!worker_wait(w, &b->item[i].request, doing, why))
      return false;
  w->updates++;
  return true;
}

static bool zero1_epoch(worker *w, fail *why) {
  drop_whole(w);
  return worker_each_step(w, zero1_step, why);
}

/* Gathers the parts of one memory of the optimizer on rank 0. */
static bool gather_memory(worker *w, const float *own, float *whole, fail *why) {
  zero *z = w->state;
  for (size_t i = 0; i < z->b.count; i++) {
    const bucket *item = &z->b.item[i];
    size_t mine = part_of(z, i).count;
    coll_status status = coll_gatherv(own, mine, whole ? whole + item->first : NULL,
                                      buckets_lengths(&z->b, item), NULL, COLL_FLOAT32, 0, w->comm);
    if (!succeeded(why, w->comm, status, "gathering the optimizer's memory"))
      return false;
    own += mine;
  }
  return true;
}

static const float *zero1_settle(worker *w, fail *why) {
  const zero *z = w->state;
  if (!w->o->checkpoint)
    return w->params;
  if (w->rank == 0 && !take_whole(w, why))
    return NULL;
  for (int m = 0; m < memories(w); m++)
    if (!gather_memory(w, z->memory[m], *whole_of(w, m), why))
      return NULL;
  return w->params;
}

/* Puts what the ranks still have of the optimizer's memory together: the sum of the parts, as the
 * rest is 0. After a second loss in the middle of this it may be none. */
static bool recover_zero(worker *w, fail *why) {
  const zero *z = w->state;
  if (!take_whole(w, why))
    return false;
  for (int m = 0; m < memories(w); m++) {
    float *whole = *whole_of(w, m);
    if (z)
      copy_parts(z, whole, z->memory[m], true);
    coll_status status =
        coll_allreduce(whole, whole, w->model.params, COLL_FLOAT32, COLL_SUM, w->comm);
    if (!succeeded(why, w->comm, status, "putting the optimizer's memory together"))
      return false;
  }
  return recover_restart(w, why);
}

const strategy strategy_zero1 = {
    .name = "zero1",
    .about = "as allreduce, with the optimizer's memory split over the ranks (synchronous)",
    .bits = STRATEGY_EXACT | STRATEGY_ELASTIC,
    .bytes = sizeof(zero),
    .open = open_zero,
    .epoch = zero1_epoch,
    .settle = zero1_settle,
    .recover = recover_zero,
};
