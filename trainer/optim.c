/* optim.c: stochastic gradient descent with momentum and weight decay. */
#include "trainer/optim.h"

void sgd_update(const sgd *rule, size_t count, float *params, float *velocity, const float *grads) {
  const float lr = rule->lr, momentum = rule->momentum, decay = rule->weight_decay;
  for (size_t i = 0; i < count; i++) {
    float v = momentum * velocity[i] + (grads[i] + decay * params[i]);
    velocity[i] = v;
    params[i] -= lr * v;
  }
}
