/*
 * transformer.c: the layers of a language model. Inputs are the symbols' numbers.
 *
 *     embed       token and position embeddings, which are added; dim: symbols, positions, width
 *     attention   x + W2 attend(W1 norm(x)): the first half of a block. W1 gives queries, keys and
 *                 values; each position attends to itself and to those before it, with several
 *                 heads; dim: positions, width, heads
 *     mlp         x + W2 gelu(W1 norm(x)): the second half, for each position on its own; dim:
 *                 positions, width, hidden
 *     norm        normalises each position; dim: positions, width
 *
 * Vaswani et al.: Attention Is All You Need, 2017; Radford et al.: Language Models are Unsupervised
 * Multitask Learners, 2019 (norm first); Hendrycks, Gimpel: Gaussian Error Linear Units, 2016.
 */
#include "trainer/layers/layer.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

/* ---- embed --------------------------------------------------------------------------------- */

static void embed_seed(const layer *l, rng *g, float *params) {
  for (size_t i = 0; i < l->count; i++)
    params[i] = (float)(0.1 * layer_normal(g));
}

static void embed_forward(const layer *l, layer_run *run) {
  size_t symbols = l->dim[0], positions = l->dim[1], width = l->dim[2];
  const float *of_position = run->params + symbols * width;
  for (size_t i = 0; i < run->rows * positions; i++) {
    size_t symbol = (size_t)run->in[i];
    memcpy(run->out + i * width, run->params + symbol * width, width * sizeof(float));
    rows_add(width, run->out + i * width, of_position + i % positions * width);
  }
}

/* There is no derivative by a symbol: in_delta is 0. */
static void embed_backward(const layer *l, layer_run *run) {
  size_t symbols = l->dim[0], positions = l->dim[1], width = l->dim[2];
  float *of_position = run->grads + symbols * width;
  memset(run->grads, 0, l->count * sizeof(float));
  for (size_t i = 0; i < run->rows * positions; i++) {
    size_t symbol = (size_t)run->in[i];
    rows_add(width, run->grads + symbol * width, run->out_delta + i * width);
    rows_add(width, of_position + i % positions * width, run->out_delta + i * width);
  }
  if (run->in_delta)
    memset(run->in_delta, 0, run->rows * l->in * sizeof(float));
}

static const layer_kind embed = {"embed", embed_seed, embed_forward, embed_backward};

layer layer_embed(size_t symbols, size_t positions, size_t width) {
  return (layer){.kind = &embed,
                 .in = positions,
                 .out = positions * width,
                 .count = (symbols + positions) * width,
                 .dim = {symbols, positions, width}};
}

/* ---- norm ---------------------------------------------------------------------------------- */

/* Factors 1, offsets 0. */
static void seed_norm(size_t width, float *params) {
  for (size_t j = 0; j < width; j++) {
    params[j] = 1;
    params[width + j] = 0;
  }
}

static void norm_seed(const layer *l, rng *g, float *params) {
  (void)g;
  seed_norm(l->dim[1], params);
}

static void norm_forward(const layer *l, layer_run *run) {
  rows_norm(run->rows * l->dim[0], l->dim[1], run->params, run->in, run->out, run->memo);
}

static void norm_backward(const layer *l, layer_run *run) {
  float *in_delta = run->in_delta ? run->in_delta : run->out; /* `out` is no longer needed */
  memset(in_delta, 0, run->rows * l->in * sizeof(float));
  rows_norm_back(run->rows * l->dim[0], l->dim[1], run->params, run->in, run->memo, run->out_delta,
                 in_delta, run->grads);
}

static const layer_kind norm = {"norm", norm_seed, norm_forward, norm_backward};

layer layer_norm(size_t positions, size_t width) {
  return (layer){.kind = &norm,
                 .in = positions * width,
                 .out = positions * width,
                 .memo = positions * 2,
                 .count = rows_norm_params(width),
                 .dim = {positions, width}};
}

/* ---- attention and mlp --------------------------------------------------------------------- */

static const layer_kind attention, mlp;

/* Floats of a position that W1 gives, and that W2 takes. */
static size_t inner(const layer *l) {
  return l->kind == &attention ? 3 * l->dim[1] : l->dim[2];
}

