/* test_trainer_optim.c: updates against plain computation in double, and the schedules of the
 * learning rate. */
#include "trainer/optim.h"

#include <criterion/criterion.h>
#include <math.h>

Test(trainer_optim, momentum_and_decay) {
  enum { N = 37 };
  const optim rule = {.kind = OPTIM_SGD, .lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f};
  float w[N], v[N], g[N];
  double exact_w[N], exact_v[N];
  for (int i = 0; i < N; i++) {
    exact_w[i] = w[i] = (float)i / 8 - 2;
    exact_v[i] = v[i] = 0;
  }
  for (int step = 0; step < 5; step++) {
    for (int i = 0; i < N; i++) {
      g[i] = (float)((i * 7 + step * 3) % 11) / 4 - 1;
      exact_v[i] = 0.9 * exact_v[i] + g[i] + 0.01 * exact_w[i];
      exact_w[i] -= 0.1 * exact_v[i];
    }
    optim_update(&rule, 20, w, v, NULL, g); /* ranges one after the other give the same */
    optim_update(&rule, N - 20, w + 20, v + 20, NULL, g + 20);
  }
  for (int i = 0; i < N; i++) {
    cr_assert_float_eq(w[i], exact_w[i], 1e-5);
    cr_assert_float_eq(v[i], exact_v[i], 1e-5);
  }
}

Test(trainer_optim, adam) {
  enum { N = 37 };
  float w[N], v[N] = {0}, s[N] = {0}, g[N];
  double exact_w[N], exact_v[N] = {0}, exact_s[N] = {0};
  for (int i = 0; i < N; i++)
    exact_w[i] = w[i] = (float)i / 8 - 2;
  for (int step = 0; step < 7; step++) {
    const optim rule = {.kind = OPTIM_ADAM,
                        .lr = 0.1f,
                        .momentum = 0.9f,
                        .square_decay = 0.99f,
                        .weight_decay = 0.01f,
                        .updates = (uint64_t)step};
    for (int i = 0; i < N; i++) {
      g[i] = (float)((i * 7 + step * 3) % 11) / 4 - 1;
      exact_v[i] = 0.9 * exact_v[i] + 0.1 * g[i];
      exact_s[i] = 0.99 * exact_s[i] + 0.01 * g[i] * g[i];
      double root = sqrt(exact_s[i] / (1 - pow(0.99, step + 1))) + 1e-8;
      exact_w[i] -= 0.1 * 0.01 * exact_w[i] + 0.1 * exact_v[i] / (1 - pow(0.9, step + 1)) / root;
    }
    optim_update(&rule, 20, w, v, s, g); /* ranges one after the other give the same */
    optim_update(&rule, N - 20, w + 20, v + 20, s + 20, g + 20);
  }
  for (int i = 0; i < N; i++) {
    cr_assert_float_eq(w[i], exact_w[i], 1e-5);
    cr_assert_float_eq(s[i], exact_s[i], 1e-5);
  }
}

Test(trainer_optim, learning_rates) {
  options o = {.lr = 0.8f, .lr_decay = 0.5f, .epochs = 10};
  static const double decay[][2] = {{0, 0.8}, {0.99, 0.8}, {1, 0.4}, {2.5, 0.2}};
  for (int i = 0; i < 4; i++)
    cr_assert_float_eq(optim_rule(&o, decay[i][0], 0).lr, decay[i][1], 1e-6);
  o.schedule = SCHEDULE_COSINE;
  cr_assert_float_eq(optim_rule(&o, 0, 0).lr, 0.8, 1e-6);
  cr_assert_float_eq(optim_rule(&o, 5, 0).lr, 0.4, 1e-6);
  cr_assert_float_eq(optim_rule(&o, 10, 0).lr, 0, 1e-6);
  o.schedule = SCHEDULE_DECAY;
  o.warmup = 0.5f;
  cr_assert_float_eq(optim_rule(&o, 0.125, 0).lr, 0.2, 1e-6);
  cr_assert_float_eq(optim_rule(&o, 0.5, 0).lr, 0.8, 1e-6);
}

Test(trainer_optim, norm_and_scale) {
  float g[] = {3, 0, -4, 12};
  cr_assert_float_eq(optim_norm(4, g), 13, 1e-9);
  optim_scale(4, g, 0.5f);
  cr_assert(g[0] == 1.5f && g[2] == -2 && g[3] == 6);
}
