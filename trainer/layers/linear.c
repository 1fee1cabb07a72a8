/*
 * linear.c: the fully connected layer, for whole samples or for each position of a sample on
 * its own. dim: inputs, outputs, positions.
 */
#include "trainer/layers/layer.h"
#include "trainer/layers/rows.h"

#include <math.h>
#include <string.h>

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

static bool forward(const layer *l, const layer_run *run, fail *why) {
  (void)why;
  rows_linear(run->rows * l->dim[2], l->dim[0], l->dim[1], run->params, run->in, run->out, l->relu);
  return true;
}

static bool backward(const layer *l, const layer_run *run, fail *why) {
  (void)why;
  layer_relu_delta(l, run);
  rows_linear_back(run->rows * l->dim[2], l->dim[0], l->dim[1], run->params, run->in,
                   run->out_delta, run->in_delta, run->grads);
  return true;
}

static const layer_kind linear = {"linear", seed, forward, backward};

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
