/* model.c: a sequence of layers, forwards and backwards, and the loss. */
#include "trainer/model.h"

#include "trainer/dataset.h"
#include "trainer/options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void model_begin(model *m) {
  memset(m, 0, sizeof(*m));
  m->shape = HASH_START;
}

/* Adds what decides the meaning of a layer's parameters to the model's shape. */
static void add_shape(model *m, const layer *l) {
  uint64_t words[3 + LAYER_DIMS] = {l->in, l->out, l->relu};
  for (size_t i = 0; i < LAYER_DIMS; i++)
    words[3 + i] = l->dim[i];
  m->shape = hash_bytes(m->shape, l->kind->name, strlen(l->kind->name));
  m->shape = hash_bytes(m->shape, words, sizeof(words));
}

bool model_add(model *m, layer l, fail *why) {
  size_t bytes;
  if (m->layers == MODEL_MAX_LAYERS)
    return fail_set(why, "the model has more than %d layers", MODEL_MAX_LAYERS);
  l.first = m->params;
  if (__builtin_add_overflow(m->params, l.count, &m->params) ||
      __builtin_mul_overflow(m->params, sizeof(float), &bytes))
    return fail_set(why, "the model has more parameters than can be addressed");
  if (m->layers == 0)
    m->inputs = l.in;
  add_shape(m, &l);
  m->layer[m->layers++] = l;
  return true;
}

void model_end(model *m, size_t positions) {
  m->positions = positions;
  m->classes = m->layer[m->layers - 1].out / positions;
}

model model_part(const model *m, size_t begin, size_t end) {
  model part;
  fail none;
  model_begin(&part);
  for (size_t l = begin; l < end; l++)
    model_add(&part, m->layer[l], &none); /* cannot fail: the whole model did fit */
  if (end > begin)
    model_end(&part, m->positions);
  return part;
}

void model_seed(const model *m, uint64_t seed, float *params) {
  for (size_t l = 0; l < m->layers; l++) {
    rng g = rng_make(seed, RNG_WEIGHTS, l);
    if (m->layer[l].kind->seed)
      m->layer[l].kind->seed(&m->layer[l], &g, params + m->layer[l].first);
  }
}

float *matrix_alloc(size_t rows, size_t columns) {
  size_t count, bytes;
  if (__builtin_mul_overflow(rows, columns, &count) ||
      __builtin_mul_overflow(count, sizeof(float), &bytes) ||
      __builtin_add_overflow(bytes, (size_t)63, &bytes))
    return NULL;
  return aligned_alloc(64, bytes / 64 * 64);
}

float *matrix_zeroes(size_t count) {
  float *memory = matrix_alloc(1, count);
  return memory ? memset(memory, 0, count * sizeof(float)) : NULL;
}

bool pass_create(pass *p, const model *m, size_t rows, fail *why) {
  size_t widest = m->inputs;
  memset(p, 0, sizeof(*p));
  p->rows = rows;
  p->value[0] = matrix_alloc(rows, m->inputs);
  bool ok = p->value[0] != NULL;
  for (size_t l = 0; l < m->layers; l++) {
    const layer *here = &m->layer[l];
    p->value[l + 1] = matrix_alloc(rows, here->out);
    p->memo[l] = here->memo ? matrix_alloc(rows, here->memo) : NULL;
    ok = ok && p->value[l + 1] && (p->memo[l] || !here->memo);
    widest = here->out > widest ? here->out : widest;
  }
  p->delta[0] = matrix_alloc(rows, widest);
  p->delta[1] = matrix_alloc(rows, widest);
  ok = ok && p->delta[0] && p->delta[1];
  p->labels = ok ? calloc(rows, m->positions) : NULL;
  if (p->labels)
    return true;
  pass_destroy(p);
  return fail_memory(why, "a batch");
}

void pass_destroy(pass *p) {
  for (size_t l = 0; l < MODEL_MAX_LAYERS; l++) {
    free(p->value[l]);
    free(p->memo[l]);
  }
  free(p->value[MODEL_MAX_LAYERS]);
  free(p->delta[0]);
  free(p->delta[1]);
  free(p->labels);
  memset(p, 0, sizeof(*p));
}

/* What layer l reads and writes in a pass. */
static layer_run run_of(const model *m, const float *params, const pass *p, size_t l, size_t rows,
                        fail *why) {
  return (layer_run){.rows = rows,
                     .params = params + m->layer[l].first,
                     .in = p->value[l],
                     .out = p->value[l + 1],
                     .memo = p->memo[l],
                     .why = why};
}

bool model_forward(const model *m, const float *params, pass *p, size_t rows, fail *why) {
  if (rows == 0)
    return true;
  for (size_t l = 0; l < m->layers; l++) {
    layer_run run = run_of(m, params, p, l, rows, why);
    m->layer[l].kind->forward(&m->layer[l], &run);
    if (run.failed)
      return false;
  }
  return true;
}

bool model_backward(const model *m, const float *params, pass *p, size_t rows, float *grads,
                    float *in_delta, model_listener listener, fail *why) {
  float *delta = p->delta[0], *before = p->delta[1];
  for (size_t l = m->layers; l-- > 0;) {
    const layer *here = &m->layer[l];
    layer_run run = run_of(m, params, p, l, rows, why);
    run.out_delta = delta;
    run.in_delta = l > 0 ? before : in_delta;
    run.grads = grads + here->first;
    if (rows == 0)
      memset(run.grads, 0, here->count * sizeof(float));
    else
      here->kind->backward(here, &run);
    if (run.failed || (listener.layer_done && !listener.layer_done(listener.ctx, l, why)))
      return false;
    float *swap = delta;
    delta = before;
    before = swap;
  }
  return true;
}

