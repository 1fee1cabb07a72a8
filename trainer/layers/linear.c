/*
 * linear.c: the fully connected layer, for whole samples or for each position of a sample on
 * its own, and linear layers of which each rank has a part. `columns` cuts the outputs: a rank
 * computes its own from whole inputs, and the derivatives by the inputs are summed over the ranks.
 * `rows` cuts the inputs: each rank multiplies its own, and the outputs are summed. A `columns`
 * layer with a `rows` layer behind it needs one sum forwards and one backwards; the values between
 * them are never gathered. dim: inputs and outputs of this rank, positions (1 if split). M. Shoeybi
 * et al.: Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism,
 * 2019.
 */
#include "trainer/dataset.h"
#include "trainer/layers/layer.h"

#include <math.h>
#include <string.h>

double layer_normal(rng *g) {
  double radius = sqrt(-2.0 * log(rng_unit(g)));
  return radius * cos(2.0 * M_PI * rng_unit(g));
}

void layer_relu_delta(const layer *l, const layer_run *run) {
  if (!l->relu)
    return;
  for (size_t i = 0; i < run->rows * l->out; i++)
    run->out_delta[i] = run->out[i] > 0.0f ? run->out_delta[i] : 0.0f;
}

void layer_seed_linear(size_t inputs, size_t outputs, double gain, rng *g, float *params) {
  double deviation = sqrt(gain / (double)inputs);
  for (size_t i = 0; i < inputs * outputs; i++)
    params[i] = (float)(deviation * layer_normal(g));
  memset(params + inputs * outputs, 0, outputs * sizeof(float));
}

/* He initialisation: normal with variance 2 / inputs; biases 0. */
static void seed(const layer *l, rng *g, float *params) {
  layer_seed_linear(l->dim[0], l->dim[1], 2.0, g, params);
}

static void forward(const layer *l, layer_run *run) {
  rows_linear(run->rows * l->dim[2], l->dim[0], l->dim[1], run->params, run->in, run->out, l->relu);
}

static void backward(const layer *l, layer_run *run) {
  layer_relu_delta(l, run);
  rows_linear_back(run->rows * l->dim[2], l->dim[0], l->dim[1], run->params, run->in,
                   run->out_delta, run->in_delta, run->grads);
}

/* Sums numbers over the ranks. */
static void sum(const layer *l, layer_run *run, float *data, size_t count) {
  split *ranks = l->split;
  double begin = clock_s(), n = (double)ranks->nranks;
  coll_status status = coll_allreduce(data, data, count, COLL_FLOAT32, COLL_SUM, ranks->comm);
  ranks->waited_s += clock_s() - begin;
  ranks->sent_bytes += 2.0 * (n - 1) / n * (double)(count * sizeof(float));
  run->failed = !succeeded(run->why, ranks->comm, status, "summing a split layer");
}

static void columns_backward(const layer *l, layer_run *run) {
  backward(l, run);
  if (run->in_delta)
    sum(l, run, run->in_delta, run->rows * l->in);
}

static void rows_forward(const layer *l, layer_run *run) {
  rows_product(run->rows, l->in, l->out, run->params, run->in, run->out);
  sum(l, run, run->out, run->rows * l->out);
  rows_bias(run->rows, l->out, run->params + l->in * l->out, run->out, l->relu);
}

/* Parts need no seed(): their parameters are copied from the whole model's. */
static const layer_kind linear = {"linear", seed, forward, backward};
static const layer_kind columns = {"columns", NULL, forward, columns_backward};
static const layer_kind rows = {"rows", NULL, rows_forward, backward};

bool layer_splits(const layer *l) {
  return l->kind == &linear && l->dim[2] == 1;
}

layer layer_linear(size_t inputs, size_t outputs, size_t positions, bool relu) {
  return (layer){.kind = &linear,
                 .in = inputs * positions,
                 .out = outputs * positions,
                 .count = rows_linear_params(inputs, outputs),
                 .dim = {inputs, outputs, positions},
                 .relu = relu};
}

layer layer_columns(split *ranks, size_t inputs, size_t outputs, bool relu) {
  layer l = layer_linear(inputs, shard_of(outputs, ranks->rank, ranks->nranks).count, 1, relu);
  l.kind = &columns;
  l.split = ranks;
  return l;
}

layer layer_rows(split *ranks, size_t inputs, size_t outputs, bool relu) {
  layer l = layer_linear(shard_of(inputs, ranks->rank, ranks->nranks).count, outputs, 1, relu);
  l.kind = &rows;
  l.split = ranks;
  return l;
}
