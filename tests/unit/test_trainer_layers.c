/* test_trainer_layers.c: gradients of every kind of layer against differences of its loss. */
#include "trainer/model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS   3
#define WIDE   (1.0f / 64)   /* where the loss is smooth */
#define NARROW (1.0f / 1024) /* where it has corners or bends sharply */

/* A model with parameters, samples, and the derivatives of its loss. */
typedef struct setup {
  model m;
  pass p;
  float *w, *g, *in_delta;
} setup;

/* Symbols as inputs if `symbols`, else numbers around 0. */
static setup make(const model *m, size_t symbols) {
  setup s = {.m = *m};
  fail why = {.text = ""};
  rng noise = {7};
  cr_assert(pass_create(&s.p, m, ROWS, &why), "%s", why.text);
  s.w = malloc((m->params + 1) * sizeof(float));
  s.g = malloc((m->params + 1) * sizeof(float));
  s.in_delta = malloc(ROWS * m->inputs * sizeof(float));
  model_seed(m, 3, s.w);
  for (size_t i = 0; i < m->params; i++) {
    s.w[i] += (float)(0.2 * rng_unit(&noise) - 0.1);
    s.g[i] = NAN;
  }
  for (size_t i = 0; i < ROWS * m->inputs; i++)
    s.p.value[0][i] =
        symbols ? (float)rng_below(&noise, symbols) : (float)(2 * rng_unit(&noise) - 1);
  for (size_t i = 0; i < ROWS * m->positions; i++)
    s.p.labels[i] = (uint8_t)rng_below(&noise, m->classes);
  return s;
}

static void drop(setup *s) {
  pass_destroy(&s->p);
  free(s->w);
  free(s->g);
  free(s->in_delta);
}

/* The loss of all samples. */
static double loss_of(setup *s) {
  fail why = {.text = ""};
  double correct = 0;
  cr_assert(model_forward(&s->m, s->w, &s->p, ROWS, &why), "%s", why.text);
  return model_loss(&s->m, &s->p, ROWS, &correct);
}

/* The derivative of the loss by one number, from four values; the error is of order h^4. */
static double slope(setup *s, float *x, float h) {
  const float keep = *x;
  double at[4];
  static const float steps[] = {-2, -1, 1, 2};
  for (int i = 0; i < 4; i++) {
    *x = keep + steps[i] * h;
    at[i] = loss_of(s);
  }
  *x = keep;
  return (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * (double)h);
}

/*
 * Compares derivatives by all parameters and inputs with differences over steps of h. In float32
 * the loss has an error of about 1e-6, so a slope has 1e-6 / h. If a value passes a corner (ReLU,
 * maximum) between the four points, differences are meaningless: at most `corners` in a hundred may
 * be wrong.
 */
static void check(const model *m, size_t symbols, float h, size_t corners) {
  setup s = make(m, symbols);
  fail why = {.text = ""};
  size_t numbers = m->params + (symbols ? 0 : ROWS * m->inputs), off = 0;
  double big = 0;
  loss_of(&s);
  model_loss_delta(m, &s.p, ROWS, 1);
  cr_assert(model_backward(m, s.w, &s.p, ROWS, s.g, s.in_delta, (model_listener){NULL, NULL}, &why),
            "%s", why.text);
  for (size_t i = 0; i < numbers; i++) {
    bool input = i >= m->params;
    float *x = input ? &s.p.value[0][i - m->params] : &s.w[i];
    double got = (double)(input ? s.in_delta[i - m->params] : s.g[i]), want = slope(&s, x, h);
    off += !(fabs(got - want) < 1e-5 / (double)h + 2e-3 * fabs(want));
    big = fmax(big, fabs(got));
    cr_assert(corners > 0 || off == 0, "%s %zu: %.9g, should be %.9g",
              input ? "input" : "parameter", input ? i - m->params : i, got, want);
  }
  cr_assert_leq(off * 100, corners * numbers, "%zu of %zu derivatives are wrong", off, numbers);
  cr_assert_gt(big, 0.01, "all derivatives are tiny: nothing was shown");
  drop(&s);
}

/* A sequence of layers. */
static model chain(const layer *layers, size_t count, size_t positions) {
  model m;
  fail why = {.text = ""};
  model_begin(&m);
  for (size_t i = 0; i < count; i++)
    cr_assert(model_add(&m, layers[i], &why), "%s", why.text);
  model_end(&m, positions);
  return m;
}

Test(trainer_layers, linear_over_positions) {
  model m = chain((layer[]){layer_linear(5, 4, 3, false), layer_linear(4, 6, 3, false)}, 2, 3);
  check(&m, 0, WIDE, 0);
}

Test(trainer_layers, conv) {
  static const size_t paddings[] = {0, 1, 2};
  for (int i = 0; i < 3; i++) {
    layer first = layer_conv(6, 2, 3, paddings[i], 3);
    first.relu = false; /* no corners */
    model m = chain((layer[]){first, layer_linear(first.out, 4, 1, false)}, 2, 1);
    check(&m, 0, WIDE, 0);
  }
  model m = chain((layer[]){layer_conv(6, 2, 5, 2, 3), layer_conv(6, 3, 3, 0, 4)}, 2, 16);
  check(&m, 0, NARROW, 3);
}

