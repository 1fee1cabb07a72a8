/*
 * local_sgd.c: ranks train by themselves for H steps (--local-steps), then their weights are
 * averaged and all go on from the average.
 *
 *     rank 0   x --- H steps ---> x0 --+                +--> x --- H steps ---> ...
 *     rank 1   x --- H steps ---> x1 --+-- (x0+x1+x2)/3 +--> x --- H steps ---> ...
 *     rank 2   x --- H steps ---> x2 --+                +--> x --- H steps ---> ...
 *
 *     for each batch, on every rank:
 *       x = optimizer(x, n * gradient of its part of the batch / samples of the whole batch)
 *       after H batches, and at an epoch's end:
 *         m = mean of x over the ranks
 *         plain:                   x = m
 *         with --outer-... (DiLoCo), where a is the x after the last average:
 *           v = momentum v + (a - m);  x = a - lr ((a - m) + momentum v);  a = x
 *
 * The mean of these gradients over the ranks is the batch's, so H = 1 without momentum is
 * synchronous training. Momentum of the local steps stays where it is and is not sent.
 *
 * --average allreduce: one all-reduce; each rank sends 2 (n - 1) / n times the model, 1 / H of what
 * synchronous training sends. --average master: the weights are summed on rank 0, which divides by
 * n and broadcasts: as many bytes over all ranks, but half of them from and half of them to one
 * rank. --post-local E: the first E epochs are synchronous, while the weights move fast.
 *
 * S. U. Stich, Local SGD Converges Fast and Communicates Little, ICLR 2019. T. Lin, S. U. Stich, K.
 * K. Patel, M. Jaggi, Don't Use Large Mini-Batches, Use Local SGD, ICLR 2020 (post-local). A.
 * Douillard et al., DiLoCo: Distributed Low-Communication Training of Language Models, 2023.
 */
#include "trainer/strategies/strategy.h"

#include <string.h>

enum { AVERAGE_ALLREDUCE, AVERAGE_MASTER }; /* the words of --average */

static const char *const doing = "averaging weights";

typedef struct local {
  float *mean;       /* of the ranks' weights */
  float *grads;      /* of this rank's samples */
  float *anchor;     /* the weights after the last average; NULL without an outer optimizer */
  float *outer;      /* the outer optimizer's velocity; NULL without */
  void *synchronous; /* the state of synchronous epochs; NULL: none is left */
} local;

static bool open_local(worker *w, fail *why) {
  size_t bytes = w->model.params * sizeof(float);
  local *s = w->state;
  bool outer = w->o->outer_momentum > 0.0f || w->o->outer_lr != 1.0f;
  if (w->epochs_done < w->o->post_local) {
    w->state = s->synchronous = worker_memory(w, strategy_allreduce.bytes, why);
    bool ok = w->state && strategy_allreduce.open(w, why);
    w->state = s;
    if (!ok)
      return false;
  }
  return (s->mean = worker_shared_memory(w, bytes, why)) &&
         (s->grads = worker_memory(w, bytes, why)) &&
         (!outer || ((s->anchor = worker_memory(w, bytes, why)) &&
                     (s->outer = worker_memory(w, bytes, why))));
}

/* s->mean = the mean of all ranks' weights, by way of rank 0. */
static bool average_at_master(worker *w, fail *why) {
  const local *s = w->state;
  size_t count = w->model.params;
  coll_request *request = NULL;
  coll_status status =
      coll_ireduce(w->params, s->mean, count, COLL_FLOAT32, COLL_AVG, 0, w->comm, &request);
  w->sums.sent_bytes += (double)(count * sizeof(float)) * (w->rank == 0 ? w->nranks - 1 : 1);
  return worker_finish(w, status, &request, doing, why) && worker_share(w, 0, s->mean, count, why);
}

/* A step of the outer optimizer, which takes the change of the average for a gradient. */
static void outer_step(const worker *w, local *s) {
  float momentum = w->o->outer_momentum, lr = w->o->outer_lr;
  for (size_t i = 0; i < w->model.params; i++) {
    float change = s->anchor[i] - s->mean[i];
    s->outer[i] = momentum * s->outer[i] + change;
    s->mean[i] = s->anchor[i] - lr * (change + momentum * s->outer[i]);
    s->anchor[i] = s->mean[i];
  }
}

/* The ranks' average becomes the weights, or tells the outer optimizer where they go. */
static bool synchronise(worker *w, fail *why) {
  local *s = w->state;
  bool ok =
      w->o->average == AVERAGE_MASTER
          ? average_at_master(w, why)
          : worker_allreduce(w, w->comm, w->params, s->mean, w->model.params, COLL_AVG, doing, why);
  if (!ok)
    return false;
  if (s->anchor)
    outer_step(w, s);
  memcpy(w->params, s->mean, w->model.params * sizeof(float));
  return true;
}

/* One step of this rank, and the average when it is time. */
static bool local_step(worker *w, fail *why) {
  local *s = w->state;
  shard batch = worker_batch(w), mine = shard_part(batch, w->rank, w->nranks);
  float scale = (float)w->nranks / (float)batch.count;
  if (!worker_gradient(w, mine, scale, s->grads, NO_LISTENER, why))
    return false;
  worker_update_all(w, s->grads);
  size_t done = w->step + 1;
  if (done % w->o->local_steps == 0 || done == loader_steps(&w->loader))
    return synchronise(w, why);
  return true;
}

/* An epoch of synchronous training. */
static bool synchronous_epoch(worker *w, fail *why) {
  local *s = w->state;
  w->state = s->synchronous;
  bool ok = worker_each_step(w, strategy_allreduce.step, why);
  w->state = s;
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

const strategy strategy_local_sgd = {
    .name = "local-sgd",
    .about = "weights averaged every --local-steps steps (synchronous, seldom)",
    .bits = STRATEGY_EXACT | STRATEGY_ELASTIC,
    .bytes = sizeof(local),
    .open = open_local,
    .epoch = local_sgd_epoch,
};