static size_t outer(const layer *l) {
  return l->kind == &attention ? l->dim[1] : l->dim[2];
}

/* Offsets of the parameters, and of what a pass over `rows` samples keeps in memo. */
typedef struct parts {
  size_t norm, first, second, params;                                     /* parameters */
  size_t normal, stat, inner, weights, outer, inner_delta, delta, memory; /* memory */
} parts;

static parts parts_of(const layer *l, size_t rows) {
  size_t positions = rows * l->dim[0], width = l->dim[1], heads = l->dim[2];
  bool attends = l->kind == &attention;
  parts p = {.norm = 0};
  p.first = p.norm + rows_norm_params(width);
  p.second = p.first + rows_linear_params(width, inner(l));
  p.params = p.second + rows_linear_params(outer(l), width);
  p.stat = p.normal + positions * width;
  p.inner = p.stat + positions * 2;
  p.weights = p.inner + positions * inner(l);
  p.outer = p.weights + (attends ? positions * l->dim[0] * heads : 0);
  p.inner_delta =
      attends ? p.outer + positions * outer(l) : p.inner; /* gelu needs no other place */
  p.delta = p.outer + positions * (attends ? outer(l) + inner(l) : outer(l));
  p.memory = p.delta + positions * (attends && l->dim[0] > width ? l->dim[0] : width);
  return p;
}

static void block_seed(const layer *l, rng *g, float *params) {
  parts p = parts_of(l, 1);
  seed_norm(l->dim[1], params + p.norm);
  layer_seed_linear(l->dim[1], inner(l), 1.0, g, params + p.first);
  layer_seed_linear(outer(l), l->dim[1], 0.1, g, params + p.second);
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

/* One head of one sample: matrices with one row per position. Rows of queries, keys and values are
 * 3 * width floats apart, rows of the output width floats. */
typedef struct head {
  int positions, size, width;
  float scale;
  const float *query, *key, *value;
  float *weight; /* positions * positions: attention weights */
} head;

/* Head i % heads of sample i / heads. */
static head head_at(const layer *l, const layer_run *run, size_t i) {
  size_t positions = l->dim[0], width = l->dim[1], heads = l->dim[2], size = width / heads;
  parts p = parts_of(l, run->rows);
  const float *qkv = run->memo + p.inner + i / heads * positions * 3 * width + i % heads * size;
  return (head){.positions = (int)positions,
                .size = (int)size,
                .width = (int)width,
                .scale = 1.0f / sqrtf((float)size),
                .query = qkv,
                .key = qkv + width,
                .value = qkv + 2 * width,
                .weight = run->memo + p.weights + i * positions * positions};
}

/* Causal softmax: each position attends to itself and earlier ones; later ones get weight 0. */
static void softmax(head *a) {
  for (int i = 0; i < a->positions; i++) {
    float *row = a->weight + i * a->positions, top = row[0], sum = 0;
    for (int j = 1; j <= i; j++)
      top = row[j] > top ? row[j] : top;
    for (int j = 0; j <= i; j++) {
      row[j] = expf(row[j] - top);
      sum += row[j];
    }
    for (int j = 0; j < a->positions; j++)
      row[j] = j <= i ? row[j] / sum : 0.0f;
  }
}

/* The output of one head: the weighted sum of the values. */
static void attend(head a, float *mixed) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, a.positions, a.positions, a.size, a.scale,
              a.query, 3 * a.width, a.key, 3 * a.width, 0.0f, a.weight, a.positions);
  softmax(&a);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, a.positions, a.size, a.positions, 1.0f,
              a.weight, a.positions, a.value, 3 * a.width, 0.0f, mixed, a.width);
}

/* From the derivatives by a head's output: those by its queries, keys and values. score: scratch
 * memory of positions * positions floats. */
static void attend_back(head a, const float *mixed_delta, float *qkv_delta, float *score) {
  int n = a.positions, wide = 3 * a.width;
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, a.size, n, 1.0f, a.weight, n, mixed_delta,
              a.width, 0.0f, qkv_delta + 2 * a.width, wide);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, a.size, 1.0f, mixed_delta, a.width,
              a.value, wide, 0.0f, score, n);
  for (int i = 0; i < n; i++) {
    const float *weight = a.weight + i * n;
    float *row = score + i * n, sum = 0;
    for (int j = 0; j <= i; j++)
      sum += row[j] * weight[j];
    for (int j = 0; j < n; j++)
      row[j] = weight[j] * (row[j] - sum);
  }
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, a.size, n, a.scale, score, n, a.key,
              wide, 0.0f, qkv_delta, wide);
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, a.size, n, a.scale, score, n, a.query,
              wide, 0.0f, qkv_delta + a.width, wide);
}

