/*
 * pipeline.c: model parallel training with the layers cut into stages, one a rank. A batch is cut
 * into m micro-batches, so that stages work at the same time on different ones. Rank 0 is the last
 * stage, which knows the loss. Three stages and four micro-batches, time to the right, forward
 * passes as numbers and backward ones in brackets:
 *
 *     GPipe                                     1F1B
 *     stage 0  0 1 2 3 . . . . [0][1][2][3]     0 1 2 . . [0] 3 [1] . [2] . [3]
 *     stage 1  . 0 1 2 3 . . [0][1][2][3]       . 0 1 . [0] 2 [1] 3 [2] . [3]
 *     stage 2  . . 0 1 2 3 [0][1][2][3]         . . 0 [0] 1 [1] 2 [2] 3 [3]
 *
 * Both leave each of p stages idle for (p - 1) / (m + p - 1) of the time (if stages take equally
 * long), and add up the same numbers in the same order. GPipe keeps the values of all m
 * micro-batches; 1F1B those of at most p, as it begins to go back as soon as it can.
 *
 * Messages: for each micro-batch the outputs of a stage's last layer forwards and their derivatives
 * back, and none of the model's size. Each rank has the gradients and updates the weights of its
 * own layers alone; after an epoch all get the whole model, to test and to save it.
 *
 * Y. Huang et al., GPipe: efficient training of giant neural networks using pipeline parallelism,
 * 2019; D. Narayanan et al., PipeDream: generalized pipeline parallelism for DNN training, 2019
 * (1F1B, here with the flush of PipeDream-Flush, 2021).
 */
#include "trainer/clock.h"
#include "trainer/layers/rows.h"
#include "trainer/strategies/strategies.h"

#include <stdlib.h>
#include <string.h>

enum { TAG_VALUES = 1, TAG_DELTAS = 2 };
enum { SCHEDULE_GPIPE, SCHEDULE_1F1B }; /* in the order of --pipeline-schedule */

/* A micro-batch between its forward and its backward pass. */
typedef struct flight {
  pass pass;
  float *in_delta;
  coll_request *values, *deltas; /* sends of this stage */
} flight;

typedef struct pipeline {
  model part;           /* this stage's layers */
  size_t first;         /* its parameters in the model's array */
  int micro, window;    /* micro-batches of a batch, and how many are kept at once */
  float *grads, *piece; /* of this stage's parameters: their sum, those of one micro-batch */
  float *inputs;        /* of samples of which only labels are needed */
  flight *flight;       /* micro-batch i has flight i % window */
} pipeline;

/* What a layer costs: its multiplications, or at least its numbers. */
static double cost_of(const layer *l) {
  return (double)l->count + (double)(l->in + l->out);
}

/* The first layer of a stage, so that all stages cost about the same and have a layer at least. */
static size_t cut_at(const model *m, int stage, int stages) {
  double all = 0, before = 0;
  size_t layers = m->layers, at = 0;
  for (size_t l = 0; l < layers; l++)
    all += cost_of(&m->layer[l]);
  while (at < layers && before + cost_of(&m->layer[at]) / 2 < all * stage / stages)
    before += cost_of(&m->layer[at++]);
  size_t least = (size_t)stage, most = layers - (size_t)(stages - stage);
  return at < least ? least : at > most ? most : at;
}

static bool check(const options *o, int nranks, fail *why) {
  if (o->clip > 0 || o->accumulate > 1)
    return fail_set(why, "--strategy pipeline: no stage knows all gradients, and micro-batches are "
                         "parts already: leave out --clip and --accumulate");
  if (o->model == MODEL_PERCEPTRON && (size_t)nranks > o->size_count - 1)
    return fail_set(why, "--strategy pipeline: %d stages, but --layers has only %zu layers", nranks,
                    o->size_count - 1);
  return true;
}

