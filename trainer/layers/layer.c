/* layer.c: helpers of several kinds of layers. */
#include "trainer/layers/layer.h"

#include <math.h>

double layer_normal(rng *g) {
  double radius = sqrt(-2.0 * log(rng_unit(g)));
  return radius * cos(2.0 * M_PI * rng_unit(g));
}

void layer_relu_delta(const layer *l, const layer_run *run) {
  if (!l->relu)
    return;
  size_t count = run->rows * l->out;
  for (size_t i = 0; i < count; i++)
    run->out_delta[i] = run->out[i] > 0.0f ? run->out_delta[i] : 0.0f;
}
