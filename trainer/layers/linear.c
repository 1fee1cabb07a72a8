/* linear.c: the fully connected layer. */
#include "trainer/layers/layer.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

/* He initialisation: normal with variance 2 / inputs; biases 0. */
static void seed(const layer *l, rng *g, float *params) {
  size_t weights = l->in * l->out;
  double deviation = sqrt(2.0 / (double)l->in);
  for (size_t i = 0; i < weights; i++)
    params[i] = (float)(deviation * layer_normal(g));
  memset(params + weights, 0, l->out * sizeof(float));
}

/* Adds the bias to every row and, with ReLU, cuts off what is negative. */
static void add_bias(const layer *l, const float *bias, float *out, size_t rows) {
  for (size_t r = 0; r < rows; r++) {
    float *row = out + r * l->out;
    if (l->relu)
      for (size_t j = 0; j < l->out; j++) {
        float x = row[j] + bias[j];
        row[j] = x < 0.0f ? 0.0f : x;
      }
    else
      for (size_t j = 0; j < l->out; j++)
        row[j] += bias[j];
  }
}

static bool forward(const layer *l, const layer_run *run, fail *why) {
  int rows = (int)run->rows, in = (int)l->in, out = (int)l->out;
  (void)why;
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, out, in, 1.0f, run->in, in,
              run->params, in, 0.0f, run->out, out);
  add_bias(l, run->params + l->in * l->out, run->out, run->rows);
  return true;
}

static bool backward(const layer *l, const layer_run *run, fail *why) {
  int rows = (int)run->rows, in = (int)l->in, out = (int)l->out;
  float *bias = run->grads + l->in * l->out;
  (void)why;
  layer_relu_delta(l, run);
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, out, in, rows, 1.0f, run->out_delta, out,
              run->in, in, 0.0f, run->grads, in);
  memset(bias, 0, l->out * sizeof(float));
  for (size_t r = 0; r < run->rows; r++)
    for (size_t j = 0; j < l->out; j++)
      bias[j] += run->out_delta[r * l->out + j];
  if (run->in_delta)
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, in, out, 1.0f, run->out_delta, out,
                run->params, in, 0.0f, run->in_delta, in);
  return true;
}

static const layer_kind linear = {"linear", seed, forward, backward};

layer layer_linear(size_t inputs, size_t outputs, bool relu) {
  return (layer){.kind = &linear,
                 .in = inputs,
                 .out = outputs,
                 .count = inputs * outputs + outputs,
                 .relu = relu};
}
