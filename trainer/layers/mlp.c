/*
 * mlp.c: the second half of a transformer block: x + W2 gelu(W1 norm(x)), for each position on
 * its own. dim: positions, width, hidden. Source: Radford et al.: Language Models are Unsupervised
 * Multitask Learners, 2019 (norm first); Hendrycks, Gimpel: Gaussian Error Linear Units, 2016.
 */
#include "trainer/layers/layer.h"
#include "trainer/layers/rows.h"

#include <math.h>
#include <string.h>

/* Offsets of the parameters, and of what a pass over `rows` samples keeps in memo. */
typedef struct parts {
  size_t norm, first, second;                     /* parameters */
  size_t normal, stat, before, after, delta, end; /* memory */
} parts;

static parts parts_of(const layer *l, size_t rows) {
  size_t positions = rows * l->dim[0], width = l->dim[1], hidden = l->dim[2];
  parts p = {.norm = 0};
  p.first = p.norm + rows_norm_params(width);
  p.second = p.first + rows_linear_params(width, hidden);
  p.stat = p.normal + positions * width;
  p.before = p.stat + positions * 2;
  p.after = p.before + positions * hidden;
  p.delta = p.after + positions * hidden;
  p.end = p.delta + positions * width;
  return p;
}

static void seed(const layer *l, rng *g, float *params) {
  size_t width = l->dim[1], hidden = l->dim[2];
  parts p = parts_of(l, 1);
  layer_seed_norm(width, params + p.norm);
  layer_seed_linear(width, hidden, 1.0, g, params + p.first);
  layer_seed_linear(hidden, width, 0.1, g, params + p.second);
}

/* gelu(x) = x / 2 * (1 + tanh(u)), u = c (x + 0.044715 x^3). */
static float gelu(float x) {
  return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

/* Its derivative. */
static float gelu_slope(float x) {
  float t = tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
  return 0.5f * (1.0f + t) +
         0.5f * x * (1.0f - t * t) * 0.7978845608f * (1.0f + 3.0f * 0.044715f * x * x);
}

static bool forward(const layer *l, const layer_run *run, fail *why) {
  size_t positions = run->rows * l->dim[0], width = l->dim[1], hidden = l->dim[2];
  parts p = parts_of(l, run->rows);
  float *before = run->memo + p.before, *after = run->memo + p.after;
  (void)why;
  rows_norm(positions, width, run->params + p.norm, run->in, run->memo + p.normal,
            run->memo + p.stat);
  rows_linear(positions, width, hidden, run->params + p.first, run->memo + p.normal, before, false);
  for (size_t i = 0; i < positions * hidden; i++)
    after[i] = gelu(before[i]);
  rows_linear(positions, hidden, width, run->params + p.second, after, run->out, false);
  rows_add(positions * width, run->out, run->in);
  return true;
}

static bool backward(const layer *l, const layer_run *run, fail *why) {
  size_t positions = run->rows * l->dim[0], width = l->dim[1], hidden = l->dim[2];
  parts p = parts_of(l, run->rows);
  float *before = run->memo + p.before, *after = run->memo + p.after, *delta = run->memo + p.delta;
  (void)why;
  /* `after` is read for the gradients first, then overwritten by the derivatives by it. */
  rows_linear_back(positions, hidden, width, run->params + p.second, after, run->out_delta, after,
                   run->grads + p.second);
  for (size_t i = 0; i < positions * hidden; i++)
    after[i] *= gelu_slope(before[i]);
  rows_linear_back(positions, width, hidden, run->params + p.first, run->memo + p.normal, after,
                   delta, run->grads + p.first);
  float *in_delta = run->in_delta ? run->in_delta : run->out; /* `out` is no longer needed */
  memcpy(in_delta, run->out_delta, positions * width * sizeof(float));
  rows_norm_back(positions, width, run->params + p.norm, run->in, run->memo + p.stat, delta,
                 in_delta, run->grads + p.norm);
  return true;
}

static const layer_kind mlp = {"mlp", seed, forward, backward};

layer layer_mlp(size_t positions, size_t width, size_t hidden) {
  layer l = {.kind = &mlp,
             .in = positions * width,
             .out = positions * width,
             .dim = {positions, width, hidden}};
  l.count = parts_of(&l, 1).second + rows_linear_params(hidden, width);
  l.memo = parts_of(&l, 1).end;
  return l;
}
