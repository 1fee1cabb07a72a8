/*
 * easgd.c: elastic averaging SGD, asynchronous. Workers train by themselves, each tied to a centre
 * by a spring: every tau steps (--local-steps) a worker x and the centre c move towards each other,
 *
 *     d = alpha (x - c)      x = x - d      c = c + d      alpha = --moving-rate / workers
 *
 *      worker 0      worker 1      worker 2
 *         \  x | d      | x | d      | x ^ d     whenever a worker has done its steps;
 *          v   |        v   |        v   |       nobody waits for another worker
 *        +------------------------------------+
 *        |   last rank: the centre c,         |
 *        |   and the samples that are left    |
 *        +------------------------------------+
 *
 * The centre is what the run learns: it is tested and saved. It also hands out the epoch's samples,
 * tau steps' worth with each exchange, so a slow worker gets fewer, and holds up the end of an
 * epoch by tau of its steps at most. Momentum is each worker's own.
 *
 * Messages of an exchange: the worker sends its weights, and gets a note with its next samples and
 * the change d: once the model there and once back, every tau steps. The centre's rank does not
 * train. A single rank trains alone.
 *
 * S. Zhang, A. Choromanska, Y. LeCun, Deep learning with elastic averaging SGD, 2015 (algorithm 1,
 * asynchronous EASGD).
 */
#include "trainer/strategies/strategies.h"

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

/* Samples of the epoch's order for a worker: uint64_t, as they are sent. */
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
  void *memory = NULL;
  elastic *e = w->state = calloc(1, sizeof(*e));
  if (!e)
    return fail_memory(why, "a worker");
  e->comm = w->comm;
  e->rows = worker_rows(w, workers);
  w->keeper = w->nranks > 1 && w->rank == w->nranks - 1; /* the centre */
  e->total = w->data->train.count;
  e->alpha = w->o->moving_rate / (float)workers;
  coll_status status = coll_mem_alloc(w->comm, count * sizeof(float), &memory);
  if (status != COLL_OK)
    return fail_coll(why, w->comm, status, "memory for the exchange");
  e->message = memory;
  e->grads = matrix_alloc(1, count);
  return e->grads ? worker_fit_parts(w, workers, why) : fail_memory(why, "the gradients");
}

/* Waits for what was just started. */
static bool finish(worker *w, coll_status status, coll_request **request, fail *why) {
  static const char *const doing = "exchanging with the centre";
  return status == COLL_OK ? worker_wait(w, request, doing, why)
                           : fail_coll(why, w->comm, status, doing);
}

static bool send_weights(worker *w, const void *data, size_t count, coll_type type, int peer,
                         int tag, fail *why) {
  coll_request *request = NULL;
  coll_status status = coll_isend(data, count, type, peer, tag, w->comm, &request);
  w->sums.sent_bytes += (double)(count * coll_type_bytes(type));
  return finish(w, status, &request, why);
}

static bool receive(worker *w, void *data, size_t count, coll_type type, int peer, int tag,
                    coll_message *from, fail *why) {
  coll_request *request = NULL;
  coll_status status = coll_irecv(data, count, type, peer, tag, from, w->comm, &request);
  return finish(w, status, &request, why);
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
  if (!send_weights(w, w->params, count, COLL_FLOAT32, centre, TAG_WEIGHTS, why) ||
      !receive(w, next, 2, COLL_UINT64, centre, TAG_WORK, NULL, why) ||
      !receive(w, e->message, count, COLL_FLOAT32, centre, TAG_CHANGE, NULL, why))
    return false;
  for (size_t i = 0; i < count; i++)
    w->params[i] -= e->message[i];
  w->step = (size_t)next->first / w->o->batch;
  return true;
}

/* Trains on what the centre hands out, until nothing is left. */
static bool be_worker(worker *w, fail *why) {
  elastic *e = w->state;
  work mine;
  while (exchange(w, &mine, why)) {
    if (mine.count == 0)
      return true;
    for (size_t done = 0; done < mine.count; done += e->rows) {
      size_t left = mine.count - done, rows = left < e->rows ? left : e->rows;
      if (!worker_gradient(w, mine.first + done, rows, 1.0f / (float)rows, e->grads,
                           (model_listener){NULL, NULL}, why))
        return false;
      worker_rule(w, (double)(mine.first + done) / (double)e->total);
      worker_update_all(w, e->grads);
      worker_show(w, mine.first + done + rows);
    }
  }
  return false;
}

/* Answers the workers until none has anything left to do. */
static bool be_centre(worker *w, fail *why) {
  elastic *e = w->state;
  size_t count = w->model.params;
  for (int working = w->nranks - 1; working > 0;) {
    coll_message from;
    if (!receive(w, e->message, count, COLL_FLOAT32, COLL_ANY_SOURCE, TAG_WEIGHTS, &from, why))
      return false;
    for (size_t i = 0; i < count; i++) {
      float change = e->alpha * (e->message[i] - w->params[i]);
      w->params[i] += change;
      e->message[i] = change;
    }
    work next = hand_out(w);
    if (!send_weights(w, &next, 2, COLL_UINT64, from.source, TAG_WORK, why) ||
        !send_weights(w, e->message, count, COLL_FLOAT32, from.source, TAG_CHANGE, why))
      return false;
    working -= next.count == 0;
  }
  return true;
}

static bool easgd_epoch(worker *w, fail *why) {
  elastic *e = w->state;
  size_t done = w->step * w->o->batch;
  e->next = done < e->total ? done : e->total;
  if (w->keeper ? !be_centre(w, why) : !be_worker(w, why))
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
