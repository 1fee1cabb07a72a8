/*
 * attention.c: the first half of a transformer block: x + W0 attend(norm(x)), where each place
 * looks at itself and the places before it, with several heads. dim: places, width, heads. Source:
 * Vaswani et al.: Attention Is All You Need, 2017; norm first as in Radford et al., 2019.
 */
#include "trainer/layers/layer.h"
#include "trainer/layers/rows.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

/* Where parts of the parameters begin, and of a pass's memory for `rows` samples. */
typedef struct parts {
  size_t norm, asks, joins;                                          /* parameters */
  size_t normal, stat, asked, shares, seen, asked_delta, delta, end; /* memory */
} parts;

static parts parts_of(const layer *l, size_t rows) {
  size_t places = rows * l->dim[0], width = l->dim[1];
  parts p = {.norm = 0};
  p.asks = p.norm + rows_norm_params(width);
  p.joins = p.asks + rows_linear_params(width, 3 * width);
  p.stat = p.normal + places * width;
  p.asked = p.stat + places * 2;
  p.shares = p.asked + places * 3 * width;
  p.seen = p.shares + places * l->dim[0] * l->dim[2];
  p.asked_delta = p.seen + places * width;
  p.delta = p.asked_delta + places * 3 * width;
  p.end = p.delta + places * (width > l->dim[0] ? width : l->dim[0]);
  return p;
}

static void seed(const layer *l, rng *g, float *params) {
  size_t width = l->dim[1];
  parts p = parts_of(l, 1);
  layer_seed_norm(width, params + p.norm);
  layer_seed_linear(width, 3 * width, 1.0, g, params + p.asks);
  layer_seed_linear(width, width, 0.1, g, params + p.joins);
}

/* One head of one sample: matrices of `places` rows. Queries, keys and values have rows of 3 *
 * width floats, what is seen has rows of width. */
typedef struct head {
  int places, size, width;
  float scale;
  const float *query, *key, *value;
  float *share; /* places * places: how much a place looks at each */
} head;

/* Head h of sample r. */
static head head_at(const layer *l, const layer_run *run, size_t r, size_t h) {
  size_t places = l->dim[0], width = l->dim[1], heads = l->dim[2], size = width / heads;
  parts p = parts_of(l, run->rows);
  const float *asked = run->memo + p.asked + r * places * 3 * width + h * size;
  return (head){.places = (int)places,
                .size = (int)size,
                .width = (int)width,
                .scale = 1.0f / sqrtf((float)size),
                .query = asked,
                .key = asked + width,
                .value = asked + 2 * width,
                .share = run->memo + p.shares + (r * heads + h) * places * places};
}

/* Softmax over the places up to its own, for each place; 0 for those behind. */
static void softmax(head *a) {
  for (int i = 0; i < a->places; i++) {
    float *row = a->share + i * a->places, top = row[0], sum = 0;
    for (int j = 1; j <= i; j++)
      top = row[j] > top ? row[j] : top;
    for (int j = 0; j <= i; j++) {
      row[j] = expf(row[j] - top);
      sum += row[j];
    }
    for (int j = 0; j < a->places; j++)
      row[j] = j <= i ? row[j] / sum : 0.0f;
  }
}

/* What the places of one head see. */
static void attend(head a, float *seen) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, a.places, a.places, a.size, a.scale, a.query,
              3 * a.width, a.key, 3 * a.width, 0.0f, a.share, a.places);
  softmax(&a);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, a.places, a.size, a.places, 1.0f, a.share,
              a.places, a.value, 3 * a.width, 0.0f, seen, a.width);
}

/* From the derivative by what is seen: those by queries, keys and values. score: places * places
 * floats of working memory. */
static void attend_back(head a, const float *seen_delta, float *asked_delta, float *score) {
  int n = a.places, wide = 3 * a.width;
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, a.size, n, 1.0f, a.share, n, seen_delta,
              a.width, 0.0f, asked_delta + 2 * a.width, wide);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, a.size, 1.0f, seen_delta, a.width,
              a.value, wide, 0.0f, score, n);
  for (int i = 0; i < n; i++) {
    const float *share = a.share + i * n;
    float *row = score + i * n, sum = 0;
    for (int j = 0; j <= i; j++)
      sum += row[j] * share[j];
    for (int j = 0; j < n; j++)
      row[j] = share[j] * (row[j] - sum);
  }
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, a.size, n, a.scale, score, n, a.key,
              wide, 0.0f, asked_delta, wide);
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, a.size, n, a.scale, score, n, a.query,
              wide, 0.0f, asked_delta + a.width, wide);
}

static bool forward(const layer *l, const layer_run *run, fail *why) {
  size_t places = run->rows * l->dim[0], width = l->dim[1], heads = l->dim[2];
  parts p = parts_of(l, run->rows);
  float *memo = run->memo;
  (void)why;
  rows_norm(places, width, run->params + p.norm, run->in, memo + p.normal, memo + p.stat);
  rows_linear(places, width, 3 * width, run->params + p.asks, memo + p.normal, memo + p.asked,
              false);
  for (size_t r = 0; r < run->rows; r++)
    for (size_t h = 0; h < heads; h++)
      attend(head_at(l, run, r, h), memo + p.seen + r * l->in + h * (width / heads));
  rows_linear(places, width, width, run->params + p.joins, memo + p.seen, run->out, false);
  rows_add(places * width, run->out, run->in);
  return true;
}

static bool backward(const layer *l, const layer_run *run, fail *why) {
  size_t places = run->rows * l->dim[0], width = l->dim[1], heads = l->dim[2];
  size_t size = width / heads;
  parts p = parts_of(l, run->rows);
  float *memo = run->memo;
  (void)why;
  /* `seen` is read for the gradients first, then the derivatives by it take its place. */
  rows_linear_back(places, width, width, run->params + p.joins, memo + p.seen, run->out_delta,
                   memo + p.seen, run->grads + p.joins);
  for (size_t r = 0; r < run->rows; r++)
    for (size_t h = 0; h < heads; h++)
      attend_back(head_at(l, run, r, h), memo + p.seen + r * l->in + h * size,
                  memo + p.asked_delta + r * 3 * l->in + h * size, memo + p.delta);
  rows_linear_back(places, width, 3 * width, run->params + p.asks, memo + p.normal,
                   memo + p.asked_delta, memo + p.delta, run->grads + p.asks);
  float *in_delta = run->in_delta ? run->in_delta : run->out; /* there nobody reads it */
  memcpy(in_delta, run->out_delta, places * width * sizeof(float));
  rows_norm_back(places, width, run->params + p.norm, run->in, memo + p.stat, memo + p.delta,
                 in_delta, run->grads + p.norm);
  return true;
}

static const layer_kind attention = {"attention", seed, forward, backward};

layer layer_attention(size_t places, size_t width, size_t heads) {
  layer l = {.kind = &attention,
             .in = places * width,
             .out = places * width,
             .dim = {places, width, heads}};
  l.count = parts_of(&l, 1).joins + rows_linear_params(width, width);
  l.memo = parts_of(&l, 1).end;
  return l;
}
