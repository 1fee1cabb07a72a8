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
#include "trainer/strategies/message.h"
#include "trainer/strategies/strategy.h"

#include <stdlib.h>

enum { TAG_WEIGHTS, TAG_WORK, TAG_CHANGE };

typedef struct elastic {
  coll_comm *comm;    /* to which `message` belongs */
  float *message;     /* of a whole model: weights one way, change the other; coll_mem_alloc() */
  float *grads;       /* of this rank's samples */
  size_t rows;        /* samples of a worker's step */
  size_t next, total; /* the centre: samples that were handed out, and all of the epoch */
  float alpha;
} elastic;

/* Samples of the epoch's order for a worker: sent as they are. */
typedef struct work {
  uint64_t first, count;
} work;

static void close_elastic(worker *w) {
  elastic *e = w->state;
  if (!e)
    return;
  if (e->message)
    coll_mem_free(e->comm, e->message);
  free(e->grads);
  free(e);
  w->state = NULL;
}

static bool open_elastic(worker *w, fail *why) {
  int workers = w->nranks > 1 ? w->nranks - 1 : 1;
  size_t count = w->model.params;
  elastic *e = w->state = calloc(1, sizeof(*e));
  if (!e)
    return fail_memory(why, "a worker");
  e->comm = w->comm;
  e->rows = worker_rows(w, workers);
  w->keeper = w->nranks > 1 && w->rank == w->nranks - 1; /* the centre */
  e->total = w->data->train.count;
  e->alpha = w->o->moving_rate / (float)workers;
  e->message = message_memory(w, count * sizeof(float), "memory for the exchange", why);
  if (!e->message)
    return false;
  e->grads = matrix_alloc(1, count);
  return e->grads ? worker_fit_parts(w, workers, why) : fail_memory(why, "the gradients");
}

/* The centre's choice of what a worker does next: nothing when all is handed out. */
static work hand_out(worker *w) {
  elastic *e = w->state;
  size_t left = e->total - e->next, rows = e->rows, steps = w->o->local_steps;
  work next = {e->next, steps <= left / rows ? steps * rows : left};
  e->next += next.count;
  w->step = e->next / w->o->batch;
  return next;
}

/* A worker's exchange: it sends its weights, and gets their change and its next samples. */
static bool exchange(worker *w, work *next, fail *why) {
  elastic *e = w->state;
  int centre = w->nranks - 1;
  size_t count = w->model.params;
  if (centre == 0) {
    *next = hand_out(w);
    return true;
  }
  if (!message_send(w, w->params, count * sizeof(float), centre, TAG_WEIGHTS, why) ||
      !message_receive(w, next, sizeof(*next), centre, TAG_WORK, NULL, why) ||
      !message_receive(w, e->message, count * sizeof(float), centre, TAG_CHANGE, NULL, why))
    return false;
  for (size_t i = 0; i < count; i++)
    w->params[i] -= e->message[i];
  w->step = (size_t)next->first / w->o->batch;
  return true;
}

/* Trains on what the centre hands out, until nothing is left. */
static bool train_as_worker(worker *w, fail *why) {
  elastic *e = w->state;
  work mine;
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
    if (!message_receive(w, e->message, bytes, COLL_ANY_SOURCE, TAG_WEIGHTS, &from, why))
      return false;
    for (size_t i = 0; i < count; i++) {
      float change = e->alpha * (e->message[i] - w->params[i]);
      w->params[i] += change;
      e->message[i] = change;
    }
    work next = hand_out(w);
    if (!message_send(w, &next, sizeof(next), from, TAG_WORK, why) ||
        !message_send(w, e->message, bytes, from, TAG_CHANGE, why))
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
  if (status == COLL_OK)
    return e->message;
  fail_coll(why, w->comm, status, "sharing the centre");
  return NULL;
}

const strategy strategy_easgd = {
    .name = "easgd",
    .about = "workers pulled towards a centre on the last rank (asynchronous)",
    .bits = STRATEGY_ELASTIC,
    .open = open_elastic,
    .close = close_elastic,
    .epoch = easgd_epoch,
    .settle = easgd_settle,
};