/* Memory for the micro-batches that are kept at once. */
static bool take_flights(worker *w, pipeline *p, int stage, fail *why) {
  int behind = w->nranks - stage;
  size_t rows = shard_of(worker_rows(w, 1), 0, p->micro).count;
  p->window = w->o->pipeline_schedule == SCHEDULE_1F1B && behind < p->micro ? behind : p->micro;
  p->flight = calloc((size_t)p->window, sizeof(*p->flight));
  p->inputs = matrix_alloc(rows, w->model.inputs);
  if (!p->flight || !p->inputs)
    return fail_memory(why, "the micro-batches");
  for (int i = 0; i < p->window; i++) {
    p->flight[i].in_delta = matrix_alloc(rows, p->part.inputs);
    if (!p->flight[i].in_delta)
      return fail_memory(why, "the micro-batches");
    if (!pass_create(&p->flight[i].pass, &p->part, rows, why))
      return false;
  }
  return true;
}

static bool open_pipeline(worker *w, fail *why) {
  int stage = w->nranks - 1 - w->rank;
  pipeline *p = calloc(1, sizeof(*p));
  if (!p)
    return fail_memory(why, "the pipeline");
  w->state = p;
  if ((size_t)w->nranks > w->model.layers)
    return fail_set(why, "--strategy pipeline: %d stages, but the model has only %zu layers",
                    w->nranks, w->model.layers);
  size_t begin = cut_at(&w->model, stage, w->nranks);
  p->part = model_part(&w->model, begin, cut_at(&w->model, stage + 1, w->nranks));
  p->first = w->model.layer[begin].first;
  p->micro = (int)w->o->micro_batches;
  p->grads = matrix_alloc(1, p->part.params + 1);
  p->piece = matrix_alloc(1, p->part.params + 1);
  if (!p->grads || !p->piece)
    return fail_memory(why, "the gradients of a stage");
  return take_flights(w, p, stage, why);
}

static void close_pipeline(worker *w) {
  pipeline *p = w->state;
  if (!p)
    return;
  for (int i = 0; p->flight && i < p->window; i++) {
    pass_destroy(&p->flight[i].pass);
    free(p->flight[i].in_delta);
  }
  free(p->flight);
  free(p->inputs);
  free(p->grads);
  free(p->piece);
  free(p);
  w->state = NULL;
}

/* Sends numbers to another stage; the request is waited for before the memory is used again. */
static bool send(worker *w, const float *data, size_t count, int to, int tag,
                 coll_request **request, fail *why) {
  coll_status status = coll_isend(data, count, COLL_FLOAT32, to, tag, w->comm, request);
  w->sums.sent_bytes += (double)count * sizeof(float);
  return status == COLL_OK || fail_coll(why, w->comm, status, "sending to the next stage");
}

/* Waits for numbers from another stage. */
static bool receive(worker *w, float *data, size_t count, int from, int tag, fail *why) {
  double begin = clock_s();
  coll_status status = coll_recv(data, count, COLL_FLOAT32, from, tag, NULL, w->comm);
  w->sums.waited_s += clock_s() - begin;
  return status == COLL_OK || fail_coll(why, w->comm, status, "receiving from the stage before");
}

/* The forward pass of micro-batch i through this stage. */
static bool forward(worker *w, int i, fail *why) {
  pipeline *p = w->state;
  flight *f = &p->flight[i % p->window];
  shard batch = worker_batch(w), micro = shard_of(batch.count, i, p->micro);
  bool first = w->rank == w->nranks - 1, last = w->rank == 0;
  if (!worker_wait(w, &f->values, "sending values", why) ||
      !worker_wait(w, &f->deltas, "sending derivatives", why))
    return false;
  double begin = clock_s();
  if (first || last)
    loader_train(&w->loader, batch.first + micro.first, micro.count,
                 first ? f->pass.value[0] : p->inputs, f->pass.labels);
  w->sums.compute_s += clock_s() - begin;
  if (!first &&
      !receive(w, f->pass.value[0], micro.count * p->part.inputs, w->rank + 1, TAG_VALUES, why))
    return false;
  begin = clock_s();
  if (!model_forward(&p->part, w->params + p->first, &f->pass, micro.count, why))
    return false;
  worker_slow(w, clock_s() - begin);
  size_t out = p->part.layer[p->part.layers - 1].out;
  return last || send(w, f->pass.value[p->part.layers], micro.count * out, w->rank - 1, TAG_VALUES,
                      &f->values, why);
}

