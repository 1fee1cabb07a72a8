/* optim.c: the optimizers, and the schedules of their learning rate. */
#include "trainer/optim.h"

#include <math.h>

#define ADAM_LEAST 1e-8f /* added to the root, which is 0 for a parameter without gradients */

/* The learning rate after `epochs` epochs. Where it changes only between epochs it is computed by
 * multiplication, which rounds the same on every machine. */
static float rate(const options *o, double epochs) {
  float lr = o->lr;
  if (o->schedule == SCHEDULE_COSINE)
    lr *= (float)(0.5 * (1.0 + cos(M_PI * epochs / (double)o->epochs)));
  else
    for (uint64_t i = 1; i <= (uint64_t)epochs; i++)
      lr *= o->lr_decay;
  return epochs < (double)o->warmup ? lr * (float)(epochs / (double)o->warmup) : lr;
}

optim optim_rule(const options *o, double epochs, uint64_t updates) {
  return (optim){.kind = o->optimizer,
                 .lr = rate(o, epochs),
                 .momentum = o->momentum,
                 .weight_decay = o->weight_decay,
                 .square_decay = o->square_decay,
                 .updates = updates};
}

bool optim_has_squares(const options *o) {
  return o->optimizer == OPTIM_ADAM;
}

/* Stochastic gradient descent with momentum. */
static void sgd(const optim *rule, size_t count, float *params, float *velocity,
                const float *grads) {
  const float lr = rule->lr, momentum = rule->momentum, decay = rule->weight_decay;
  for (size_t i = 0; i < count; i++) {
    float v = momentum * velocity[i] + (grads[i] + decay * params[i]);
    velocity[i] = v;
    params[i] -= lr * v;
  }
}

static void adam(const optim *rule, size_t count, float *params, float *velocity, float *squares,
                 const float *grads) {
  const float first = rule->momentum, second = rule->square_decay;
  const double updates = (double)rule->updates + 1;
  const float fair = (float)(1.0 / (1.0 - pow((double)first, updates)));
  const float fair_square = (float)(1.0 / (1.0 - pow((double)second, updates)));
  const float lr = rule->lr, decay = rule->lr * rule->weight_decay;
  for (size_t i = 0; i < count; i++) {
    float g = grads[i];
    velocity[i] = first * velocity[i] + (1.0f - first) * g;
    squares[i] = second * squares[i] + (1.0f - second) * g * g;
    float root = sqrtf(squares[i] * fair_square) + ADAM_LEAST;
    params[i] -= decay * params[i] + lr * (velocity[i] * fair) / root;
  }
}

void optim_update(const optim *rule, size_t count, float *params, float *velocity, float *squares,
                  const float *grads) {
  if (rule->kind == OPTIM_ADAM)
    adam(rule, count, params, velocity, squares, grads);
  else
    sgd(rule, count, params, velocity, grads);
}

double optim_norm(size_t count, const float *grads) {
  double sum = 0;
  for (size_t i = 0; i < count; i++)
    sum += (double)grads[i] * (double)grads[i];
  return sqrt(sum);
}

void optim_scale(size_t count, float *grads, float factor) {
  for (size_t i = 0; i < count; i++)
    grads[i] *= factor;
}
