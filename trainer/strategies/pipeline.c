/*
 * pipeline.c: model parallel training: the layers cut into stages, one a rank (`pipeline`), linear
 * layers cut into parts (`tensor`, see layers/linear.c), and any product of both and of copies that
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
#include "trainer/strategies/grid.h"
#include "trainer/strategies/strategy.h"

#include <stdlib.h>
#include <string.h>

enum { TAG_VALUES = 1, TAG_DELTAS = 2 };
enum { SCHEDULE_GPIPE, SCHEDULE_1F1B }; /* in the order of --pipeline-schedule */

#define MOST_SPANS 512 /* of all stages, that are shown in the metrics */

/* When a pass of a micro-batch through a stage began and ended. */
typedef struct span {
  double begin_s, end_s;
} span;

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
  int before, next;     /* the ranks of the stages before and behind this one */
  float *grads, *piece; /* of this rank's parameters: their sum, those of one micro-batch */
  float *inputs;        /* of samples of which only labels are needed */
  flight *flight;       /* micro-batch i has flight i % window */
  span *span;           /* of the last step: forward passes, then backward ones */
} pipeline;

/* Memory for the micro-batches that are kept at once. */
static bool take_flights(worker *w, pipeline *p, fail *why) {
  const model *part = &p->grid.part;
  int behind = p->grid.pipeline.rank + 1; /* stages that a micro-batch must pass and come back */
  int window = w->o->pipeline_schedule == SCHEDULE_1F1B && behind < p->micro ? behind : p->micro;
  size_t rows = shard_of(worker_rows(w, p->grid.data.size), 0, p->micro).count;
  p->flight = worker_memory(w, (size_t)window * sizeof(*p->flight), why);
  if (!p->flight || !(p->inputs = worker_memory(w, rows * w->model.inputs * sizeof(float), why)))
    return false;
  for (; p->window < window; p->window++) {
    flight *f = &p->flight[p->window];
    if (!(f->in_delta = worker_memory(w, rows * part->inputs * sizeof(float), why)) ||
        !pass_create(&f->pass, part, rows, why))
      return false;
  }
  return true;
}

static bool open_pipeline(worker *w, fail *why) {
  pipeline *p = w->state;
  if (!grid_open(&p->grid, w, why))
    return false;
  const axis *stages = &p->grid.pipeline;
  size_t bytes = p->grid.part.params * sizeof(float);
  p->last = stages->rank == 0;
  p->first = stages->rank == stages->size - 1;
  p->before = w->rank + p->grid.tensor.size;
  p->next = w->rank - p->grid.tensor.size;
  p->micro = stages->size > 1 ? (int)w->o->micro_batches : 1;
  return (p->grads = worker_memory(w, bytes, why)) && (p->piece = worker_memory(w, bytes, why)) &&
         (p->span = worker_memory(w, 2 * (size_t)p->micro * sizeof(*p->span), why)) &&
         take_flights(w, p, why);
}

static void close_pipeline(worker *w) {
  pipeline *p = w->state;
  for (int i = 0; i < p->window; i++)
    pass_destroy(&p->flight[i].pass);
  grid_close(&p->grid);
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
  shard micro = micro_batch(w, i);
  if (!worker_wait(w, &f->values, "sending values", why) ||
      !worker_wait(w, &f->deltas, "sending derivatives", why))
    return false;
  if (p->first || p->last)
    loader_train(&w->loader, micro.first, micro.count, p->first ? f->pass.value[0] : p->inputs,
                 f->pass.labels);
  size_t in = micro.count * part->inputs * sizeof(float);
  if (!p->first && !worker_receive(w, f->pass.value[0], in, p->before, TAG_VALUES, NULL, why))
    return false;
  double begin = clock_s();
  if (!model_forward(part, p->grid.params, &f->pass, micro.count, why))
    return false;
  computed(w, begin, i);
  size_t out = micro.count * part->layer[part->layers - 1].out * sizeof(float);
  return p->last || worker_start_send(w, f->pass.value[part->layers], out, p->next, TAG_VALUES,
                                      &f->values, why);
}

