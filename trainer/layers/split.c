/*
 * split.c: linear layers of which each rank has a part. `columns` splits the outputs: a rank
 * computes its own from all inputs, and the derivatives by the inputs are summed over the ranks.
 * `rows` splits the inputs: each rank multiplies its own, and the outputs are summed. A `columns`
 * layer followed by a `rows` layer needs one sum forwards and one backwards; the values in between
 * are never gathered. dim: inputs and outputs of this rank, positions (1). Source: M. Shoeybi et
 * al.: Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism, 2019.
 */
#include "trainer/layers/split.h"

#include "trainer/clock.h"
#include "trainer/layers/rows.h"
#include "trainer/loader.h"

/* Sums numbers over the ranks. */
static bool sum(split *ranks, float *data, size_t count, fail *why) {
  double begin = clock_s(), n = (double)ranks->nranks;
  coll_status status = coll_allreduce(data, data, count, COLL_FLOAT32, COLL_SUM, ranks->comm);
  ranks->waited_s += clock_s() - begin;
  ranks->sent_bytes += 2.0 * (n - 1) / n * (double)(count * sizeof(float));
  return status == COLL_OK || fail_coll(why, ranks->comm, status, "summing a split layer");
}

static bool columns_forward(const layer *l, const layer_run *run, fail *why) {
  (void)why;
  rows_linear(run->rows, l->in, l->out, run->params, run->in, run->out, l->relu);
  return true;
}

static bool columns_backward(const layer *l, const layer_run *run, fail *why) {
  layer_relu_delta(l, run);
  rows_linear_back(run->rows, l->in, l->out, run->params, run->in, run->out_delta, run->in_delta,
                   run->grads);
  return !run->in_delta || sum(l->split, run->in_delta, run->rows * l->in, why);
}

static bool rows_forward(const layer *l, const layer_run *run, fail *why) {
  rows_product(run->rows, l->in, l->out, run->params, run->in, run->out);
  if (!sum(l->split, run->out, run->rows * l->out, why))
    return false;
  rows_bias(run->rows, l->out, run->params + l->in * l->out, run->out, l->relu);
  return true;
}

static bool rows_backward(const layer *l, const layer_run *run, fail *why) {
  (void)why;
  layer_relu_delta(l, run);
  rows_linear_back(run->rows, l->in, l->out, run->params, run->in, run->out_delta, run->in_delta,
                   run->grads);
  return true;
}

/* They need no seed(): their parameters are copied from the whole model's. */
static const layer_kind columns = {"columns", NULL, columns_forward, columns_backward};
static const layer_kind rows = {"rows", NULL, rows_forward, rows_backward};

/* A linear layer of one rank. */
static layer make_split_layer(const layer_kind *kind, split *ranks, size_t inputs, size_t outputs,
                              bool relu) {
  return (layer){.kind = kind,
                 .in = inputs,
                 .out = outputs,
                 .count = rows_linear_params(inputs, outputs),
                 .dim = {inputs, outputs, 1},
                 .relu = relu,
                 .split = ranks};
}

layer layer_columns(split *ranks, size_t inputs, size_t outputs, bool relu) {
  return make_split_layer(&columns, ranks, inputs,
                          shard_of(outputs, ranks->rank, ranks->nranks).count, relu);
}

layer layer_rows(split *ranks, size_t inputs, size_t outputs, bool relu) {
  return make_split_layer(&rows, ranks, shard_of(inputs, ranks->rank, ranks->nranks).count, outputs,
                          relu);
}
