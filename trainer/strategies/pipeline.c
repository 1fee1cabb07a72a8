/*
 * pipeline.c: model parallel training: the layers cut into stages, one a rank (`pipeline`), linear
 * layers cut into parts (`tensor`, see layers/split.c), and any product of both and of copies that
 * share batches (`grid`, see grid.h).
 *
 *     for each batch, cut into m micro-batches; `ahead` is m with GPipe, with 1F1B the number of
 *     stages from this one to the last:
 *       for i = 0 .. m + ahead - 1:
 *         if i >= ahead:  backward pass of micro-batch i - ahead:
 *                           receive the derivatives from the next stage; g += gradient;
 *                           send derivatives to the stage before
 *         if i < m:       forward pass of micro-batch i:
 *                           receive the values from the stage before; send values to the next
 *       g = all-reduce(g) over the copies;  w = optimizer(w, g)          of this rank's layers
 *
 * So stages work at the same time on different micro-batches. Three stages and four micro-batches,
 * time to the right, forward passes as numbers and backward ones in brackets:
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
 * back, and none of the model's size. Rank 0 is in the last stage, which knows the loss. After an
 * epoch all ranks get the whole model, to test and to save it.
 *
 * Y. Huang et al., GPipe: Efficient Training of Giant Neural Networks Using Pipeline Parallelism,
 * NeurIPS 2019; D. Narayanan et al., PipeDream: Generalized Pipeline Parallelism for DNN Training,
 * SOSP 2019 (1F1B, here with the flush of PipeDream-Flush, ICML 2021).
 */
#include "trainer/clock.h"
#include "trainer/layers/rows.h"
#include "trainer/strategies/grid.h"
#include "trainer/strategies/stage_times.h"
#include "trainer/strategies/strategy.h"

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
  grid grid;
  int micro, window;    /* micro-batches of a batch, and how many are kept at once */
  bool first, last;     /* whether this is the first, the last stage */
  float *grads, *piece; /* of this rank's parameters: their sum, those of one micro-batch */
  float *inputs;        /* of samples of which only labels are needed */
  flight *flight;       /* micro-batch i has flight i % window */
  span *span;           /* of the last step: forward passes, then backward ones */
} pipeline;

/* Memory for the micro-batches that are kept at once. */
static bool take_flights(worker *w, pipeline *p, fail *why) {
  const model *part = &p->grid.part;
  int behind = p->grid.pipeline.rank + 1; /* stages that a micro-batch must pass and come back */
  size_t rows = shard_of(worker_rows(w, p->grid.data.size), 0, p->micro).count;
  p->window = w->o->pipeline_schedule == SCHEDULE_1F1B && behind < p->micro ? behind : p->micro;
  p->flight = calloc((size_t)p->window, sizeof(*p->flight));
  p->inputs = matrix_alloc(rows, w->model.inputs);
  if (!p->flight || !p->inputs)
    return fail_memory(why, "the micro-batches");
  for (int i = 0; i < p->window; i++) {
    p->flight[i].in_delta = matrix_alloc(rows, part->inputs);
    if (!p->flight[i].in_delta)
      return fail_memory(why, "the micro-batches");
    if (!pass_create(&p->flight[i].pass, part, rows, why))
      return false;
  }
  return true;
}

static bool open_pipeline(worker *w, fail *why) {
  pipeline *p = calloc(1, sizeof(*p));
  if (!p)
    return fail_memory(why, "the pipeline");
  w->state = p;
  if (!grid_open(&p->grid, w, why))
    return false;
  const axis *stages = &p->grid.pipeline;
  p->last = stages->rank == 0;
  p->first = stages->rank == stages->size - 1;
  p->micro = stages->size > 1 ? (int)w->o->micro_batches : 1;
  p->grads = matrix_alloc(1, p->grid.part.params + 1);
  p->piece = matrix_alloc(1, p->grid.part.params + 1);
  p->span = calloc(2 * (size_t)p->micro, sizeof(*p->span));
  if (!p->grads || !p->piece || !p->span)
    return fail_memory(why, "the gradients of a stage");
  return take_flights(w, p, why);
}

