/* grid.c: ranks that split the model: which rank has which part of it. */
#include "trainer/strategies/grid.h"

#include "trainer/strategies/strategy.h"

#include <string.h>

#define MEMORIES 3 /* parameters, velocity, and squares if the optimizer has them */

void grid_sizes(const options *o, int nranks, int *tensor, int *pipeline) {
  const char *name = o->strategy->name; /* only grid has the two options: otherwise they are 1 */
  *tensor = strcmp(name, "tensor") == 0 ? nranks : (int)o->tensor;
  *pipeline = strcmp(name, "pipeline") == 0 ? nranks : (int)o->pipeline;
}

/* Whether each layer of the model can be split into so many parts. */
static bool layers_split(const model *m, int parts, const char *name, fail *why) {
  for (size_t l = 0; l < m->layers; l++) {
    const layer *here = &m->layer[l];
    if (!layer_splits(here))
      return fail_set(why,
                      "--strategy %s: layer %zu of the model is of kind %s, and only linear layers "
                      "can be split: take --model perceptron",
                      name, l + 1, here->kind->name);
    if (l + 1 < m->layers && here->out < (size_t)parts)
      return fail_set(why, "--strategy %s: a layer of %zu outputs cannot be split into %d parts",
                      name, here->out, parts);
  }
  return true;
}

bool grid_check(const worker *w, fail *why) {
  int tensor, pipeline;
  const options *o = w->o;
  const char *name = o->strategy->name;
  grid_sizes(o, w->nranks, &tensor, &pipeline);
  if (w->nranks % (tensor * pipeline) != 0)
    return fail_set(why,
                    "--strategy %s: %d ranks are no multiple of --tensor %d times --pipeline %d",
                    name, w->nranks, tensor, pipeline);
  if ((size_t)pipeline > w->model.layers)
    return fail_set(why, "--strategy %s: %d stages, but the model has only %zu layer%s", name,
                    pipeline, w->model.layers, w->model.layers == 1 ? "" : "s");
  return tensor == 1 || layers_split(&w->model, tensor, name, why);
}

/* How layer l of the whole model is cut: pairs of columns and rows, a last single one not at all.
 */
enum { WHOLE, COLUMNS, ROWS };
static int cut_of(const grid *g, const model *m, size_t l) {
  if (g->tensor.size == 1 || (l % 2 == 0 && l + 1 == m->layers))
    return WHOLE;
  return l % 2 == 0 ? COLUMNS : ROWS;
}

/* The model with this rank's part of each layer. */
static bool split_model(grid *g, const model *m, fail *why) {
  model_begin(&g->whole);
  for (size_t l = 0; l < m->layers; l++) {
    const layer *from = &m->layer[l];
    int cut = cut_of(g, m, l);
    layer mine = cut == COLUMNS ? layer_columns(&g->split, from->in, from->out, from->relu)
                 : cut == ROWS  ? layer_rows(&g->split, from->in, from->out, from->relu)
                                : *from;
    if (!model_add(&g->whole, mine, why))
      return false;
  }
  model_end(&g->whole, m->positions);
  return true;
}

/* What a layer costs: its multiplications, or at least its numbers. */
static double cost_of(const layer *l) {
  return (double)l->count + (double)(l->in + l->out);
}

/* The first layer of a stage, so that all stages cost about the same and have a layer at least. */
static size_t stage_begin(const model *m, int stage, int stages) {
  double all = 0, before = 0;
  size_t layers = m->layers, at = 0;
  for (size_t l = 0; l < layers; l++)
    all += cost_of(&m->layer[l]);
  while (at < layers && before + cost_of(&m->layer[at]) / 2 < all * stage / stages)
    before += cost_of(&m->layer[at++]);
  size_t least = (size_t)stage, most = layers - (size_t)(stages - stage);
  return at < least ? least : at > most ? most : at;
}

/* Copies numbers between the whole array and this rank's part of it; `out`: into the whole. */
static void copy_numbers(float *whole, float *part, size_t count, bool out) {
  memcpy(out ? whole : part, out ? part : whole, count * sizeof(float));
}

