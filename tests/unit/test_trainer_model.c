/* test_trainer_model.c: values, losses, gradients and updates against plain computation in double.
 */
#include "trainer/base.h"
#include "trainer/model.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 9
static const size_t shape[] = {7, 6, 5, 4};
#define MAX_WIDTH 8

/* The loss of all samples, computed in double in the simplest way; *least: how close any hidden
 * value comes to ReLU's corner, where differences say nothing about the gradient. */
static double plain_loss(const model *m, const double *w, const float *inputs,
                         const uint8_t *labels, size_t rows, double *least) {
  double loss = 0;
  for (size_t r = 0; r < rows; r++) {
    double x[MAX_WIDTH], y[MAX_WIDTH], sum = 0;
    for (size_t j = 0; j < m->inputs; j++)
      x[j] = inputs[r * m->inputs + j];
    for (size_t l = 0; l < m->layers; l++) {
      const layer *here = &m->layer[l];
      const double *p = w + here->first, *bias = p + here->in * here->out;
      for (size_t o = 0; o < here->out; o++) {
        y[o] = bias[o];
        for (size_t i = 0; i < here->in; i++)
          y[o] += p[o * here->in + i] * x[i];
        if (l + 1 < m->layers) {
          *least = fmin(*least, fabs(y[o]));
          y[o] = fmax(y[o], 0);
        }
      }
      memcpy(x, y, sizeof(x));
    }
    for (size_t j = 0; j < m->classes; j++)
      sum += exp(x[j]);
    loss += log(sum) - x[labels[r]];
  }
  return loss;
}

/* A model with weights, and samples for it. */
typedef struct setup {
  model m;
  pass p;
  float *w, *g;
  double *exact;
} setup;

static setup make(const size_t *sizes, size_t count, size_t rows) {
  setup s;
  fail why = {.text = ""};
  cr_assert(model_perceptron(&s.m, sizes, count, &why), "%s", why.text);
  cr_assert(pass_create(&s.p, &s.m, rows, &why), "%s", why.text);
  s.w = malloc(s.m.params * sizeof(float));
  s.g = malloc(s.m.params * sizeof(float));
  s.exact = malloc(s.m.params * sizeof(double));
  model_seed(&s.m, 3, s.w);
  rng noise = {42};
  for (size_t i = 0; i < s.m.params; i++) { /* biases of 0 would hide faults */
    s.w[i] += (float)(0.2 * rng_unit(&noise) - 0.1);
    s.exact[i] = s.w[i];
    s.g[i] = NAN;
  }
  for (size_t i = 0; i < rows * sizes[0]; i++)
    s.p.value[0][i] = (float)(2 * rng_unit(&noise) - 1);
  for (size_t r = 0; r < rows; r++)
    s.p.labels[r] = (uint8_t)rng_below(&noise, sizes[count - 1]);
  return s;
}

static void drop(setup *s) {
  pass_destroy(&s->p);
  free(s->w);
  free(s->g);
  free(s->exact);
}

/* The backward pass of a batch. */
static bool backward(setup *s, const float *w, size_t rows, float scale, model_listener listener,
                     fail *why) {
  model_loss_delta(&s->m, &s->p, rows, scale);
  return model_backward(&s->m, w, &s->p, rows, s->g, NULL, listener, why);
}

/* Compares every gradient with the central difference of the reference loss. */
static void check_gradients(const size_t *sizes, size_t count) {
  const float scale = 0.25f;
  setup s = make(sizes, count, ROWS);
  double correct = 0;
  double least = DBL_MAX;
  fail why;
  cr_assert(model_forward(&s.m, s.w, &s.p, ROWS, &why));
  double loss = model_loss(&s.m, &s.p, ROWS, &correct);
  double plain = plain_loss(&s.m, s.exact, s.p.value[0], s.p.labels, ROWS, &least);
  /* float32: about 1e-7 for each of some ten operations on a value. */
  cr_assert_float_eq(loss, plain, 1e-5 * plain, "loss %.9g, plainly %.9g", loss, plain);
  cr_assert(backward(&s, s.w, ROWS, scale, (model_listener){NULL, NULL}, &why));
  const double h = 1e-5;
  cr_assert(least > 20 * h, "a hidden value is too close to 0 for differences: %g", least);
  for (size_t i = 0; i < s.m.params; i++) {
    double keep = s.exact[i];
    s.exact[i] = keep + h;
    double up = plain_loss(&s.m, s.exact, s.p.value[0], s.p.labels, ROWS, &least);
    s.exact[i] = keep - h;
    double down = plain_loss(&s.m, s.exact, s.p.value[0], s.p.labels, ROWS, &least);
    s.exact[i] = keep;
    double want = scale * (up - down) / (2 * h);
    cr_assert_float_eq(s.g[i], want, 2e-6 + 1e-5 * fabs(want), "gradient %zu: %.9g, should be %.9g",
                       i, (double)s.g[i], want);
  }
  drop(&s);
}

Test(trainer_model, gradients_are_right) {
  check_gradients(shape, 4);
}

Test(trainer_model, gradients_without_hidden_layer) {
  check_gradients(shape + 2, 2);
}

