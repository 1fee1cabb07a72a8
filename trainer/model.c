/* model.c: a multi-layer perceptron with ReLU between the layers and softmax cross entropy. */
#include "trainer/model.h"

#include "trainer/rng.h"

#include <cblas.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool model_init(model *m, const size_t *sizes, size_t count, fail *why) {
  memset(m, 0, sizeof(*m));
  m->layers = count - 1;
  for (size_t i = 0; i < count; i++)
    m->sizes[i] = sizes[i];
  for (size_t l = 0; l < m->layers; l++) {
    size_t weights, both, bytes;
    m->first[l] = m->params;
    if (__builtin_mul_overflow(sizes[l], sizes[l + 1], &weights) ||
        __builtin_add_overflow(weights, sizes[l + 1], &both) ||
        __builtin_add_overflow(m->params, both, &m->params) ||
        __builtin_mul_overflow(m->params, sizeof(float), &bytes))
      return fail_set(why, "--layers: more parameters than can be addressed");
  }
  m->first[m->layers] = m->params;
  return true;
}

/* A normally distributed number (Box and Muller). */
static double normal(rng *g) {
  double radius = sqrt(-2.0 * log(rng_unit(g)));
  return radius * cos(2.0 * M_PI * rng_unit(g));
}

void model_seed(const model *m, uint64_t seed, float *params) {
  for (size_t l = 0; l < m->layers; l++) {
    rng g = rng_make(seed, RNG_WEIGHTS, l);
    size_t weights = m->sizes[l] * m->sizes[l + 1];
    double deviation = sqrt(2.0 / (double)m->sizes[l]);
    float *w = params + m->first[l];
    for (size_t i = 0; i < weights; i++)
      w[i] = (float)(deviation * normal(&g));
    memset(w + weights, 0, m->sizes[l + 1] * sizeof(float));
  }
}

float *matrix_alloc(size_t rows, size_t columns) {
  size_t count, bytes;
  if (__builtin_mul_overflow(rows, columns, &count) ||
      __builtin_mul_overflow(count, sizeof(float), &bytes) ||
      __builtin_add_overflow(bytes, (size_t)63, &bytes))
    return NULL;
  return aligned_alloc(64, bytes / 64 * 64);
}

bool pass_create(pass *p, const model *m, size_t rows, fail *why) {
  size_t widest = 0;
  memset(p, 0, sizeof(*p));
  p->rows = rows;
  bool ok = true;
  for (size_t l = 0; l <= m->layers; l++) {
    p->value[l] = matrix_alloc(rows, m->sizes[l]);
    ok = ok && p->value[l];
    if (l > 0 && m->sizes[l] > widest)
      widest = m->sizes[l];
  }
  p->delta[0] = matrix_alloc(rows, widest);
  p->delta[1] = matrix_alloc(rows, widest);
  ok = ok && p->delta[0] && p->delta[1];
  p->labels = ok ? malloc(rows) : NULL;
  if (p->labels)
    return true;
  pass_destroy(p);
  return fail_memory(why, "a batch");
}

void pass_destroy(pass *p) {
  for (size_t l = 0; l < MODEL_MAX_SIZES; l++)
    free(p->value[l]);
  free(p->delta[0]);
  free(p->delta[1]);
  free(p->labels);
  memset(p, 0, sizeof(*p));
}

/* Adds the bias to every row and, between layers, cuts off what is negative. */
static void add_bias(float *out, const float *bias, size_t rows, size_t width, bool relu) {
  for (size_t r = 0; r < rows; r++) {
    float *row = out + r * width;
    if (relu)
      for (size_t j = 0; j < width; j++) {
        float x = row[j] + bias[j];
        row[j] = x < 0.0f ? 0.0f : x;
      }
    else
      for (size_t j = 0; j < width; j++)
        row[j] += bias[j];
  }
}