/* The backward pass of micro-batch i through this stage: adds its gradients to the sum. */
static bool backward(worker *w, int i, fail *why) {
  pipeline *p = w->state;
  flight *f = &p->flight[i % p->window];
  shard batch = worker_batch(w), micro = shard_of(batch.count, i, p->micro);
  bool first = w->rank == w->nranks - 1, last = w->rank == 0;
  size_t out = p->part.layer[p->part.layers - 1].out;
  if (!last && !receive(w, f->pass.delta[0], micro.count * out, w->rank - 1, TAG_DELTAS, why))
    return false;
  double begin = clock_s();
  if (last) {
    w->sums.loss += model_loss(&p->part, &f->pass, micro.count, &w->sums.correct);
    w->sums.samples += (double)micro.count;
    model_loss_delta(&p->part, &f->pass, micro.count, 1.0f / (float)batch.count);
  }
  if (!model_backward(&p->part, w->params + p->first, &f->pass, micro.count, p->piece,
                      first ? NULL : f->in_delta, (model_listener){.layer_done = NULL}, why))
    return false;
  rows_add(p->part.params, p->grads, p->piece);
  worker_slow(w, clock_s() - begin);
  return first || send(w, f->in_delta, micro.count * p->part.inputs, w->rank + 1, TAG_DELTAS,
                       &f->deltas, why);
}

/* One batch: all micro-batches in the order of the schedule, and the update of this stage. */
static bool step(worker *w, fail *why) {
  pipeline *p = w->state;
  int ahead = w->o->pipeline_schedule == SCHEDULE_1F1B ? p->window : p->micro;
  memset(p->grads, 0, p->part.params * sizeof(float));
  for (int i = 0; i < p->micro + ahead; i++) {
    if (i >= ahead && !backward(w, i - ahead, why))
      return false;
    if (i < p->micro && !forward(w, i, why))
      return false;
  }
  worker_update(w, p->first, p->part.params, p->grads);
  w->updates++;
  return true;
}

static bool epoch(worker *w, fail *why) {
  if (!worker_each_step(w, step, why))
    return false;
  pipeline *p = w->state;
  for (int i = 0; i < p->window; i++)
    if (!worker_wait(w, &p->flight[i].values, "sending values", why) ||
        !worker_wait(w, &p->flight[i].deltas, "sending derivatives", why))
      return false;
  return true;
}

/* Every stage's weights from its rank; and how long stages waited, beside the formula. */
static const float *settle(worker *w, fail *why) {
  const pipeline *p = w->state;
  double spent = clock_s() - w->begin_s, idle[2] = {w->sums.waited_s / spent, 0};
  coll_status status = coll_allreduce(idle, idle + 1, 1, COLL_FLOAT64, COLL_SUM, w->comm);
  if (status != COLL_OK) {
    fail_coll(why, w->comm, status, "comparing the stages");
    return NULL;
  }
  worker_note(w, "\"bubble\":%.4g,\"bubble_formula\":%.4g", idle[1] / w->nranks,
              (double)(w->nranks - 1) / (double)(p->micro + w->nranks - 1));
  for (int r = 0; r < w->nranks; r++) {
    int stage = w->nranks - 1 - r;
    size_t begin = cut_at(&w->model, stage, w->nranks),
           end = cut_at(&w->model, stage + 1, w->nranks);
    size_t last = end == w->model.layers ? w->model.params : w->model.layer[end].first;
    size_t first = w->model.layer[begin].first;
    if (!worker_share_part(w, r, first, last - first, why))
      return NULL;
  }
  return w->params;
}

const strategy strategy_pipeline = {
    .name = "pipeline",
    .about = "layers split over the ranks, micro-batches one behind the other (model parallel)",
    .bits = STRATEGY_EXACT,
    .check = check,
    .open = open_pipeline,
    .close = close_pipeline,
    .epoch = epoch,
    .settle = settle,
};
