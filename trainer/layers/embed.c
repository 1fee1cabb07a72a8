/*
 * embed.c: the first layer of a language model: token and position embeddings, which are added.
 * Inputs are the symbols' numbers. dim: symbols, positions, width.
 */
#include "trainer/layers/layer.h"
#include "trainer/layers/rows.h"

#include <string.h>

static void seed(const layer *l, rng *g, float *params) {
  for (size_t i = 0; i < l->count; i++)
    params[i] = (float)(0.1 * layer_normal(g));
}

static bool forward(const layer *l, const layer_run *run, fail *why) {
  size_t symbols = l->dim[0], positions = l->dim[1], width = l->dim[2];
  const float *of_position = run->params + symbols * width;
  (void)why;
  for (size_t i = 0; i < run->rows * positions; i++) {
    size_t symbol = (size_t)run->in[i];
    memcpy(run->out + i * width, run->params + symbol * width, width * sizeof(float));
    rows_add(width, run->out + i * width, of_position + i % positions * width);
  }
  return true;
}

/* There is no derivative by a symbol: in_delta is 0. */
static bool backward(const layer *l, const layer_run *run, fail *why) {
  size_t symbols = l->dim[0], positions = l->dim[1], width = l->dim[2];
  float *of_position = run->grads + symbols * width;
  (void)why;
  memset(run->grads, 0, l->count * sizeof(float));
  for (size_t i = 0; i < run->rows * positions; i++) {
    size_t symbol = (size_t)run->in[i];
    rows_add(width, run->grads + symbol * width, run->out_delta + i * width);
    rows_add(width, of_position + i % positions * width, run->out_delta + i * width);
  }
  if (run->in_delta)
    memset(run->in_delta, 0, run->rows * l->in * sizeof(float));
  return true;
}

static const layer_kind embed = {"embed", seed, forward, backward};

layer layer_embed(size_t symbols, size_t positions, size_t width) {
  return (layer){.kind = &embed,
                 .in = positions,
                 .out = positions * width,
                 .count = (symbols + positions) * width,
                 .dim = {symbols, positions, width}};
}