/* The backward pass of micro-batch i through this stage: adds its gradients to the sum. */
static bool backward_pass(worker *w, int i, fail *why) {
  pipeline *p = w->state;
  flight *f = &p->flight[i % p->window];
  const model *part = &p->grid.part;
  size_t rows = micro_batch(w, i).count, in = rows * part->inputs * sizeof(float);
  size_t out = rows * part->layer[part->layers - 1].out * sizeof(float);
  if (!p->last && !worker_receive(w, f->pass.delta[0], out, p->next, TAG_DELTAS, NULL, why))
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
  return p->first || worker_start_send(w, f->in_delta, in, p->before, TAG_DELTAS, &f->deltas, why);
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
  size_t count = p->grid.part.params;
  if (p->grid.data.comm && !worker_allreduce(w, p->grid.data.comm, p->grads, p->grads, count,
                                             COLL_SUM, "summing gradients", why))
    return false;
  worker_update_arrays(w, count, p->grid.params, p->grid.velocity, p->grid.squares, p->grads);
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

/* Notes the times of one stage's passes, forward or backward. */
static void note_passes(worker *w, const char *name, const span *passes, size_t micro,
                        double begin_s) {
  worker_note(w, "\"%s\":[", name);
  for (size_t i = 0; i < micro; i++)
    worker_note(w, "%s[%.6f,%.6f]", i ? "," : "", passes[i].begin_s - begin_s,
                passes[i].end_s - begin_s);
  worker_note(w, "]");
}

/* Notes all stages, of which `all` has the spans of each rank: those of the first parts of the
 * first copy, which are every tensor.size-th of the first ranks, the last stage first. */
static void note_stages(worker *w, const grid *g, const span *all, size_t micro) {
  int stages = g->pipeline.size, parts = g->tensor.size;
  const span *first = all + (size_t)((stages - 1) * parts) * 2 * micro;
  worker_note(w, ",\"stages\":[");
  for (int s = 0; s < stages; s++) {
    const span *stage = first - (size_t)(s * parts) * 2 * micro;
    worker_note(w, s ? ",{" : "{");
    note_passes(w, "forward", stage, micro, first->begin_s);
    worker_note(w, ",");
    note_passes(w, "backward", stage + micro, micro, first->begin_s);
    worker_note(w, "}");
  }
  worker_note(w, "]");
}

/* Notes when each stage was at work in the last step, by its host's clock; collective. */
static bool note_times(worker *w, fail *why) {
  const pipeline *p = w->state;
  size_t passes = 2 * (size_t)p->micro;
  if (passes * (size_t)p->grid.pipeline.size > MOST_SPANS)
    return true;
  span *all = calloc((size_t)w->nranks * passes, sizeof(*all));
  if (!all)
    return fail_memory(why, "the times of the stages");
  coll_status status = coll_allgather(p->span, all, 2 * passes, COLL_FLOAT64, w->comm);
  if (status == COLL_OK)
    note_stages(w, &p->grid, all, (size_t)p->micro);
  free(all);
  return succeeded(why, w->comm, status, "comparing the stages");
}

/* The whole model from its parts; and how long stages waited, beside the formula. */
static const float *pipeline_settle(worker *w, fail *why) {
  pipeline *p = w->state;
  int stages = p->grid.pipeline.size;
  double spent = clock_s() - w->begin_s, idle[2] = {w->sums.waited_s / spent, 0};
  coll_status status = coll_allreduce(idle, idle + 1, 1, COLL_FLOAT64, COLL_SUM, w->comm);
  if (!succeeded(why, w->comm, status, "comparing the stages"))
    return NULL;
  worker_note(w, "\"tensor\":%d,\"pipeline\":%d,\"copies\":%d", p->grid.tensor.size, stages,
              p->grid.data.size);
  if (stages > 1) {
    worker_note(w, ",\"bubble\":%.4g,\"bubble_formula\":%.4g", idle[1] / w->nranks,
                (double)(stages - 1) / (double)(p->micro + stages - 1));
    if (!note_times(w, why))
      return NULL;
  }
  return grid_settle(&p->grid, w, why) ? w->params : NULL;
}

#define STRATEGY(word, words)                                                                      \
  {                                                                                                \
    .name = (word), .about = (words), .bits = STRATEGY_EXACT, .check = grid_check,                 \
    .bytes = sizeof(pipeline), .open = open_pipeline, .close = close_pipeline,                     \
    .epoch = pipeline_epoch, .settle = pipeline_settle                                             \
  }
const strategy strategy_pipeline =
    STRATEGY("pipeline", "layers split over the ranks, micro-batches one behind the other");
const strategy strategy_tensor =
    STRATEGY("tensor", "linear layers split by outputs and inputs over the ranks");
const strategy strategy_grid =
    STRATEGY("grid", "--tensor times --pipeline ranks split the model, copies of it the batches");
