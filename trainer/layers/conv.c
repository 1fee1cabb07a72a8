/*
 * conv.c: layers for images: convolution and pooling.
 *
 * conv: the convolution of an image with square kernels, as one matrix product: the patch under
 * each position of the kernel becomes a row (im2col), to which a linear layer is applied.
 * Images are stored pixel by pixel, all channels of a pixel together. Source: Chellapilla,
 * Puri, Simard: High Performance Convolutional Neural Networks for Document Processing, 2006.
 * dim: side (of the input, square), channels, kernel, padding, outputs (channels), side of the
 * output.
 *
 * pool: 2 x 2 max pooling, channel by channel. dim: side of the input (even), channels.
 */
#include "trainer/layers/layer.h"

#include <string.h>

enum { SIDE, CHANNELS, KERNEL, PADDING, OUTPUTS, OUT_SIDE };

/* Floats of one patch. */
static size_t patch(const layer *l) {
  return l->dim[KERNEL] * l->dim[KERNEL] * l->dim[CHANNELS];
}

static void conv_seed(const layer *l, rng *g, float *params) {
  layer_seed_linear(patch(l), l->dim[OUTPUTS], 2.0, g, params);
}

/* Row `k` of the kernel for output (y, x): its first pixel inside the image, how many pixels are
 * inside, and how many before them are padding. */
typedef struct strip {
  size_t first, inside, before;
} strip;

static strip strip_at(const layer *l, size_t y, size_t x, size_t k) {
  size_t side = l->dim[SIDE], kernel = l->dim[KERNEL], pad = l->dim[PADDING];
  size_t row = y + k; /* counted from the edge of the padding, like x */
  if (row < pad || row >= side + pad)
    return (strip){0, 0, 0};
  size_t begin = x > pad ? x : pad, end = x + kernel < side + pad ? x + kernel : side + pad;
  if (begin >= end)
    return (strip){0, 0, 0};
  return (strip){(row - pad) * side + begin - pad, end - begin, begin - x};
}

/* Writes the patches of one image. */
static void unfold(const layer *l, const float *image, float *patches) {
  size_t channels = l->dim[CHANNELS], kernel = l->dim[KERNEL], out = l->dim[OUT_SIDE];
  memset(patches, 0, out * out * patch(l) * sizeof(float));
  for (size_t y = 0; y < out; y++)
    for (size_t x = 0; x < out; x++, patches += patch(l))
      for (size_t k = 0; k < kernel; k++) {
        strip s = strip_at(l, y, x, k);
        if (s.inside)
          memcpy(patches + (k * kernel + s.before) * channels, image + s.first * channels,
                 s.inside * channels * sizeof(float));
      }
}

/* The transpose of unfold(): adds patches to the pixels that they came from. */
static void fold(const layer *l, const float *patches, float *image) {
  size_t channels = l->dim[CHANNELS], kernel = l->dim[KERNEL], out = l->dim[OUT_SIDE];
  memset(image, 0, l->in * sizeof(float));
  for (size_t y = 0; y < out; y++)
    for (size_t x = 0; x < out; x++, patches += patch(l))
      for (size_t k = 0; k < kernel; k++) {
        strip s = strip_at(l, y, x, k);
        if (s.inside)
          rows_add(s.inside * channels, image + s.first * channels,
                   patches + (k * kernel + s.before) * channels);
      }
}

static void conv_forward(const layer *l, layer_run *run) {
  size_t places = l->dim[OUT_SIDE] * l->dim[OUT_SIDE];
  for (size_t r = 0; r < run->rows; r++)
    unfold(l, run->in + r * l->in, run->memo + r * l->memo);
  rows_linear(run->rows * places, patch(l), l->dim[OUTPUTS], run->params, run->memo, run->out,
              l->relu);
}

static void conv_backward(const layer *l, layer_run *run) {
  size_t places = l->dim[OUT_SIDE] * l->dim[OUT_SIDE];
  layer_relu_delta(l, run);
  /* The patches are read for the gradients first, then overwritten by the derivatives by them. */
  rows_linear_back(run->rows * places, patch(l), l->dim[OUTPUTS], run->params, run->memo,
                   run->out_delta, run->in_delta ? run->memo : NULL, run->grads);
  if (run->in_delta)
    for (size_t r = 0; r < run->rows; r++)
      fold(l, run->memo + r * l->memo, run->in_delta + r * l->in);
}

static const layer_kind conv = {"conv", conv_seed, conv_forward, conv_backward};

layer layer_conv(size_t side, size_t channels, size_t kernel, size_t padding, size_t outputs) {
  size_t out = side + 2 * padding - kernel + 1;
  layer l = {.kind = &conv,
             .in = side * side * channels,
             .out = out * out * outputs,
             .dim = {side, channels, kernel, padding, outputs, out},
             .relu = true};
  l.memo = out * out * patch(&l);
  l.count = rows_linear_params(patch(&l), outputs);
  return l;
}

/* ---- pool ---------------------------------------------------------------------------------- */

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

static void pool_forward(const layer *l, layer_run *run) {
  size_t half = l->dim[0] / 2, channels = l->dim[1];
  float *out = run->out;
  for (size_t r = 0; r < run->rows; r++) {
    const float *image = run->in + r * l->in;
    for (size_t i = 0; i < half * half; i++)
      for (size_t c = 0; c < channels; c++)
        *out++ = image[winner(l, image, i / half, i % half, c)];
  }
}

static void pool_backward(const layer *l, layer_run *run) {
  size_t half = l->dim[0] / 2, channels = l->dim[1];
  const float *delta = run->out_delta;
  if (!run->in_delta)
    return;
  memset(run->in_delta, 0, run->rows * l->in * sizeof(float));
  for (size_t r = 0; r < run->rows; r++) {
    const float *image = run->in + r * l->in;
    for (size_t i = 0; i < half * half; i++)
      for (size_t c = 0; c < channels; c++)
        run->in_delta[r * l->in + winner(l, image, i / half, i % half, c)] = *delta++;
  }
}

static const layer_kind pool = {"pool", NULL, pool_forward, pool_backward};

layer layer_pool(size_t side, size_t channels) {
  return (layer){.kind = &pool,
                 .in = side * side * channels,
                 .out = side / 2 * (side / 2) * channels,
                 .dim = {side, channels}};
}