static void close_pipeline(worker *w) {
  pipeline *p = w->state;
  if (!p)
    return;
  if (p->flight)
    for (int i = 0; i < p->window; i++) {
      pass_destroy(&p->flight[i].pass);
      free(p->flight[i].in_delta);
    }
  free(p->flight);
  free(p->inputs);
  free(p->grads);
  free(p->piece);
  free(p->span);
  grid_close(&p->grid);
  free(p);
  w->state = NULL;
}

/* Sends numbers to another stage; the request is waited for before the memory is used again. */
static bool send_values(worker *w, const float *data, size_t count, int to, int tag,
                        coll_request **request, fail *why) {
  coll_comm *stages = ((pipeline *)w->state)->grid.pipeline.comm;
  coll_status status = coll_isend(data, count, COLL_FLOAT32, to, tag, stages, request);
  w->sums.sent_bytes += (double)count * sizeof(float);
  return status == COLL_OK || fail_coll(why, stages, status, "sending to another stage");
}

/* Waits for numbers from another stage. */
static bool receive_values(worker *w, float *data, size_t count, int from, int tag, fail *why) {
  double begin = clock_s();
  coll_comm *stages = ((pipeline *)w->state)->grid.pipeline.comm;
  coll_status status = coll_recv(data, count, COLL_FLOAT32, from, tag, NULL, stages);
  w->sums.waited_s += clock_s() - begin;
  return status == COLL_OK || fail_coll(why, stages, status, "receiving from another stage");
}

/* This copy's part of the batch, and a micro-batch of it. */
static shard micro_batch(const worker *w, int i) {
  const pipeline *p = w->state;
  shard mine = shard_part(worker_batch(w), p->grid.data.rank, p->grid.data.size);
  return shard_part(mine, i, p->micro);
}

/* Counts the time since `begin`, but what was spent in sums over parts of layers; it was pass
 * `number` of the step. */
static void computed(worker *w, double begin, int number) {
  pipeline *p = w->state;
  split *ranks = &p->grid.split;
  worker_slow(w, clock_s() - begin - ranks->waited_s);
  w->sums.waited_s += ranks->waited_s;
  w->sums.sent_bytes += ranks->sent_bytes;
  ranks->waited_s = ranks->sent_bytes = 0;
  p->span[number] = (span){begin, clock_s()};
}

/* The forward pass of micro-batch i through this stage. */
static bool forward_pass(worker *w, int i, fail *why) {
  pipeline *p = w->state;
  flight *f = &p->flight[i % p->window];
  const model *part = &p->grid.part;
  int here = p->grid.pipeline.rank;
  shard micro = micro_batch(w, i);
  if (!worker_wait(w, &f->values, "sending values", why) ||
      !worker_wait(w, &f->deltas, "sending derivatives", why))
    return false;
  if (p->first || p->last)
    loader_train(&w->loader, micro.first, micro.count, p->first ? f->pass.value[0] : p->inputs,
                 f->pass.labels);
  if (!p->first &&
      !receive_values(w, f->pass.value[0], micro.count * part->inputs, here + 1, TAG_VALUES, why))
    return false;
  double begin = clock_s();
  if (!model_forward(part, p->grid.params, &f->pass, micro.count, why))
    return false;
  computed(w, begin, i);
  size_t out = part->layer[part->layers - 1].out;
  return p->last || send_values(w, f->pass.value[part->layers], micro.count * out, here - 1,
                                TAG_VALUES, &f->values, why);
}

/* The backward pass of micro-batch i through this stage: adds its gradients to the sum. */
static bool backward_pass(worker *w, int i, fail *why) {
  pipeline *p = w->state;
  flight *f = &p->flight[i % p->window];
  const model *part = &p->grid.part;
  int here = p->grid.pipeline.rank;
  size_t rows = micro_batch(w, i).count, out = part->layer[part->layers - 1].out;
  if (!p->last && !receive_values(w, f->pass.delta[0], rows * out, here - 1, TAG_DELTAS, why))
    return false;
  double begin = clock_s();
  if (p->last && p->grid.tensor.rank == 0) {
    w->sums.loss += model_loss(part, &f->pass, rows, &w->sums.correct);
    w->sums.samples += (double)rows;
  }
  if (p->last)
    model_loss_delta(part, &f->pass, rows, 1.0f / (float)worker_batch(w).count);
  if (!model_backward(part, p->grid.params, &f->pass, rows, p->piece, p->first ? NULL : f->in_delta,
                      NO_LISTENER, why))
    return false;
  rows_add(part->params, p->grads, p->piece);
  computed(w, begin, p->micro + i);
  return p->first ||
         send_values(w, f->in_delta, rows * part->inputs, here + 1, TAG_DELTAS, &f->deltas, why);
}

