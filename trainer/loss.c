/* loss.c: softmax cross entropy, the end of every model. */
#include "trainer/model.h"

#include <math.h>

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

double model_loss(const model *m, const pass *p, size_t rows, double *correct) {
  double loss = 0, right = 0;
  for (size_t r = 0; r < rows * m->positions; r++) {
    const float *x = p->value[m->layers] + r * m->classes;
    size_t best = largest(x, m->classes);
    right += best == p->labels[r];
    loss += log(sum_exp(x, m->classes, x[best])) + (double)(x[best] - x[p->labels[r]]);
  }
  *correct += right / (double)m->positions;
  return loss / (double)m->positions;
}

void model_loss_delta(const model *m, pass *p, size_t rows, float scale) {
  float each = scale / (float)m->positions;
  for (size_t r = 0; r < rows * m->positions; r++) {
    const float *x = p->value[m->layers] + r * m->classes;
    float *d = p->delta[0] + r * m->classes;
    float top = x[largest(x, m->classes)];
    float factor = each / (float)sum_exp(x, m->classes, top);
    for (size_t j = 0; j < m->classes; j++)
      d[j] = expf(x[j] - top) * factor;
    d[p->labels[r]] -= each;
  }
}
