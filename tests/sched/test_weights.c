/* test_weights.c: shares of hosts whose links differ, and what they make of the choice. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/prng.h"
#include "libcoll/cost/links.h"
#include "libcoll/cost/predict.h"
#include "libcoll/cost/weights.h"
#include "libcoll/tuning/link_speed.h"
#include "libcoll/tuning/units.h"
#include "support_group.h"

#define HOSTS 8

/* Whether hosts in racks (NULL: in one) with these links get these shares. */
static void expect_racks(int n, const double *beta, const int32_t *rack, const uint8_t *share) {
  colli_weights *weights;
  cr_assert(colli_weights_make(beta, n, rack, &weights));
  cr_assert_not_null(weights);
  cr_expect_eq(weights->nhosts, n);
  cr_expect_arr_eq(weights->beta_ns_per_byte, beta, (size_t)n * sizeof(*beta));
  cr_expect_eq(weights->share != NULL, share != NULL);
  for (int i = 0; share && weights->share && i < n; i++)
    cr_expect_eq(weights->share[i], share[i], "host %d of %d: share %d", i, n, weights->share[i]);
  free(weights);
}

static void expect_shares(int n, const double *beta, const uint8_t *share) {
  expect_racks(n, beta, NULL, share);
}

Test(weights, by_hand) {
  /* A ring would take 14/8 of 80; the slow host alone needs 80, the others 1 + 6/7 of 8. */
  expect_shares(8, (double[]){8, 8, 8, 8, 8, 8, 8, 80}, (uint8_t[]){1, 1, 1, 1, 1, 1, 1, 0});
  /* All end at once, at 14.1, with w = (T / beta - 1) / 2: 0.38 and 0.12, about as 3 to 1. */
  expect_shares(4, (double[]){8, 8, 11.5, 11.5}, (uint8_t[]){3, 3, 1, 1});
  expect_shares(4, (double[]){1, 2, 4, 8}, (uint8_t[]){1, 0, 0, 0});
  /* Each of two hosts sends the vector once, whatever the shares. */
  expect_shares(2, (double[]){1, 10}, NULL);
}

Test(weights, alike_or_too_many) {
  double beta[COLLI_WEIGHTED_HOSTS + 1];
  colli_weights *weights;
  cr_assert(colli_weights_make((double[]){8, 9, 8}, 3, NULL, &weights));
  cr_expect_null(weights);
  cr_assert(colli_weights_make((double[]){8}, 1, NULL, &weights));
  cr_expect_null(weights);
  for (int i = 0; i <= COLLI_WEIGHTED_HOSTS; i++)
    beta[i] = i == 5 ? 80 : 8;
  expect_shares(COLLI_WEIGHTED_HOSTS + 1, beta, NULL);
}

Test(weights, are_no_worse_than_equal_ones_and_near_the_bound) {
  colli_prng random = {21};
  for (int turn = 0; turn < 2000; turn++) {
    int n = 3 + (int)colli_prng_below(&random, 62);
    double beta[COLLI_WEIGHTED_HOSTS], slowest = 0, rates = 0;
    for (int i = 0; i < n; i++) {
      beta[i] = pow(2, (double)colli_prng_below(&random, 64) / 16);
      slowest = fmax(slowest, beta[i]);
      rates += 1 / beta[i];
    }
    /* Every host sends the vector at least once, and all together 2 (n - 1) times. */
    double bound = fmax(slowest, 2 * (n - 1) / rates), equal = colli_weights_time(beta, NULL, n, 0);
    colli_weights *weights;
    cr_assert(colli_weights_make(beta, n, NULL, &weights));
    double time = equal;
    if (weights && weights->share)
      time = colli_weights_time(beta, weights->share, n, 0);
    cr_assert(time >= bound * (1 - 1e-9) && time <= equal, "turn %d", turn);
    cr_assert(time <= 1.3 * bound, "turn %d: %d hosts, %g of %g", turn, n, time, bound);
    free(weights);
  }
}

