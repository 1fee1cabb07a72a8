/*
 * local_sgd.c: ranks train by themselves for H steps (--local-steps), then their weights are
 * averaged and all go on from the average.
 *
 *     rank 0   x --- H steps ---> x0 --+                +--> x --- H steps ---> ...
 *     rank 1   x --- H steps ---> x1 --+-- (x0+x1+x2)/3 +--> x --- H steps ---> ...
 *     rank 2   x --- H steps ---> x2 --+                +--> x --- H steps ---> ...
 *
 * Momentum stays where it is and is not sent. A step is that of synchronous training but for the
 * sum over the ranks: the same parts of the same batches, and gradients scaled so that their mean
 * over the ranks is the batch's gradient. So H = 1 is synchronous training.
 *
 * Messages: one average every H steps and one at an epoch's end. --average allreduce: one
 * all-reduce; each rank sends 2 (n - 1) / n times the model, 1 / H of what synchronous training
 * sends. --average master: the weights are summed on rank 0, which divides by n and broadcasts; as
 * many bytes over all ranks, but half of them from and half of them to one rank.
 *
 * --post-local E: the first E epochs are synchronous, while the weights move fast. --outer-momentum
 * and --outer-lr: the change of the average over H steps is itself taken for a gradient, of
 * an optimizer with Nesterov momentum (DiLoCo); every rank calculates the same, nothing more is
 * sent.
 *
 * S. U. Stich, Local SGD converges fast and communicates little, 2019. T. Lin, S. U. Stich, K. K.
 * Patel, M. Jaggi, Don't use large mini-batches, use local SGD, 2020 (post-local). A. Douillard et
 * al., DiLoCo: distributed low-communication training of language models, 2023.
 */
#include "trainer/strategies/strategies.h"

#include <stdlib.h>
#include <string.h>

enum { AVERAGE_ALLREDUCE, AVERAGE_MASTER }; /* the words of --average */

typedef struct local {
  coll_comm *comm; /* to which `mean` belongs */
  float *mean;     /* of the ranks' weights, from coll_mem_alloc() */
  float *grads;    /* of this rank's samples */
  float *anchor;   /* the weights after the last average; NULL without an outer optimizer */
  float *outer;    /* the outer optimizer's velocity; NULL without */
} local;

static void close_local(worker *w) {
  local *s = w->state;
  if (!s)
    return;
  if (s->mean)
    coll_mem_free(s->comm, s->mean);
  free(s->grads);
  free(s->anchor);
  free(s->outer);
  free(s);
  w->state = NULL;
}

static bool open_local(worker *w, fail *why) {
  size_t count = w->model.params;
  void *memory = NULL;
  local *s = w->state = calloc(1, sizeof(*s));
  if (!s)
    return fail_memory(why, "averages");
  s->comm = w->comm;
  coll_status status = coll_mem_alloc(w->comm, count * sizeof(float), &memory);
  if (status != COLL_OK)
    return fail_coll(why, w->comm, status, "memory for the averages");
  s->mean = memory;
  s->grads = matrix_alloc(1, count);
  bool ok = s->grads != NULL;
  if (w->o->outer_momentum > 0.0f || w->o->outer_lr != 1.0f) {
    s->anchor = matrix_alloc(1, count);
    s->outer = calloc(count, sizeof(float));
    ok = ok && s->anchor && s->outer;
  }
  return ok || fail_memory(why, "averages");
}

/* s->mean = the mean of all ranks' weights. */
static bool average(worker *w, fail *why) {
  local *s = w->state;
  size_t count = w->model.params, bytes = count * sizeof(float);
  coll_request *request = NULL;
  coll_status status;
  if (w->o->average == AVERAGE_MASTER) {
    status = coll_ireduce(w->params, s->mean, count, COLL_FLOAT32, COLL_AVG, 0, w->comm, &request);
    if (status == COLL_OK && !worker_wait(w, &request, "averaging weights", why))
      return false;
    if (status == COLL_OK)
      status = coll_ibroadcast(s->mean, s->mean, count, COLL_FLOAT32, 0, w->comm, &request);
    w->sums.sent_bytes += (double)bytes * (w->rank == 0 ? w->nranks - 1 : 1);
  } else {
    status = coll_iallreduce(w->params, s->mean, count, COLL_FLOAT32, COLL_AVG, w->comm, &request);
    w->sums.sent_bytes += worker_allreduce_bytes(w, bytes);
  }
  if (status != COLL_OK)
    return fail_coll(why, w->comm, status, "averaging weights");
  return worker_wait(w, &request, "averaging weights", why);
}

