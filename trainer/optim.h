/* optim.h: the optimizers, and the schedules of their learning rate. */
#ifndef TRAINER_OPTIM_H
#define TRAINER_OPTIM_H

#include "trainer/options.h"

#include <stddef.h>
#include <stdint.h>

/* In the order of --optimizer. */
enum { OPTIM_SGD, OPTIM_ADAM };

/* In the order of --schedule. */
enum { SCHEDULE_DECAY, SCHEDULE_COSINE };

/* The rule of one update. */
typedef struct optim {
  int kind;
  float lr, momentum, weight_decay;
  float square_decay; /* of Adam */
  uint64_t updates;   /* of Adam: how many there were before this one */
} optim;

/* The rule after `epochs` epochs (and fractions of one) and `updates` updates. */
optim optim_rule(const options *o, double epochs, uint64_t updates);

/* Whether the optimizer keeps squares in addition to the velocity. */
bool optim_has_squares(const options *o);

/*
 * Updates `count` parameters w by their gradients g. Each parameter depends only on its own
 * gradient, so a range can be updated as soon as it is reduced.
 * SGD: v = momentum * v + (g + weight_decay * w); w = w - lr * v. squares is not used.
 * Adam (Kingma, Ba, 2015) with decoupled weight decay (Loshchilov, Hutter, 2019).
 */
void optim_update(const optim *rule, size_t count, float *params, float *velocity, float *squares,
                  const float *grads);

/* The square root of the sum of all squares, added in double and in order. */
double optim_norm(size_t count, const float *grads);

/* grads *= factor. */
void optim_scale(size_t count, float *grads, float factor);

#endif