Test(weights, of_a_rack) {
  /* A host alone in its rack owns all, however slow it is. */
  expect_racks(4, (double[]){80, 8, 8, 8}, (int32_t[]){0, 1, 1, 1}, NULL);
  expect_racks(5, (double[]){8, 80, 8, 80, 8}, (int32_t[]){0, 1, 0, 1, 1},
               (uint8_t[]){1, 0, 1, 0, 1});
  /* Both of the first rack end at 12.4 with w = T / beta - 1: 0.76 and 0.24. The fewest chunks do,
   * as the second takes 80 in any case. */
  expect_racks(4, (double[]){7, 10, 80, 8}, (int32_t[]){0, 0, 1, 1}, (uint8_t[]){1, 0, 0, 1});
  double beta[2 * COLLI_WEIGHTED_HOSTS + 1];
  int32_t rack[2 * COLLI_WEIGHTED_HOSTS + 1];
  uint8_t share[2 * COLLI_WEIGHTED_HOSTS + 1];
  for (int i = 0; i <= 2 * COLLI_WEIGHTED_HOSTS; i++) {
    beta[i] = i == 5 ? 800 : 8;
    rack[i] = i % 2;
    share[i] = i != 5;
  }
  expect_racks(2 * COLLI_WEIGHTED_HOSTS, beta, rack, share);
  expect_racks(2 * COLLI_WEIGHTED_HOSTS + 1, beta, rack, NULL);
}

/* Of random racks: some host of each has a share, equal links have equal ones, and no rack takes
 * longer than the slowest one with equal shares. */
Test(weights, of_random_racks) {
  colli_prng random = {22};
  for (int turn = 0; turn < 500; turn++) {
    enum { MOST = 48 };
    double beta[MOST], equal = 0, time = 0;
    int32_t rack[MOST];
    const int racks = 2 + (int)colli_prng_below(&random, 5), n = 8 * racks;
    int across = 0;
    for (int reached = 1; reached < racks; reached *= 2)
      across++;
    for (int i = 0; i < n; i++) {
      beta[i] = pow(10, (double)colli_prng_below(&random, 8) / 4);
      rack[i] = i / 8;
    }
    colli_weights *weights;
    cr_assert(colli_weights_make(beta, n, rack, &weights));
    for (int r = 0; r < racks; r++)
      equal = fmax(equal, colli_weights_time(beta + 8 * r, NULL, 8, across));
    for (int r = 0; weights && weights->share && r < racks; r++) {
      const uint8_t *share = weights->share + 8 * r;
      int sum = 0;
      for (int i = 0; i < 8; i++)
        sum += share[i];
      cr_assert_gt(sum, 0, "turn %d", turn);
      for (int i = 1; i < 8; i++)
        cr_assert(beta[8 * r + i] != beta[8 * r] || share[i] == share[0], "turn %d", turn);
      time = fmax(time, colli_weights_time(beta + 8 * r, share, 8, across));
    }
    cr_assert_leq(time, equal, "turn %d", turn);
    free(weights);
  }
}

Test(weights, copy) {
  colli_weights *weights;
  cr_assert(colli_weights_make((double[]){8, 8, 8, 80}, 4, NULL, &weights));
  colli_weights *copy = colli_weights_copy(weights);
  cr_assert_not_null(copy);
  cr_expect_arr_eq(copy->beta_ns_per_byte, weights->beta_ns_per_byte, 4 * sizeof(double));
  cr_expect_arr_eq(copy->share, weights->share, 4);
  cr_expect_neq((void *)copy->share, (void *)weights->share);
  free(weights);
  free(copy);
}

/* ---- what a rank says of its link ------------------------------------------------------------ */

Test(link_speed, setting) {
  static const struct {
    const char *text;
    double mbit;
    colli_speed_source source;
  } good[] = {{"", 0, COLLI_SPEED_UNKNOWN},
              {"measure", 0, COLLI_SPEED_WANTED},
              {"100mbit", 100, COLLI_SPEED_DECLARED},
              {"2.5gbit", 2500, COLLI_SPEED_DECLARED},
              {"64kbit", 0.064, COLLI_SPEED_DECLARED},
              {"1kbit", 0.001, COLLI_SPEED_DECLARED},
              {"10.25gbit", 10250, COLLI_SPEED_DECLARED},
              {"400.gbit", 4e5, COLLI_SPEED_DECLARED},
              {"1000tbit", 1e9, COLLI_SPEED_DECLARED}};
  static const char *const bad[] = {"100",      "mbit",       "-1mbit",   "0mbit",     "100Mbit",
                                    "100mbits", "inf",        "nan",      "1e9",       "10000tbit",
                                    " 1gbit",   "measured",   "0x1mbit",  "1.2.3mbit", ".5gbit",
                                    "1e3mbit",  "0.0001kbit", "1001tbit", "2,5gbit",   "1gbit "};
  coll_error error = COLL_ERROR_INIT;
  double mbit;
  uint64_t source;
  for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
    cr_expect_eq(colli_link_speed_parse(good[i].text, &mbit, &source, &error), COLL_OK);
    cr_expect_float_eq(mbit, good[i].mbit, 1e-12);
    cr_expect_eq(source, good[i].source);
  }
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    cr_expect_eq(colli_link_speed_parse(bad[i], &mbit, &source, &error), COLL_ERR_INVALID_USAGE,
                 "%s", bad[i]);
    cr_expect_not_null(strstr(error.message, "COLL_LINK_SPEED"));
  }
  static const double printed[] = {0.001, 114.68, 2.5e6, 1e9};
  for (size_t i = 0; i < sizeof(printed) / sizeof(printed[0]); i++) {
    char text[32];
    colli_print_speed(printed[i], text, sizeof(text));
    cr_expect_eq(colli_link_speed_parse(text, &mbit, &source, &error), COLL_OK, "%s", text);
    cr_expect_float_eq(mbit, printed[i], 1e-3);
  }
}

