/*
 * zero1.c: synchronous training with the optimizer's memory split over the ranks. Each rank updates
 * its part of the weights only, so it needs the velocity (and Adam's squares) of that part alone:
 *
 *               parameters of a bucket, cut into n parts
 *     rank 0   [ g g | g g | g g ]  reduce-   [ g ]  update  [ w ]  all-     [ w w | w w | w w ]
 *     rank 1   [ g g | g g | g g ]  scatter   [ g ]  of one  [ w ]  gather   [ w w | w w | w w ]
 *     rank 2   [ g g | g g | g g ]  ------->  [ g ]  part    [ w ]  ------>  [ w w | w w | w w ]
 *
 * An all-reduce is a reduce-scatter and an all-gather; here the update comes between them. The
 * reduce-scatters begin during the backward pass, bucket after bucket, and the all-gathers go on
 * while later buckets are updated.
 *
 * Messages: 2 (n - 1) / n times the model sent by each rank in a step, as synchronous training
 * does; memory of the optimizer: 1 / n on each rank. For a checkpoint it is gathered on rank 0,
 * which then needs memory for the whole until the next epoch. With the loss of a rank its part of
 * the optimizer's memory is lost, and begins at 0 again.
 *
 * S. Rajbhandari, J. Rasley, O. Ruwase, Y. He, ZeRO: memory optimizations toward training trillion
 * parameter models, 2020 (stage 1, and the gradients' way of stage 2).
 *
 * With --wire gradients travel in packets, and weights as they are.
 */
#include "trainer/recover.h"
#include "trainer/strategies/packets.h"
#include "trainer/strategies/strategies.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORIES = 2 }; /* velocity, and squares if the optimizer has them */

typedef struct zero {
  buckets b;
  packets p;               /* with --wire */
  int rank, nranks;        /* when the parts were cut */
  size_t *counts;          /* parameters of each rank's part of a bucket */
  float *memory[MEMORIES]; /* of this rank's parts, bucket after bucket; NULL: not needed */
} zero;

static const char *const doing = "sharing an update";

/* The worker's arrays for the optimizer's memory of the whole model. */
static void whole_memory(worker *w, float **whole[MEMORIES]) {
  whole[0] = &w->velocity;
  whole[1] = &w->squares;
}

/* A rank's part of a bucket, as parameters of the model. */
static shard part_of(const zero *z, const bucket *item, int rank) {
  shard part = shard_of(item->count, rank, z->nranks);
  part.first += item->first;
  return part;
}

/* Writes down how a bucket is cut. */
static void cut(zero *z, const bucket *item) {
  for (int r = 0; r < z->nranks; r++)
    z->counts[r] = part_of(z, item, r).count;
}

/* The gradients of a bucket are there: starts to sum them, each part on its rank. */
static coll_status start_sum(buckets *b, bucket *item) {
  zero *z = b->owner;
  cut(z, item);
  return coll_ireduce_scatterv(b->grads + item->first, b->grads + part_of(z, item, z->rank).first,
                               z->counts, COLL_FLOAT32, COLL_SUM, b->comm, &item->request);
}

/* Copies this rank's parts between the memory of the whole model and its own. */
static void copy_parts(const zero *z, float *whole, float *own, bool to_own) {
  for (size_t i = 0; i < z->b.count; i++) {
    shard part = part_of(z, &z->b.item[i], z->rank);
    memcpy(to_own ? own : whole + part.first, to_own ? whole + part.first : own,
           part.count * sizeof(float));
    own += part.count;
  }
}

/* Frees the optimizer's memory of the whole model. */
static void drop_whole(worker *w) {
  float **whole[MEMORIES];
  whole_memory(w, whole);
  for (int m = 0; m < MEMORIES; m++) {
    free(*whole[m]);
    *whole[m] = NULL;
  }
}

