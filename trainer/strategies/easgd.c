/*
 * easgd.c: elastic averaging SGD, asynchronous. Workers train by themselves, each tied by a spring
 * to a centre, which the last rank keeps:
 *
 *      worker 0      worker 1      worker 2
 *         \  x | d      | x | d      | x ^ d     whenever a worker has done its steps;
 *          v   |        v   |        v   |       nobody waits for another worker
 *        +------------------------------------+
 *        |   last rank: the centre c,         |
 *        |   and the samples that are left    |
 *        +------------------------------------+
 *
 *     worker:  repeat: tau steps of its own, with momentum of its own    (tau: --local-steps)
 *                      send its weights x; receive its next samples and d; x = x - d
 *     centre:  for each x that comes, from any worker:
 *                d = alpha (x - c);  c = c + d;  send d     (alpha: --moving-rate / workers)
 *
 * The centre is what the run learns: it is tested and saved. It hands out the epoch's samples, tau
 * steps' worth at a time, so a slow worker gets fewer, and holds up the end of an epoch by tau of
 * its steps at most. An exchange sends the model once there and once back. A single rank trains
 * alone.
 *
 * S. Zhang, A. Choromanska, Y. LeCun, Deep Learning with Elastic Averaging SGD, NIPS 2015
 * (algorithm 1, asynchronous EASGD).
 */
#include "trainer/strategies/strategy.h"

enum { TAG_WEIGHTS, TAG_WORK, TAG_CHANGE };

typedef struct elastic {
  float *message;     /* of a whole model: weights one way, change the other */
  float *grads;       /* of this rank's samples */
  size_t rows;        /* samples of a worker's step */
  size_t next, total; /* the centre: samples that were handed out, and all of the epoch */
  float alpha;
} elastic;

static bool open_elastic(worker *w, fail *why) {
  int workers = w->nranks > 1 ? w->nranks - 1 : 1;
  size_t bytes = w->model.params * sizeof(float);
  elastic *e = w->state;
  if (!(e->message = worker_shared_memory(w, bytes, why)) ||
      !(e->grads = worker_memory(w, bytes, why)))
    return false;
  w->keeper = w->nranks > 1 && w->rank == w->nranks - 1; /* the centre */
  e->rows = worker_rows(w, workers);
  e->total = w->data->train.count;
  e->alpha = w->o->moving_rate / (float)workers;
  return worker_fit(w, workers, why);
}

/* The centre's choice of what a worker does next: nothing when all is handed out. */
static shard hand_out(worker *w) {
  elastic *e = w->state;
  size_t left = e->total - e->next, rows = e->rows, steps = w->o->local_steps;
  shard next = {e->next, steps <= left / rows ? steps * rows : left};
  e->next += next.count;
  w->step = e->next / w->o->batch;
  return next;
}

/* A worker's exchange: it sends its weights, and gets their change and its next samples. */
static bool exchange(worker *w, shard *next, fail *why) {
  elastic *e = w->state;
  int centre = w->nranks - 1;
  size_t count = w->model.params;
  if (centre == 0) {
    *next = hand_out(w);
    return true;
  }
  if (!worker_send(w, w->params, count * sizeof(float), centre, TAG_WEIGHTS, why) ||
      !worker_receive(w, next, sizeof(*next), centre, TAG_WORK, NULL, why) ||
      !worker_receive(w, e->message, count * sizeof(float), centre, TAG_CHANGE, NULL, why))
    return false;
  for (size_t i = 0; i < count; i++)
    w->params[i] -= e->message[i];
  w->step = next->first / w->o->batch;
  return true;
}

/* Trains on what the centre hands out, until nothing is left. */
static bool train_as_worker(worker *w, fail *why) {
  elastic *e = w->state;
  shard mine;
  while (exchange(w, &mine, why)) {
    if (mine.count == 0)
      return true;
    for (size_t done = 0; done < mine.count; done += e->rows) {
      size_t left = mine.count - done;
      shard step = {mine.first + done, left < e->rows ? left : e->rows};
      if (!worker_gradient(w, step, 1.0f / (float)step.count, e->grads, NO_LISTENER, why))
        return false;
      worker_rule(w, (double)step.first / (double)e->total);
      worker_update_all(w, e->grads);
      worker_show(w, step.first + step.count);
    }
  }
  return false;
}

/* Answers the workers until none has anything left to do. */
static bool serve_as_centre(worker *w, fail *why) {
  elastic *e = w->state;
  size_t count = w->model.params, bytes = count * sizeof(float);
  int working = w->nranks - 1;
  while (working > 0) {
    int from;
    if (!worker_receive(w, e->message, bytes, COLL_ANY_SOURCE, TAG_WEIGHTS, &from, why))
      return false;
    for (size_t i = 0; i < count; i++) {
      float change = e->alpha * (e->message[i] - w->params[i]);
      w->params[i] += change;
      e->message[i] = change;
    }
    shard next = hand_out(w);
    if (!worker_send(w, &next, sizeof(next), from, TAG_WORK, why) ||
        !worker_send(w, e->message, bytes, from, TAG_CHANGE, why))
      return false;
    if (next.count == 0)
      working--;
  }
  return true;
}

static bool easgd_epoch(worker *w, fail *why) {
  elastic *e = w->state;
  size_t done = w->step * w->o->batch;
  e->next = done < e->total ? done : e->total;
  if (w->keeper ? !serve_as_centre(w, why) : !train_as_worker(w, why))
    return false;
  w->step = loader_steps(&w->loader);
  return true;
}

/* Everybody gets to know the centre; workers go on from their own weights. */
static const float *easgd_settle(worker *w, fail *why) {
  elastic *e = w->state;
  int centre = w->nranks - 1;
  coll_status status =
      coll_broadcast(w->params, e->message, w->model.params, COLL_FLOAT32, centre, w->comm);
  return succeeded(why, w->comm, status, "sharing the centre") ? e->message : NULL;
}

const strategy strategy_easgd = {
    .name = "easgd",
    .about = "workers pulled towards a centre on the last rank (asynchronous)",
    .bits = STRATEGY_ELASTIC,
    .bytes = sizeof(elastic),
    .open = open_elastic,
    .epoch = easgd_epoch,
    .settle = easgd_settle,
};
