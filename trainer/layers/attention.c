/*
 * attention.c: the first half of a transformer block: x + W0 attend(norm(x)), where each position
 * attends to itself and to those before it, with several heads. dim: positions, width, heads.
 * Source: Vaswani et al.: Attention Is All You Need, 2017; norm first as in Radford et al., 2019.
 */
#include "trainer/layers/layer.h"
#include "trainer/layers/rows.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

/* Offsets of the parameters, and of what a pass over `rows` samples keeps in memo. */
typedef struct parts {
  size_t norm, in_proj, out_proj;                                  /* parameters */
  size_t normal, stat, qkv, weights, mixed, qkv_delta, delta, end; /* memory */
} parts;

static parts parts_of(const layer *l, size_t rows) {
  size_t positions = rows * l->dim[0], width = l->dim[1];
  parts p = {.norm = 0};
  p.in_proj = p.norm + rows_norm_params(width);
  p.out_proj = p.in_proj + rows_linear_params(width, 3 * width);
  p.stat = p.normal + positions * width;
  p.qkv = p.stat + positions * 2;
  p.weights = p.qkv + positions * 3 * width;
  p.mixed = p.weights + positions * l->dim[0] * l->dim[2];
  p.qkv_delta = p.mixed + positions * width;
  p.delta = p.qkv_delta + positions * 3 * width;
  p.end = p.delta + positions * (width > l->dim[0] ? width : l->dim[0]);
  return p;
}

static void seed(const layer *l, rng *g, float *params) {
  size_t width = l->dim[1];
  parts p = parts_of(l, 1);
  layer_seed_norm(width, params + p.norm);
  layer_seed_linear(width, 3 * width, 1.0, g, params + p.in_proj);
  layer_seed_linear(width, width, 0.1, g, params + p.out_proj);
}

/* One head of one sample: matrices with one row per position. Rows of queries, keys and values are
 * 3 * width floats apart, rows of the output width floats. */
typedef struct head {
  int positions, size, width;
  float scale;
  const float *query, *key, *value;
  float *weight; /* positions * positions: attention weights */
} head;

/* Head h of sample r. */
static head head_at(const layer *l, const layer_run *run, size_t r, size_t h) {
  size_t positions = l->dim[0], width = l->dim[1], heads = l->dim[2], size = width / heads;
  parts p = parts_of(l, run->rows);
  const float *qkv = run->memo + p.qkv + r * positions * 3 * width + h * size;
  return (head){.positions = (int)positions,
                .size = (int)size,
                .width = (int)width,
                .scale = 1.0f / sqrtf((float)size),
                .query = qkv,
                .key = qkv + width,
                .value = qkv + 2 * width,
                .weight = run->memo + p.weights + (r * heads + h) * positions * positions};
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

static bool forward(const layer *l, const layer_run *run, fail *why) {
  size_t positions = run->rows * l->dim[0], width = l->dim[1], heads = l->dim[2];
  parts p = parts_of(l, run->rows);
  float *memo = run->memo;
  (void)why;
  rows_norm(positions, width, run->params + p.norm, run->in, memo + p.normal, memo + p.stat);
  rows_linear(positions, width, 3 * width, run->params + p.in_proj, memo + p.normal, memo + p.qkv,
              false);
  for (size_t r = 0; r < run->rows; r++)
    for (size_t h = 0; h < heads; h++)
      attend(head_at(l, run, r, h), memo + p.mixed + r * l->in + h * (width / heads));
  rows_linear(positions, width, width, run->params + p.out_proj, memo + p.mixed, run->out, false);
  rows_add(positions * width, run->out, run->in);
  return true;
}

static bool backward(const layer *l, const layer_run *run, fail *why) {
  size_t positions = run->rows * l->dim[0], width = l->dim[1], heads = l->dim[2];
  size_t size = width / heads;
  parts p = parts_of(l, run->rows);
  float *memo = run->memo;
  (void)why;
  /* `mixed` is read for the gradients first, then overwritten by the derivatives by it. */
  rows_linear_back(positions, width, width, run->params + p.out_proj, memo + p.mixed,
                   run->out_delta, memo + p.mixed, run->grads + p.out_proj);
  for (size_t r = 0; r < run->rows; r++)
    for (size_t h = 0; h < heads; h++)
      attend_back(head_at(l, run, r, h), memo + p.mixed + r * l->in + h * size,
                  memo + p.qkv_delta + r * 3 * l->in + h * size, memo + p.delta);
  rows_linear_back(positions, width, 3 * width, run->params + p.in_proj, memo + p.normal,
                   memo + p.qkv_delta, memo + p.delta, run->grads + p.in_proj);
  float *in_delta = run->in_delta ? run->in_delta : run->out; /* `out` is no longer needed */
  memcpy(in_delta, run->out_delta, positions * width * sizeof(float));
  rows_norm_back(positions, width, run->params + p.norm, run->in, memo + p.stat, memo + p.delta,
                 in_delta, run->grads + p.norm);
  return true;
}

static const layer_kind attention = {"attention", seed, forward, backward};

layer layer_attention(size_t positions, size_t width, size_t heads) {
  layer l = {.kind = &attention,
             .in = positions * width,
             .out = positions * width,
             .dim = {positions, width, heads}};
  l.count = parts_of(&l, 1).out_proj + rows_linear_params(width, width);
  l.memo = parts_of(&l, 1).end;
  return l;
}
