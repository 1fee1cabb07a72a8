/* pool.c: 2 x 2 max pooling of an image, channel by channel. dim: side of the input
 * (even), channels. */
#include "trainer/layers/layer.h"

#include <string.h>

/* Index of the largest of the four inputs of output (y, x, c) of an image. */
static size_t winner(const layer *l, const float *image, size_t y, size_t x, size_t c) {
  size_t side = l->dim[0], channels = l->dim[1], best = 0;
  for (size_t i = 0; i < 4; i++) {
    size_t at = ((2 * y + i / 2) * side + 2 * x + i % 2) * channels + c;
    if (i == 0 || image[at] > image[best])
      best = at;
  }
  return best;
}

static bool forward(const layer *l, const layer_run *run, fail *why) {
  size_t half = l->dim[0] / 2, channels = l->dim[1];
  float *out = run->out;
  (void)why;
  for (size_t r = 0; r < run->rows; r++) {
    const float *image = run->in + r * l->in;
    for (size_t i = 0; i < half * half; i++)
      for (size_t c = 0; c < channels; c++)
        *out++ = image[winner(l, image, i / half, i % half, c)];
  }
  return true;
}

static bool backward(const layer *l, const layer_run *run, fail *why) {
  size_t half = l->dim[0] / 2, channels = l->dim[1];
  const float *delta = run->out_delta;
  (void)why;
  if (!run->in_delta)
    return true;
  memset(run->in_delta, 0, run->rows * l->in * sizeof(float));
  for (size_t r = 0; r < run->rows; r++) {
    const float *image = run->in + r * l->in;
    for (size_t i = 0; i < half * half; i++)
      for (size_t c = 0; c < channels; c++)
        run->in_delta[r * l->in + winner(l, image, i / half, i % half, c)] = *delta++;
  }
  return true;
}

static const layer_kind pool = {"pool", NULL, forward, backward};

layer layer_pool(size_t side, size_t channels) {
  return (layer){.kind = &pool,
                 .in = side * side * channels,
                 .out = side / 2 * (side / 2) * channels,
                 .dim = {side, channels}};
}
