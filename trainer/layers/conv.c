/*
 * conv.c: the convolution of an image with square kernels, as one matrix product: the patch at
 * each position of the kernel becomes a row (im2col), to which a linear layer is applied.
 * Images are stored pixel by pixel, all channels of a pixel together. Source: Chellapilla,
 * Puri, Simard: High Performance Convolutional Neural Networks for Document Processing, 2006.
 * dim: side (of the input, square), channels, kernel, padding, outputs (channels), side of the
 * output.
 */
#include "trainer/layers/layer.h"
#include "trainer/layers/rows.h"

#include <string.h>

enum { SIDE, CHANNELS, KERNEL, PADDING, OUTPUTS, OUT_SIDE };

/* Floats of one patch. */
static size_t patch(const layer *l) {
  return l->dim[KERNEL] * l->dim[KERNEL] * l->dim[CHANNELS];
}

static void seed(const layer *l, rng *g, float *params) {
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

static bool forward(const layer *l, const layer_run *run, fail *why) {
  size_t places = l->dim[OUT_SIDE] * l->dim[OUT_SIDE];
  (void)why;
  for (size_t r = 0; r < run->rows; r++)
    unfold(l, run->in + r * l->in, run->memo + r * l->memo);
  rows_linear(run->rows * places, patch(l), l->dim[OUTPUTS], run->params, run->memo, run->out,
              l->relu);
  return true;
}

static bool backward(const layer *l, const layer_run *run, fail *why) {
  size_t places = l->dim[OUT_SIDE] * l->dim[OUT_SIDE];
  (void)why;
  layer_relu_delta(l, run);
  /* The patches are read for the gradients first, then overwritten by the derivatives by them. */
  rows_linear_back(run->rows * places, patch(l), l->dim[OUTPUTS], run->params, run->memo,
                   run->out_delta, run->in_delta ? run->memo : NULL, run->grads);
  for (size_t r = 0; run->in_delta && r < run->rows; r++)
    fold(l, run->memo + r * l->memo, run->in_delta + r * l->in);
  return true;
}

static const layer_kind conv = {"conv", seed, forward, backward};

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