/* Takes memory for the whole model again, all 0. */
static bool take_whole(worker *w, fail *why) {
  const zero *z = w->state;
  size_t bytes = w->model.params * sizeof(float);
  float **whole[MEMORIES];
  drop_whole(w);
  whole_memory(w, whole);
  for (int m = 0; m < MEMORIES; m++) {
    if (!z->memory[m])
      continue;
    *whole[m] = matrix_alloc(1, w->model.params);
    if (!*whole[m])
      return fail_memory(why, "the optimizer of the whole model");
    memset(*whole[m], 0, bytes);
  }
  return true;
}

static void close_zero(worker *w) {
  zero *z = w->state;
  if (!z)
    return;
  packets_close(&z->p);
  buckets_destroy(&z->b);
  free(z->counts);
  for (int m = 0; m < MEMORIES; m++)
    free(z->memory[m]);
  free(z);
  w->state = NULL;
}

/* Keeps this rank's parts of the optimizer's memory, and gives the whole back. */
static bool open_zero(worker *w, fail *why) {
  zero *z = w->state = calloc(1, sizeof(*z));
  float **whole[MEMORIES];
  size_t own = 0;
  if (!z || !(z->counts = calloc((size_t)w->nranks, sizeof(*z->counts))))
    return fail_memory(why, "the buckets");
  if (!buckets_create(&z->b, w->comm, &w->model, w->o->bucket_bytes, why))
    return false;
  z->b.start = start_sum;
  z->b.owner = z;
  z->rank = w->rank;
  z->nranks = w->nranks;
  if (w->pending && !packets_open(&z->p, w, &z->b, false, why))
    return false;
  for (size_t i = 0; i < z->b.count; i++)
    own += part_of(z, &z->b.item[i], w->rank).count;
  w->optimizer_bytes = 0;
  whole_memory(w, whole);
  for (int m = 0; m < MEMORIES; m++) {
    if (!*whole[m])
      continue;
    z->memory[m] = matrix_alloc(1, own + 1); /* not NULL if this rank has no part */
    if (!z->memory[m])
      return fail_memory(why, "the optimizer");
    copy_parts(z, *whole[m], z->memory[m], true);
    w->optimizer_bytes += own * sizeof(float);
  }
  drop_whole(w);
  return true;
}

/* Waits until this rank's part of bucket i has the sums of the gradients. */
static bool reduce_bucket(worker *w, size_t i, fail *why) {
  zero *z = w->state;
  return w->pending ? packets_sum(&z->p, i, why)
                    : worker_wait(w, &z->b.item[i].request, doing, why);
}

/* With --clip: the norm of all gradients, of which each rank has the sums of its parts. */
static bool clip(worker *w, fail *why) {
  zero *z = w->state;
  double square = 0;
  if (!(w->o->clip > 0))
    return true;
  for (size_t i = 0; i < z->b.count; i++) {
    shard part = part_of(z, &z->b.item[i], w->rank);
    if (!reduce_bucket(w, i, why))
      return false;
    square += pow(optim_norm(part.count, z->b.grads + part.first), 2);
  }
  coll_request *request = NULL;
  coll_status status =
      coll_iallreduce(&square, &square, 1, COLL_FLOAT64, COLL_SUM, w->comm, &request);
  if (status != COLL_OK)
    return fail_coll(why, w->comm, status, doing);
  if (!worker_wait(w, &request, doing, why))
    return false;
  float factor = (float)((double)w->o->clip / sqrt(square));
  for (size_t i = 0; i < z->b.count && factor < 1.0f; i++) {
    shard part = part_of(z, &z->b.item[i], w->rank);
    optim_scale(part.count, z->b.grads + part.first, factor);
  }
  return true;
}

/* Updates this rank's part of bucket i, whose optimizer's memory begins at `at`, and starts to
 * bring the parts together. */