/* The ranks' average becomes the weights, or tells the outer optimizer where they go. */
static bool synchronise(worker *w, fail *why) {
  local *s = w->state;
  if (!average(w, why))
    return false;
  float momentum = w->o->outer_momentum, lr = w->o->outer_lr;
  for (size_t i = 0; s->anchor && i < w->model.params; i++) {
    float change = s->anchor[i] - s->mean[i];
    s->outer[i] = momentum * s->outer[i] + change;
    s->mean[i] = s->anchor[i] - lr * (change + momentum * s->outer[i]);
    s->anchor[i] = s->mean[i];
  }
  memcpy(w->params, s->mean, w->model.params * sizeof(float));
  return true;
}

/* One step of this rank, and the average when it is time. */
static bool local_step(worker *w, fail *why) {
  local *s = w->state;
  shard batch = worker_batch(w), part = shard_of(batch.count, w->rank, w->nranks);
  float scale = (float)w->nranks / (float)batch.count;
  if (!worker_gradient(w, batch.first + part.first, part.count, scale, s->grads,
                       (model_listener){NULL, NULL}, why))
    return false;
  worker_update_all(w, s->grads);
  size_t done = w->step + 1;
  return (done % w->o->local_steps != 0 && done != loader_steps(&w->loader)) || synchronise(w, why);
}

/* An epoch of synchronous training. */
static bool synchronous_epoch(worker *w, fail *why) {
  void *state = w->state;
  w->state = NULL;
  bool ok = strategy_allreduce.open(w, why) && strategy_allreduce.epoch(w, why);
  strategy_allreduce.close(w);
  w->state = state;
  return ok;
}

/* The optimizer of the local steps forgets what was. */
static void restart_optimizer(worker *w) {
  size_t bytes = w->model.params * sizeof(float);
  memset(w->velocity, 0, bytes);
  if (w->squares)
    memset(w->squares, 0, bytes);
  w->updates = 0;
}

/*
 * Between epochs w->velocity is the outer optimizer's, which is equal on all ranks; that of the
 * local steps starts anew. So a resumed run does what an undisturbed one does. After synchronous
 * steps, or the loss of a rank within an epoch, it is the local steps' velocity, and the outer one
 * starts anew.
 */
static bool local_sgd_epoch(worker *w, fail *why) {
  local *s = w->state;
  size_t bytes = w->model.params * sizeof(float);
  if (w->epochs_done < w->o->post_local)
    return synchronous_epoch(w, why);
  if (w->step == 0 && w->epochs_done > w->o->post_local) {
    if (s->outer)
      memcpy(s->outer, w->velocity, bytes);
    restart_optimizer(w);
  }
  if (s->anchor)
    memcpy(s->anchor, w->params, bytes);
  if (!worker_each_step(w, local_step, why))
    return false;
  if (s->outer)
    memcpy(w->velocity, s->outer, bytes);
  else
    memset(w->velocity, 0, bytes);
  return true;
}

static const float *local_sgd_settle(worker *w, fail *why) {
  (void)why;
  return w->params;
}

const strategy strategy_local_sgd = {
    .name = "local-sgd",
    .about = "weights averaged every --local-steps steps (synchronous, seldom)",
    .bits = STRATEGY_EXACT | STRATEGY_ELASTIC,
    .open = open_local,
    .close = close_local,
    .epoch = local_sgd_epoch,
    .settle = local_sgd_settle,
};