/* Sums the gradients over the copies of the model. */
static bool sum_copies(worker *w, fail *why) {
  pipeline *p = w->state;
  const axis *data = &p->grid.data;
  double begin = clock_s(), n = (double)data->size;
  if (data->size == 1)
    return true;
  coll_status status =
      coll_allreduce(p->grads, p->grads, p->grid.part.params, COLL_FLOAT32, COLL_SUM, data->comm);
  w->sums.waited_s += clock_s() - begin;
  w->sums.sent_bytes += 2.0 * (n - 1) / n * (double)(p->grid.part.params * sizeof(float));
  return status == COLL_OK || fail_coll(why, data->comm, status, "summing gradients");
}

/* One batch: all micro-batches in the order of the schedule, and the update of this rank's part. */
static bool pipeline_step(worker *w, fail *why) {
  pipeline *p = w->state;
  int ahead = w->o->pipeline_schedule == SCHEDULE_1F1B ? p->window : p->micro;
  memset(p->grads, 0, p->grid.part.params * sizeof(float));
  for (int i = 0; i < p->micro + ahead; i++) {
    if (i >= ahead && !backward_pass(w, i - ahead, why))
      return false;
    if (i < p->micro && !forward_pass(w, i, why))
      return false;
  }
  if (!sum_copies(w, why))
    return false;
  double begin = clock_s();
  optim_update(&w->rule, p->grid.part.params, p->grid.params, p->grid.velocity, p->grid.squares,
               p->grads);
  w->sums.compute_s += clock_s() - begin;
  w->updates++;
  return true;
}

static bool pipeline_epoch(worker *w, fail *why) {
  if (!worker_each_step(w, pipeline_step, why))
    return false;
  pipeline *p = w->state;
  for (int i = 0; i < p->window; i++)
    if (!worker_wait(w, &p->flight[i].values, "sending values", why) ||
        !worker_wait(w, &p->flight[i].deltas, "sending derivatives", why))
      return false;
  return true;
}

/* The whole model from its parts; and how long stages waited, beside the formula. */
static const float *pipeline_settle(worker *w, fail *why) {
  pipeline *p = w->state;
  int stages = p->grid.pipeline.size;
  double spent = clock_s() - w->begin_s, idle[2] = {w->sums.waited_s / spent, 0};
  coll_status status = coll_allreduce(idle, idle + 1, 1, COLL_FLOAT64, COLL_SUM, w->comm);
  if (status != COLL_OK) {
    fail_coll(why, w->comm, status, "comparing the stages");
    return NULL;
  }
  worker_note(w, "\"tensor\":%d,\"pipeline\":%d,\"copies\":%d", p->grid.tensor.size, stages,
              p->grid.data.size);
  if (stages > 1) {
    worker_note(w, ",\"bubble\":%.4g,\"bubble_formula\":%.4g", idle[1] / w->nranks,
                (double)(stages - 1) / (double)(p->micro + stages - 1));
    if (!stage_times_note(w, &p->grid, p->span, p->micro, why))
      return NULL;
  }
  return grid_settle(&p->grid, w, why) ? w->params : NULL;
}

#define STRATEGY(word, words)                                                                      \
  {                                                                                                \
    .name = (word), .about = (words), .bits = STRATEGY_EXACT, .check = grid_check,                 \
    .open = open_pipeline, .close = close_pipeline, .epoch = pipeline_epoch,                       \
    .settle = pipeline_settle                                                                      \
  }
const strategy strategy_pipeline =
    STRATEGY("pipeline", "layers split over the ranks, micro-batches one behind the other");
const strategy strategy_tensor =
    STRATEGY("tensor", "linear layers split by outputs and inputs over the ranks");
const strategy strategy_grid =
    STRATEGY("grid", "--tensor times --pipeline ranks split the model, copies of it the batches");
