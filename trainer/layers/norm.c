/* norm.c: layer normalisation of each position of a sample. dim: positions, width. */
#include "trainer/layers/layer.h"
#include "trainer/layers/rows.h"

#include <string.h>

void layer_seed_norm(size_t width, float *params) {
  for (size_t j = 0; j < width; j++) {
    params[j] = 1;
    params[width + j] = 0;
  }
}

static void seed(const layer *l, rng *g, float *params) {
  (void)g;
  layer_seed_norm(l->dim[1], params);
}

static bool forward(const layer *l, const layer_run *run, fail *why) {
  (void)why;
  rows_norm(run->rows * l->dim[0], l->dim[1], run->params, run->in, run->out, run->memo);
  return true;
}

static bool backward(const layer *l, const layer_run *run, fail *why) {
  (void)why;
  float *in_delta = run->in_delta ? run->in_delta : run->out; /* `out` is no longer needed */
  memset(in_delta, 0, run->rows * l->in * sizeof(float));
  rows_norm_back(run->rows * l->dim[0], l->dim[1], run->params, run->in, run->memo, run->out_delta,
                 in_delta, run->grads);
  return true;
}

static const layer_kind norm = {"norm", seed, forward, backward};

layer layer_norm(size_t positions, size_t width) {
  return (layer){.kind = &norm,
                 .in = positions * width,
                 .out = positions * width,
                 .memo = positions * 2,
                 .count = rows_norm_params(width),
                 .dim = {positions, width}};
}