/* Each output of a convolution is the sum in its definition. */
Test(trainer_layers, conv_is_a_convolution) {
  enum { SIDE = 5, IN = 2, KERNEL = 3, PADDING = 1, OUT = 3 };
  layer l = layer_conv(SIDE, IN, KERNEL, PADDING, OUT);
  l.relu = false;
  model m = chain(&l, 1, 1);
  setup s = make(&m, 0);
  loss_of(&s);
  for (int r = 0; r < ROWS; r++)
    for (int y = 0; y < SIDE; y++)
      for (int x = 0; x < SIDE; x++)
        for (int o = 0; o < OUT; o++) {
          double sum = s.w[OUT * KERNEL * KERNEL * IN + o];
          for (int ky = 0; ky < KERNEL; ky++)
            for (int kx = 0; kx < KERNEL; kx++)
              for (int c = 0; c < IN; c++) {
                int iy = y + ky - PADDING, ix = x + kx - PADDING;
                if (iy >= 0 && iy < SIDE && ix >= 0 && ix < SIDE)
                  sum += (double)s.w[((o * KERNEL + ky) * KERNEL + kx) * IN + c] *
                         s.p.value[0][((r * SIDE + iy) * SIDE + ix) * IN + c];
              }
          cr_assert_float_eq(s.p.value[1][((r * SIDE + y) * SIDE + x) * OUT + o], sum, 1e-5);
        }
  drop(&s);
}

Test(trainer_layers, pool) {
  model m = chain((layer[]){layer_pool(4, 3), layer_linear(12, 4, 1, false)}, 2, 1);
  check(&m, 0, NARROW, 5);
}

Test(trainer_layers, norm) {
  model m = chain((layer[]){layer_norm(3, 7), layer_linear(7, 4, 3, false)}, 2, 3);
  check(&m, 0, WIDE, 0);
}

Test(trainer_layers, embed) {
  model m = chain((layer[]){layer_embed(5, 3, 6), layer_linear(6, 5, 3, false)}, 2, 3);
  check(&m, 5, WIDE, 0);
}

Test(trainer_layers, attention) {
  model m = chain((layer[]){layer_attention(4, 6, 2), layer_linear(6, 5, 4, false)}, 2, 4);
  check(&m, 0, WIDE, 0);
}

/* Causality: changing a later input must not change earlier outputs. */
Test(trainer_layers, attention_does_not_see_the_future) {
  enum { PLACES = 5, WIDTH = 6 };
  model m = chain((layer[]){layer_attention(PLACES, WIDTH, 3)}, 1, PLACES);
  setup s = make(&m, 0);
  float before[PLACES * WIDTH];
  for (size_t place = 0; place < PLACES; place++) {
    loss_of(&s);
    memcpy(before, s.p.value[1], sizeof(before));
    s.p.value[0][place * WIDTH] += 1;
    loss_of(&s);
    cr_assert_arr_eq(before, s.p.value[1], place * WIDTH * sizeof(float));
    for (size_t after = place; after < PLACES; after++)
      cr_assert_neq(memcmp(before + after * WIDTH, s.p.value[1] + after * WIDTH, WIDTH * 4), 0);
  }
  drop(&s);
}

Test(trainer_layers, mlp) {
  model m = chain((layer[]){layer_mlp(2, 6, 9), layer_linear(6, 5, 2, false)}, 2, 2);
  check(&m, 0, WIDE, 0);
}

Test(trainer_layers, whole_models) {
  model m;
  fail why = {.text = ""};
  cr_assert(model_transformer(&m, 7, 4, 8, 2, 2, &why), "%s", why.text);
  cr_assert(m.inputs == 4 && m.positions == 4 && m.classes == 7);
  check(&m, 7, NARROW, 0);
  cr_assert_not(model_transformer(&m, 7, 4, 8, 3, 2, &why));
  cr_assert(strstr(why.text, "--heads"));
  cr_assert(model_lenet(&m, 28, 1, 10, &why), "%s", why.text);
  /* As LeCun's network: 156 + 2,416 (all maps joined, not his partial scheme) + 48,120 + 10,164 +
   * 850. */
  cr_assert_eq(m.params, 61706u);
  cr_assert(model_lenet(&m, 12, 1, 3, &why), "%s", why.text);
  check(&m, 0, NARROW, 3);
  cr_assert_not(model_lenet(&m, 30, 1, 10, &why));
  cr_assert(strstr(why.text, "multiple of 4"));
}

/* A part of a model computes what its layers compute in the whole model. */
Test(trainer_layers, parts_of_a_model) {
  static const size_t sizes[] = {5, 4, 6, 3};
  model m;
  fail why = {.text = ""};
  cr_assert(model_perceptron(&m, sizes, 4, &why));
  setup s = make(&m, 0);
  loss_of(&s);
  model part = model_part(&m, 1, 3);
  cr_assert_eq(part.params, m.params - m.layer[1].first);
  pass p;
  cr_assert(pass_create(&p, &part, ROWS, &why));
  memcpy(p.value[0], s.p.value[1], ROWS * part.inputs * sizeof(float));
  cr_assert(model_forward(&part, s.w + m.layer[1].first, &p, ROWS, &why));
  cr_assert_arr_eq(p.value[2], s.p.value[3], ROWS * m.classes * sizeof(float));
  pass_destroy(&p);
  drop(&s);
}