/* What a setting says wins over what the cards can do, which nobody has measured. */
Test(link_speed, of_cards) {
  static const struct {
    const char *text;
    double cards, mbit;
    colli_speed_source source;
  } cases[] = {{"", 25000, 25000, COLLI_SPEED_CARDS},
               {"", 0, 0, COLLI_SPEED_UNKNOWN},
               {"1gbit", 25000, 1000, COLLI_SPEED_DECLARED},
               {"measure", 25000, 0, COLLI_SPEED_WANTED}};
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    colli_rank_info info = {.pid = 1};
    coll_error error = COLL_ERROR_INIT;
    cr_assert_eq(colli_link_speed_describe(cases[i].text, cases[i].cards, &info, &error), COLL_OK);
    cr_expect_eq(info.link_mbit, cases[i].mbit);
    cr_expect_eq(info.link_source, cases[i].source);
  }
  _Static_assert(COLLI_SPEED_CARDS < COLLI_SPEED_MEASURED, "which is trusted more");
}

/* ---- the model ------------------------------------------------------------------------------- */

Test(model, counts_both_ends_of_a_link) {
  const double beta[] = {1, 10};
  const colli_model model = {.alpha_ns = 100,
                             .beta_ns_per_byte = 1,
                             .host_beta_ns_per_byte = 10,
                             .gamma_ns_per_byte = 2,
                             .step_ns = 10,
                             .core_share = 1,
                             .link_beta_ns_per_byte = beta};
  const colli_algo *algo = colli_algo_find(COLLI_BROADCAST, "hier_chain");
  const colli_limits limits = {32768, 16, 262144, 0};
  group all = group_make(algo, 2, 0);
  colli_partition part;
  colli_choice_partition(algo, &all.sched[0]->shape, 100, 4, &limits, &part);
  double ns = colli_predict((const colli_sched *const *)all.sched, 2, &part, 4, 16, &model);
  cr_expect_float_eq(ns, 10 + 4000 + 100 + 10, 1e-6, "%g: as the slower end takes", ns);
  group_free(&all);
}

Test(model, ranks_of_a_host_share_its_link) {
  colli_model model = {.alpha_ns = 100,
                       .beta_ns_per_byte = 1,
                       .near_beta_ns_per_byte = 1,
                       .step_ns = 10,
                       .host_step_ns = 5,
                       .core_share = 1};
  const colli_algo *algo = colli_algo_find(COLLI_ALLREDUCE, "recdbl");
  const colli_limits limits = {32768, 16, 262144, 0};
  int32_t host[4];
  colli_shape shape = {.coll = COLLI_ALLREDUCE, .nranks = 4};
  shape_spread(&shape, NEAR_HALVES, host);
  group all = group_of(algo, &shape, NEAR_HALVES);
  const colli_sched *const *scheds = (const colli_sched *const *)all.sched;
  colli_partition part;
  colli_choice_partition(algo, &all.sched[0]->shape, 100, 4, &limits, &part);
  const double own = colli_predict(scheds, 4, &part, 4, 16, &model);
  model.host_beta_ns_per_byte = 10;
  const double shared = colli_predict(scheds, 4, &part, 4, 16, &model);
  cr_expect_float_eq(own, 5 + 400 + 10 + 400 + 100 + 10, 1e-6, "%g: a near round, a far one", own);
  cr_expect_float_eq(shared - own, 2 * 4000 - 400, 1e-6, "%g: two messages one after the other",
                     shared - own);
  group_free(&all);
}

