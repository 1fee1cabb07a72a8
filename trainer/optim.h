/* optim.h: stochastic gradient descent with momentum and weight decay. */
#ifndef TRAINER_OPTIM_H
#define TRAINER_OPTIM_H

#include <stddef.h>

typedef struct sgd {
  float lr, momentum, weight_decay;
} sgd;

/*
 * For each of `count` parameters: v = momentum * v + (g + weight_decay * w); w = w - lr * v.
 * Each number depends on its own three alone, so a range may be updated as soon as it is reduced.
 */
void sgd_update(const sgd *rule, size_t count, float *params, float *velocity, const float *grads);

#endif