/* ---- softmax cross entropy ------------------------------------------------------------------ */

/* Index of the largest of n numbers. */
static size_t largest(const float *x, size_t n) {
  size_t best = 0;
  for (size_t j = 1; j < n; j++)
    if (x[j] > x[best])
      best = j;
  return best;
}

/* Sum of exp(x[j] - top), where top is the largest: never overflows. */
static double sum_exp(const float *x, size_t n, float top) {
  double sum = 0;
  for (size_t j = 0; j < n; j++)
    sum += (double)expf(x[j] - top);
  return sum;
}

double model_loss(const model *m, const pass *p, size_t rows, double *correct) {
  double loss = 0, right = 0;
  for (size_t r = 0; r < rows * m->positions; r++) {
    const float *x = p->value[m->layers] + r * m->classes;
    size_t best = largest(x, m->classes);
    right += best == p->labels[r];
    loss += log(sum_exp(x, m->classes, x[best])) + (double)(x[best] - x[p->labels[r]]);
  }
  *correct += right / (double)m->positions;
  return loss / (double)m->positions;
}

void model_loss_delta(const model *m, pass *p, size_t rows, float scale) {
  float each = scale / (float)m->positions;
  for (size_t r = 0; r < rows * m->positions; r++) {
    const float *x = p->value[m->layers] + r * m->classes;
    float *d = p->delta[0] + r * m->classes;
    float top = x[largest(x, m->classes)];
    float factor = each / (float)sum_exp(x, m->classes, top);
    for (size_t j = 0; j < m->classes; j++)
      d[j] = expf(x[j] - top) * factor;
    d[p->labels[r]] -= each;
  }
}

/* ---- the models that --model names ----------------------------------------------------------- */

bool model_perceptron(model *m, const size_t *sizes, size_t count, fail *why) {
  model_begin(m);
  for (size_t l = 0; l + 1 < count; l++) {
    size_t weights, both;
    if (__builtin_mul_overflow(sizes[l], sizes[l + 1], &weights) ||
        __builtin_add_overflow(weights, sizes[l + 1], &both) ||
        !model_add(m, layer_linear(sizes[l], sizes[l + 1], 1, l + 2 < count), why))
      return fail_set(why, "--layers: more parameters than can be addressed");
  }
  model_end(m, 1);
  return true;
}

bool model_lenet(model *m, size_t side, size_t channels, size_t classes, fail *why) {
  size_t half = side / 2, quarter = (half - 4) / 2;
  if (side < 12 || side % 4 != 0)
    return fail_set(why,
                    "--model lenet: needs square images whose side is a multiple of 4 and at "
                    "least 12, not %zu",
                    side);
  model_begin(m);
  bool ok = model_add(m, layer_conv(side, channels, 5, 2, 6), why) &&
            model_add(m, layer_pool(side, 6), why) &&
            model_add(m, layer_conv(half, 6, 5, 0, 16), why) &&
            model_add(m, layer_pool(half - 4, 16), why) &&
            model_add(m, layer_linear(quarter * quarter * 16, 120, 1, true), why) &&
            model_add(m, layer_linear(120, 84, 1, true), why) &&
            model_add(m, layer_linear(84, classes, 1, false), why);
  if (ok)
    model_end(m, 1);
  return ok;
}

bool model_transformer(model *m, size_t symbols, size_t places, size_t width, size_t heads,
                       size_t blocks, fail *why) {
  if (width % heads != 0)
    return fail_set(why, "--width %zu: must be a multiple of --heads %zu", width, heads);
  model_begin(m);
  bool ok = model_add(m, layer_embed(symbols, places, width), why);
  for (size_t b = 0; ok && b < blocks; b++)
    ok = model_add(m, layer_attention(places, width, heads), why) &&
         model_add(m, layer_mlp(places, width, 4 * width), why);
  ok = ok && model_add(m, layer_norm(places, width), why) &&
       model_add(m, layer_linear(width, symbols, places, false), why);
  if (ok)
    model_end(m, places);
  return ok;
}

/* A perceptron, if its first and last sizes fit the data. */
static bool perceptron_asked_for(model *m, const options *o, const dataset *d, fail *why) {
  size_t outputs = o->sizes[o->size_count - 1];
  if (o->sizes[0] != d->inputs)
    return fail_set(why, "--layers begins with %zu, but the samples of %s have %zu inputs",
                    o->sizes[0], o->data, d->inputs);
  if (outputs < d->classes)
    return fail_set(why, "--layers ends with %zu, but the labels of %s go up to %zu", outputs,
                    o->data, d->classes - 1);
  return model_perceptron(m, o->sizes, o->size_count, why);
}

bool model_asked_for(model *m, const options *o, const dataset *d, fail *why) {
  if (d->text != (o->model == MODEL_TRANSFORMER))
    return fail_set(why,
                    d->text ? "%s is a text file: use --model transformer"
                            : "--model transformer: needs a text file, but %s holds images",
                    o->data);
  switch (o->model) {
  case MODEL_LENET:
    return model_lenet(m, d->side, d->channels, d->classes, why);
  case MODEL_TRANSFORMER:
    return model_transformer(m, d->classes, d->inputs, o->width, o->heads, o->blocks, why);
  default:
    return perceptron_asked_for(m, o, d, why);
  }
}
