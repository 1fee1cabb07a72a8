/*
 * own_model.c: your own data and model with the trainer's strategies. The data are points on three
 * rings. The model's first layer is of a kind that the trainer does not have: radial basis
 * functions. docs/strategies.md explains this file. Try
 *
 *     collrun -n 4 own_model --strategy gossip --epochs 10
 */
#include "trainer/base.h"
#include "trainer/layers/layer.h"
#include "trainer/program.h"

#include <math.h>
#include <string.h>

enum { POINTS = 4000, TESTS = 500, RINGS = 3, CENTRES = 32 };

/* Initial parameters: centres anywhere near the data, which have mean 0 and deviation 1. */
static void radial_seed(const layer *l, rng *g, float *params) {
  for (size_t i = 0; i < l->count; i++)
    params[i] = (float)layer_normal(g);
}

/* out[j] = exp(-|in - centre j|^2), for each sample. */
static void radial_forward(const layer *l, layer_run *run) {
  for (size_t i = 0; i < run->rows * l->out; i++) {
    const float *in = run->in + i / l->out * l->in, *centre = run->params + i % l->out * l->in;
    float distance = 0;
    for (size_t k = 0; k < l->in; k++)
      distance += (in[k] - centre[k]) * (in[k] - centre[k]);
    run->out[i] = expf(-distance);
  }
}

/* Derivatives of the loss by the centres and, unless this is the first layer, by `in`. */
static void radial_backward(const layer *l, layer_run *run) {
  memset(run->grads, 0, l->count * sizeof(float));
  if (run->in_delta)
    memset(run->in_delta, 0, run->rows * l->in * sizeof(float));
  for (size_t i = 0; i < run->rows * l->out; i++) {
    size_t row = i / l->out * l->in, centre = i % l->out * l->in;
    for (size_t k = 0; k < l->in; k++) {
      float slope = 2 * (run->in[row + k] - run->params[centre + k]) * run->out[i];
      run->grads[centre + k] += run->out_delta[i] * slope;
      if (run->in_delta)
        run->in_delta[row + k] -= run->out_delta[i] * slope;
    }
  }
}

static const layer_kind radial = {"radial", radial_seed, radial_forward, radial_backward};

/* The model: a sequence of layers. The loss is softmax cross entropy. */
static bool make(model *m, const options *o, const dataset *d, fail *why) {
  (void)o;
  model_begin(m);
  layer first = {.kind = &radial, .in = d->inputs, .out = CENTRES, .count = CENTRES * d->inputs};
  if (!model_add(m, first, why) || !model_add(m, layer_linear(CENTRES, RINGS, 1, false), why))
    return false;
  model_end(m, 1);
  return true;
}

/* The data: one byte for each number of a sample, one for its label. Every rank has all samples. */
static bool load(dataset *d, const options *o, fail *why) {
  (void)why;
  static uint8_t points[POINTS + TESTS][2], rings[POINTS + TESTS];
  rng g = rng_make(o->seed, RNG_WEIGHTS, POINTS);
  for (size_t i = 0; i < POINTS + TESTS; i++) {
    rings[i] = (uint8_t)rng_below(&g, RINGS);
    double radius = 40 * (rings[i] + 1) - 10 * rng_unit(&g), angle = 2 * M_PI * rng_unit(&g);
    points[i][0] = (uint8_t)(128 + radius * cos(angle));
    points[i][1] = (uint8_t)(128 + radius * sin(angle));
  }
  sample_set all = {.per_file = POINTS, .input_step = 2, .label_step = 1};
  *d = (dataset){.train = all, .test = all, .inputs = 2, .positions = 1, .classes = RINGS};
  d->train.count = POINTS;
  d->train.inputs[0] = points[0];
  d->train.labels[0] = rings;
  d->test.count = TESTS;
  d->test.inputs[0] = points[POINTS];
  d->test.labels[0] = rings + POINTS;
  d->fingerprint = hash_bytes(HASH_START, points, sizeof(points)); /* ranks compare it */
  return true;
}

int main(int argc, char **argv) {
  return program_run(argc, argv, load, make);
}