/* What is between W1 and W2. */
static void between(const layer *l, const layer_run *run, const parts *p) {
  size_t size = l->dim[1] / l->dim[2];
  float *in = run->memo + p->inner, *out = run->memo + p->outer;
  if (l->kind == &mlp)
    for (size_t i = 0; i < run->rows * l->dim[0] * l->dim[2]; i++)
      out[i] = gelu(in[i]);
  else
    for (size_t i = 0; i < run->rows * l->dim[2]; i++)
      attend(head_at(l, run, i), out + i / l->dim[2] * l->in + i % l->dim[2] * size);
}

/* From the derivatives by its outputs, which are where these were, those by its inputs. */
static void between_back(const layer *l, const layer_run *run, const parts *p) {
  size_t size = l->dim[1] / l->dim[2];
  float *in = run->memo + p->inner, *out = run->memo + p->outer;
  float *in_delta = run->memo + p->inner_delta, *scratch = run->memo + p->delta;
  if (l->kind == &mlp)
    for (size_t i = 0; i < run->rows * l->dim[0] * l->dim[2]; i++)
      in_delta[i] = out[i] * gelu_slope(in[i]);
  else
    for (size_t i = 0; i < run->rows * l->dim[2]; i++) {
      size_t first = i / l->dim[2] * l->in, column = i % l->dim[2] * size;
      attend_back(head_at(l, run, i), out + first + column, in_delta + 3 * first + column, scratch);
    }
}

static void block_forward(const layer *l, layer_run *run) {
  size_t positions = run->rows * l->dim[0], width = l->dim[1];
  parts p = parts_of(l, run->rows);
  float *memo = run->memo;
  rows_norm(positions, width, run->params + p.norm, run->in, memo + p.normal, memo + p.stat);
  rows_linear(positions, width, inner(l), run->params + p.first, memo + p.normal, memo + p.inner,
              false);
  between(l, run, &p);
  rows_linear(positions, outer(l), width, run->params + p.second, memo + p.outer, run->out, false);
  rows_add(positions * width, run->out, run->in);
}

static void block_backward(const layer *l, layer_run *run) {
  size_t positions = run->rows * l->dim[0], width = l->dim[1];
  parts p = parts_of(l, run->rows);
  float *memo = run->memo;
  /* `outer` is read for the gradients first, then overwritten by the derivatives by it. */
  rows_linear_back(positions, outer(l), width, run->params + p.second, memo + p.outer,
                   run->out_delta, memo + p.outer, run->grads + p.second);
  between_back(l, run, &p);
  rows_linear_back(positions, width, inner(l), run->params + p.first, memo + p.normal,
                   memo + p.inner_delta, memo + p.delta, run->grads + p.first);
  float *in_delta = run->in_delta ? run->in_delta : run->out; /* `out` is no longer needed */
  memcpy(in_delta, run->out_delta, positions * width * sizeof(float));
  rows_norm_back(positions, width, run->params + p.norm, run->in, memo + p.stat, memo + p.delta,
                 in_delta, run->grads + p.norm);
}

static const layer_kind attention = {"attention", block_seed, block_forward, block_backward};
static const layer_kind mlp = {"mlp", block_seed, block_forward, block_backward};

/* Half a block. */
static layer make_block(const layer_kind *kind, size_t positions, size_t width, size_t third) {
  layer l = {.kind = kind,
             .in = positions * width,
             .out = positions * width,
             .dim = {positions, width, third}};
  l.count = parts_of(&l, 1).params;
  l.memo = parts_of(&l, 1).memory;
  return l;
}

layer layer_attention(size_t positions, size_t width, size_t heads) {
  return make_block(&attention, positions, width, heads);
}

layer layer_mlp(size_t positions, size_t width, size_t hidden) {
  return make_block(&mlp, positions, width, hidden);
}