/* Copies this rank's part of layer l. What several ranks have alike is copied out by the first. */
static void copy_layer(const grid *g, const model *m, size_t l, float *whole, float *part,
                       bool out) {
  const layer *from = &m->layer[l];
  bool first = g->tensor.rank == 0 || !out;
  float *bias = whole + from->in * from->out;
  if (cut_of(g, m, l) == WHOLE) {
    copy_numbers(whole, part, first ? from->count : 0, out);
  } else if (cut_of(g, m, l) == COLUMNS) {
    shard mine = shard_of(from->out, g->tensor.rank, g->tensor.size);
    copy_numbers(whole + mine.first * from->in, part, mine.count * from->in, out);
    copy_numbers(bias + mine.first, part + mine.count * from->in, mine.count, out);
  } else {
    shard mine = shard_of(from->in, g->tensor.rank, g->tensor.size);
    for (size_t o = 0; o < from->out; o++)
      copy_numbers(whole + o * from->in + mine.first, part + o * mine.count, mine.count, out);
    copy_numbers(bias, part + mine.count * from->out, first ? from->out : 0, out);
  }
}

/* Copies all of this rank's parts of an array of the whole model. */
static void copy_part(const grid *g, const model *m, float *whole, float *part, bool out) {
  for (size_t l = g->begin; l < g->end; l++)
    copy_layer(g, m, l, whole + m->layer[l].first, part + g->part.layer[l - g->begin].first, out);
}

/* Makes the communicator of the ranks that differ in one dimension alone. */
static bool open_axis(worker *w, axis *a, int color, fail *why) {
  if (a->size == 1)
    return true;
  coll_status status = coll_comm_split(w->comm, color, a->rank, NULL, &a->comm);
  return succeeded(why, w->comm, status, "splitting the ranks");
}

/* Finds this rank's coordinates, and makes the communicators for sums. */
static bool open_axes(grid *g, worker *w, fail *why) {
  int tensor, pipeline;
  grid_sizes(w->o, w->nranks, &tensor, &pipeline);
  g->tensor = (axis){.size = tensor, .rank = w->rank % tensor};
  g->pipeline = (axis){.size = pipeline, .rank = w->rank / tensor % pipeline};
  g->data = (axis){.size = w->nranks / tensor / pipeline, .rank = w->rank / tensor / pipeline};
  if (!open_axis(w, &g->tensor, w->rank / tensor, why) ||
      !open_axis(w, &g->data, w->rank % (tensor * pipeline), why))
    return false;
  g->split = (split){.comm = g->tensor.comm, .rank = g->tensor.rank, .nranks = tensor};
  return true;
}

bool grid_open(grid *g, worker *w, fail *why) {
  int stages, tensor;
  grid_sizes(w->o, w->nranks, &tensor, &stages);
  if (!open_axes(g, w, why) || !split_model(g, &w->model, why))
    return false;
  int stage = stages - 1 - g->pipeline.rank;
  g->begin = stage_begin(&w->model, stage, stages);
  g->end = stage_begin(&w->model, stage + 1, stages);
  g->part = model_part(&g->whole, g->begin, g->end);
  float **mine[MEMORIES] = {&g->params, &g->velocity, &g->squares};
  float *whole[MEMORIES] = {w->params, w->velocity, w->squares};
  for (int i = 0; i < MEMORIES; i++) {
    if (!whole[i])
      continue;
    *mine[i] = worker_memory(w, g->part.params * sizeof(float), why);
    if (!*mine[i])
      return false;
    copy_part(g, &w->model, whole[i], *mine[i], false);
  }
  return true;
}

void grid_close(grid *g) {
  coll_comm_destroy(&g->tensor.comm);
  coll_comm_destroy(&g->data.comm);
}

bool grid_settle(grid *g, worker *w, fail *why) {
  float *mine[MEMORIES] = {g->params, g->velocity, g->squares};
  float *whole[MEMORIES] = {w->params, w->velocity, w->squares};
  for (int i = 0; i < MEMORIES; i++) {
    if (!whole[i])
      continue;
    memset(whole[i], 0, w->model.params * sizeof(float));
    if (g->data.rank == 0)
      copy_part(g, &w->model, whole[i], mine[i], true);
    coll_status status = coll_allreduce(whole[i], whole[i], w->model.params, COLL_FLOAT32, COLL_SUM,
                                        w->comm); /* of numbers that one rank has and others not */
    if (!succeeded(why, w->comm, status, "putting the model together"))
      return false;
  }
  return true;
}