void model_forward(const model *m, const float *params, pass *p, size_t rows) {
  if (rows == 0)
    return;
  for (size_t l = 0; l < m->layers; l++) {
    int in = (int)m->sizes[l], out = (int)m->sizes[l + 1];
    const float *w = params + m->first[l];
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, out, in, 1.0f, p->value[l], in,
                w, in, 0.0f, p->value[l + 1], out);
    add_bias(p->value[l + 1], w + m->sizes[l] * m->sizes[l + 1], rows, m->sizes[l + 1],
             l + 1 < m->layers);
  }
}

/* Index of the largest of n numbers. */
static size_t largest(const float *x, size_t n) {
  size_t best = 0;
  for (size_t j = 1; j < n; j++)
    if (x[j] > x[best])
      best = j;
  return best;
}

/* Sum of exp(x[j] - top), where top is the largest: never overflows. */
static double sum_exp(const float *x, size_t n, float top) {
  double sum = 0;
  for (size_t j = 0; j < n; j++)
    sum += (double)expf(x[j] - top);
  return sum;
}

double model_loss(const model *m, const pass *p, size_t rows, size_t *correct) {
  size_t classes = m->sizes[m->layers];
  double loss = 0;
  *correct = 0;
  for (size_t r = 0; r < rows; r++) {
    const float *x = p->value[m->layers] + r * classes;
    size_t best = largest(x, classes);
    *correct += best == p->labels[r];
    loss += log(sum_exp(x, classes, x[best])) + (double)(x[best] - x[p->labels[r]]);
  }
  return loss;
}

/* Derivative of scale * loss by the last layer's outputs: scale * (softmax - one at the label). */
static void loss_delta(const model *m, const pass *p, size_t rows, float scale, float *delta) {
  size_t classes = m->sizes[m->layers];
  for (size_t r = 0; r < rows; r++) {
    const float *x = p->value[m->layers] + r * classes;
    float *d = delta + r * classes;
    float top = x[largest(x, classes)];
    float factor = scale / (float)sum_exp(x, classes, top);
    for (size_t j = 0; j < classes; j++)
      d[j] = expf(x[j] - top) * factor;
    d[p->labels[r]] -= scale;
  }
}

/* Gradients of one layer from the derivative by its output. */
static void layer_gradients(const model *m, const pass *p, size_t l, size_t rows,
                            const float *delta, float *grads) {
  size_t in = m->sizes[l], out = m->sizes[l + 1];
  float *g = grads + m->first[l];
  float *bias = g + in * out;
  if (rows == 0) {
    memset(g, 0, (in + 1) * out * sizeof(float));
    return;
  }
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)out, (int)in, (int)rows, 1.0f, delta,
              (int)out, p->value[l], (int)in, 0.0f, g, (int)in);
  memset(bias, 0, out * sizeof(float));
  for (size_t r = 0; r < rows; r++)
    for (size_t j = 0; j < out; j++)
      bias[j] += delta[r * out + j];
}

/* Derivative by the input of layer l > 0, which is the ReLU of the layer before. */
static void input_delta(const model *m, const float *params, const pass *p, size_t l, size_t rows,
                        const float *delta, float *before) {
  size_t in = m->sizes[l], out = m->sizes[l + 1];
  if (rows == 0)
    return;
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)in, (int)out, 1.0f, delta,
              (int)out, params + m->first[l], (int)in, 0.0f, before, (int)in);
  for (size_t i = 0; i < rows * in; i++)
    before[i] = p->value[l][i] > 0.0f ? before[i] : 0.0f;
}

bool model_backward(const model *m, const float *params, pass *p, size_t rows, float scale,
                    float *grads, model_listener listener, fail *why) {
  float *delta = p->delta[0], *before = p->delta[1];
  loss_delta(m, p, rows, scale, delta);
  for (size_t l = m->layers; l-- > 0;) {
    layer_gradients(m, p, l, rows, delta, grads);
    if (listener.layer_done && !listener.layer_done(listener.ctx, l, why))
      return false;
    if (l > 0)
      input_delta(m, params, p, l, rows, delta, before);
    float *swap = delta;
    delta = before;
    before = swap;
  }
  return true;
}