/* The choice for hosts of so many ranks, one of which is slow. */
static colli_choice choose(int each, bool known, size_t bytes, colli_model *model) {
  static double beta[HOSTS];
  static int32_t near[4 * HOSTS];
  static colli_weights *weights;
  const colli_limits limits = {131072, 8, 524288, 131072};
  colli_calibration typical;
  colli_calibration_default(&typical);
  colli_model_make(&typical, COLLI_LINK_TCP, COLLI_LINK_SHM, each, 0, model);
  for (int host = 0; host < HOSTS; host++)
    beta[host] = host == HOSTS / 2 ? 80 : 8; /* within both trees of hier_trees */
  for (int rank = 0; rank < HOSTS * each; rank++)
    near[rank] = rank / each;
  free(weights);
  cr_assert(colli_weights_make(beta, HOSTS, NULL, &weights));
  model->host_beta_ns_per_byte = 80;
  model->link_beta_ns_per_byte = weights->beta_ns_per_byte;
  colli_shape shape = {.coll = COLLI_ALLREDUCE,
                       .nranks = HOSTS * each,
                       .ngroups = HOSTS,
                       .group = near,
                       .share = known ? weights->share : NULL};
  colli_choice choice;
  cr_assert(colli_select(&shape, bytes / 4, 4, &limits, model, "", &choice, NULL, 0) > 0);
  return choice;
}

/* Whether an algorithm gives hosts shares that suit their links. */
static bool is_weighted(const colli_choice *choice) {
  return strncmp(choice->algo->name, "hier_weighted", strlen("hier_weighted")) == 0;
}

Test(choice, slow_host_sends_a_long_vector_once) {
  const size_t bytes = 64 << 20;
  for (int each = 1; each <= 4; each *= 4) {
    colli_model model;
    colli_choice choice = choose(each, true, bytes, &model);
    cr_expect(is_weighted(&choice), "%d ranks a host", each);
    const double least = (double)bytes * 80; /* all ranks of a host share its link */
    cr_expect(choice.predicted_ns < 1.2 * least, "%g of %g", choice.predicted_ns, least);
    choice = choose(each, false, bytes, &model);
    cr_expect_not(is_weighted(&choice));
    cr_expect(choice.predicted_ns > 1.5 * least, "%g of %g", choice.predicted_ns, least);
  }
}

/* Two racks, one of which has a slow host. */
Test(choice, slow_host_of_a_rack_sends_a_long_vector_once) {
  const size_t bytes = 64 << 20;
  for (int each = 1; each <= 12; each += each == 1 ? 3 : 8) {
    static double beta[HOSTS];
    static int32_t host[12 * HOSTS], rack[12 * HOSTS], rack_of[HOSTS];
    colli_model model;
    colli_weights *weights;
    const colli_limits limits = {131072, 8, 524288, 131072};
    colli_calibration typical;
    colli_calibration_default(&typical);
    colli_model_make(&typical, COLLI_LINK_TCP, COLLI_LINK_SHM, each, 0, &model);
    for (int i = 0; i < HOSTS; i++) {
      beta[i] = i == 2 ? 80 : 8;
      rack_of[i] = i % 2;
    }
    for (int rank = 0; rank < HOSTS * each; rank++) {
      host[rank] = rank / each;
      rack[rank] = rank / each % 2;
    }
    cr_assert(colli_weights_make(beta, HOSTS, rack_of, &weights));
    model.host_beta_ns_per_byte = 80;
    model.inner[0] = (colli_pair_cost){model.near_alpha_ns, model.near_beta_ns_per_byte};
    model.near_alpha_ns = model.alpha_ns;
    model.near_beta_ns_per_byte = model.beta_ns_per_byte;
    model.link_beta_ns_per_byte = weights->beta_ns_per_byte;
    colli_shape shape = {.coll = COLLI_ALLREDUCE,
                         .nranks = HOSTS * each,
                         .ngroups = 2,
                         .group = rack,
                         .ninner = 1,
                         .inner = {host},
                         .share = weights->share};
    colli_choice choice;
    cr_assert(colli_select(&shape, bytes / 4, 4, &limits, &model, "", &choice, NULL, 0) > 0);
    cr_expect(is_weighted(&choice), "%d ranks a host: %s", each, choice.algo->name);
    /* Many ranks have a formula, in which lanes do not overlap. */
    const double least = (double)bytes * 80;
    cr_expect(choice.predicted_ns < (HOSTS * each > 64 ? 1.5 : 1.2) * least,
              "%d ranks a host: %g of %g", each, choice.predicted_ns, least);
    free(weights);
  }
}

Test(choice, short_vectors_are_not_cut_into_shares) {
  colli_model model;
  const colli_choice choice = choose(1, true, 4, &model);
  cr_expect_not(is_weighted(&choice));
}