/* Parts of a batch, weighted by their sizes, add up to the whole. */
Test(trainer_model, gradients_of_parts_add_up) {
  setup all = make(shape, 4, ROWS), part = make(shape, 4, ROWS);
  fail why;
  double *sum = calloc(all.m.params, sizeof(double));
  cr_assert(model_forward(&all.m, all.w, &all.p, ROWS, &why));
  backward(&all, all.w, ROWS, 1.0f / ROWS, (model_listener){NULL, NULL}, &why);
  static const size_t cuts[] = {0, 5, 5, 8, ROWS}; /* one part is empty */
  for (int i = 0; i < 4; i++) {
    size_t rows = cuts[i + 1] - cuts[i];
    memcpy(part.p.value[0], all.p.value[0] + cuts[i] * shape[0], rows * shape[0] * sizeof(float));
    memcpy(part.p.labels, all.p.labels + cuts[i], rows);
    cr_assert(model_forward(&part.m, all.w, &part.p, rows, &why));
    cr_assert(backward(&part, all.w, rows, 1.0f / ROWS, (model_listener){NULL, NULL}, &why));
    for (size_t j = 0; j < all.m.params; j++)
      sum[j] += part.g[j];
  }
  for (size_t j = 0; j < all.m.params; j++)
    cr_assert_float_eq(sum[j], all.g[j], 1e-6);
  free(sum);
  drop(&all);
  drop(&part);
}

Test(trainer_model, counts_right_answers_and_large_outputs_do_not_overflow) {
  setup s = make(shape + 2, 2, 3);
  double correct = 0;
  float *out = s.p.value[1];
  memcpy(out, (float[]){1000, 0, 0, 0, -1000, 3, 1000, 0, 5, 5, 5, 5}, 12 * sizeof(float));
  memcpy(s.p.labels, (uint8_t[]){0, 1, 2}, 3);
  double loss = model_loss(&s.m, &s.p, 3, &correct);
  cr_assert_eq(correct, 1);
  cr_assert_float_eq(loss, 0 + 997 + log(4), 1e-4);
  out[0] = NAN;
  cr_assert(isnan(model_loss(&s.m, &s.p, 3, &correct)), "a lost value must not be hidden");
  drop(&s);
}

/* Records the order in which layers were reported, and checks that they were complete. */
typedef struct notes {
  const setup *s;
  size_t order[8], count, stop_at;
} notes;

static bool note(void *ctx, size_t l, fail *why) {
  notes *n = ctx;
  const layer *here = &n->s->m.layer[l];
  for (size_t i = here->first; i < here->first + here->count; i++)
    cr_assert_not(isnan(n->s->g[i]), "layer %zu is not complete", l);
  n->order[n->count++] = l;
  return n->count == n->stop_at ? fail_set(why, "stop") : true;
}

Test(trainer_model, layers_are_reported_last_first) {
  setup s = make(shape, 4, ROWS);
  notes n = {.s = &s};
  fail why = {.text = ""};
  cr_assert(model_forward(&s.m, s.w, &s.p, ROWS, &why));
  cr_assert(backward(&s, s.w, ROWS, 1, (model_listener){note, &n}, &why));
  cr_assert_eq(n.count, 3);
  cr_assert(n.order[0] == 2 && n.order[1] == 1 && n.order[2] == 0);
  n = (notes){.s = &s, .stop_at = 2};
  cr_assert_not(backward(&s, s.w, ROWS, 1, (model_listener){note, &n}, &why));
  cr_assert_eq(n.count, 2);
  cr_assert_str_eq(why.text, "stop");
  drop(&s);
}

Test(trainer_model, initial_weights) {
  static const size_t sizes[] = {200, 300, 10};
  model m;
  fail why;
  cr_assert(model_perceptron(&m, sizes, 3, &why));
  cr_assert_eq(m.params, 200u * 300 + 300 + 300 * 10 + 10);
  float *a = malloc(m.params * sizeof(float)), *b = malloc(m.params * sizeof(float));
  model_seed(&m, 1, a);
  model_seed(&m, 1, b);
  cr_assert_arr_eq(a, b, m.params * sizeof(float));
  model_seed(&m, 2, b);
  cr_assert_neq(memcmp(a, b, m.params * sizeof(float)), 0);
  double sum = 0, squares = 0;
  for (size_t i = 0; i < 60000; i++) {
    sum += a[i];
    squares += (double)a[i] * a[i];
  }
  /* Deviation 0.1; the mean of 60,000 deviates by 0.0004, the variance by 0.6 %. Five of those. */
  cr_assert_float_eq(sum / 60000, 0, 0.002);
  cr_assert_float_eq(squares / 60000, 2.0 / 200, 0.03 * 2.0 / 200);
  for (size_t i = 60000; i < 60300; i++)
    cr_assert_eq(a[i], 0.0f);
  free(a);
  free(b);
}

Test(trainer_model, impossible_sizes) {
  static const size_t sizes[] = {2147483647, 2147483647, 2147483647};
  static const size_t wide[] = {4, 1u << 30, 2};
  model m;
  pass p;
  fail why = {.text = ""};
  cr_assert_not(model_perceptron(&m, sizes, 3, &why));
  cr_assert(strstr(why.text, "--layers"));
  cr_assert(model_perceptron(&m, wide, 3, &why));
  cr_assert_not(pass_create(&p, &m, SIZE_MAX / 8, &why));
  cr_assert(strstr(why.text, "out of memory"));
}