static bool update_bucket(worker *w, size_t i, size_t at, fail *why) {
  zero *z = w->state;
  bucket *item = &z->b.item[i];
  shard part = part_of(z, item, w->rank);
  if (!reduce_bucket(w, i, why))
    return false;
  worker_update_with(w, part.first, part.count, z->memory[0] + at,
                     z->memory[1] ? z->memory[1] + at : NULL, z->b.grads + part.first);
  cut(z, item);
  coll_status status = coll_iallgatherv(w->params + part.first, w->params + item->first, z->counts,
                                        NULL, COLL_FLOAT32, w->comm, &item->request);
  return status == COLL_OK ? buckets_poll(&z->b, why) : fail_coll(why, w->comm, status, doing);
}

/* One step: this rank's part of the batch, the sums of its part of the gradients, new weights. */
static bool zero1_step(worker *w, fail *why) {
  zero *z = w->state;
  shard batch = worker_batch(w), part = shard_of(batch.count, w->rank, w->nranks);
  if (!worker_gradient(w, batch.first + part.first, part.count, 1.0f / (float)batch.count,
                       z->b.grads, buckets_listener(&z->b), why) ||
      !clip(w, why))
    return false;
  size_t at = 0;
  for (size_t i = 0; i < z->b.count; i++) {
    if (!update_bucket(w, i, at, why))
      return false;
    at += part_of(z, &z->b.item[i], w->rank).count;
  }
  for (size_t i = 0; i < z->b.count; i++)
    if (!worker_wait(w, &z->b.item[i].request, doing, why))
      return false;
  w->updates++;
  double whole = worker_allreduce_bytes(w, w->model.params * sizeof(float));
  w->sums.sent_bytes += w->pending ? whole / 2 : whole; /* packets are counted as they are made */
  return true;
}

static bool zero1_epoch(worker *w, fail *why) {
  drop_whole(w);
  return worker_each_step(w, zero1_step, why);
}

/* Brings the parts of one array of the optimizer to rank 0. */
static bool gather(worker *w, const float *own, float *whole, fail *why) {
  zero *z = w->state;
  for (size_t i = 0; i < z->b.count; i++) {
    const bucket *item = &z->b.item[i];
    cut(z, item);
    size_t mine = z->counts[w->rank];
    coll_status status = coll_gatherv(own, mine, whole ? whole + item->first : NULL, z->counts,
                                      NULL, COLL_FLOAT32, 0, w->comm);
    if (status != COLL_OK)
      return fail_coll(why, w->comm, status, "gathering the optimizer's memory");
    own += mine;
  }
  return true;
}

static const float *zero1_settle(worker *w, fail *why) {
  zero *z = w->state;
  float **whole[MEMORIES];
  if (!w->o->checkpoint)
    return w->params;
  if (w->rank == 0 && !take_whole(w, why))
    return NULL;
  whole_memory(w, whole);
  for (int m = 0; m < MEMORIES; m++)
    if (z->memory[m] && !gather(w, z->memory[m], *whole[m], why))
      return NULL;
  return w->params;
}

/* Puts what the ranks still have of the optimizer's memory together: the sum of the parts, as the
 * rest is 0. After a second loss in the middle of this it may be none. */
static bool recover_zero(worker *w, fail *why) {
  zero *z = w->state;
  float **whole[MEMORIES];
  if (z && !take_whole(w, why))
    return false;
  whole_memory(w, whole);
  for (int m = 0; m < MEMORIES; m++) {
    if (!*whole[m])
      continue;
    if (z)
      copy_parts(z, *whole[m], z->memory[m], false);
    else
      memset(*whole[m], 0, w->model.params * sizeof(float));
    coll_status status =
        coll_allreduce(*whole[m], *whole[m], w->model.params, COLL_FLOAT32, COLL_SUM, w->comm);
    if (status != COLL_OK)
      return fail_coll(why, w->comm, status, "putting the optimizer's memory together");
  }
  return recover_restart(w, why);
}

const strategy strategy_zero1 = {
    .name = "zero1",
    .about = "as allreduce, with the optimizer's memory split over the ranks (synchronous)",
    .bits = STRATEGY_EXACT | STRATEGY_ELASTIC,
    .open = open_zero,
    .close = close_zero,
    .epoch = zero1_epoch,
    .settle = zero1_settle,
    .recover = recover_zero,
};
