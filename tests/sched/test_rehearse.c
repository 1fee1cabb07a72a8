/* test_rehearse.c: the time of collectives whose ranks share cores. */
#include <criterion/criterion.h>

#include "libcoll/cost/rehearse.h"
#include "support_group.h"

static const colli_limits limits = {32768, 16, 262144, 0};

/* The rehearsal of an algorithm with a vector, or blocks, of `count` float32. */
static double rehearse(const colli_algo *algo, int nranks, size_t count, const colli_model *model) {
  colli_shape shape = {.coll = algo->coll, .nranks = nranks};
  colli_partition part;
  group all = group_make(algo, nranks, 0);
  colli_choice_partition(algo, &shape, count, 4, &limits, &part);
  double ns = colli_rehearse((const colli_sched *const *)all.sched, nranks, &part, 4,
                             limits.slot_count, model);
  group_free(&all);
  return ns;
}

/*
 * Two ranks on one core. From the second operation on a rank, when its turn comes, ends one
 * operation, does its part of the next one whole, and begins one more. So both send, which is half
 * a step, and receive, half a step and 800 to reduce, with one change of ranks an operation.
 */
Test(rehearse, by_hand) {
  const colli_model model = {
      .alpha_ns = 1000, .gamma_ns_per_byte = 2, .step_ns = 20, .core_share = 0.5};
  const colli_algo *algo = colli_algo_find(COLLI_ALLREDUCE, "recdbl");
  double each = 2 * (10 + 10 + 800) + 1000;
  double ns = rehearse(algo, 2, 100, &model);
  cr_assert_float_eq(ns, each, 20, "%g: nearly, as the last one begins none", ns);
}

/* A message to another core costs its sender; neighbours share a core. */
Test(rehearse, cores) {
  colli_model model = {.alpha_ns = 50, .step_ns = 10, .core_share = 0.5};
  const colli_algo *chain = colli_algo_find(COLLI_BROADCAST, "chain");
  const colli_algo *flat = colli_algo_find(COLLI_BROADCAST, "knomial4");
  double chain_near = rehearse(chain, 4, 1, &model), flat_near = rehearse(flat, 4, 1, &model);
  model.flight_ns = 1000;
  double chain_far = rehearse(chain, 4, 1, &model), flat_far = rehearse(flat, 4, 1, &model);
  cr_expect_gt(chain_far, chain_near, "%g and %g", chain_near, chain_far);
  cr_expect_gt(flat_far - flat_near, 1.5 * (chain_far - chain_near), "twice as often: %g and %g",
               flat_far - flat_near, chain_far - chain_near);
}

/* On two cores the ranks run beside each other, and wait for what is on its way. */
Test(rehearse, flight) {
  colli_model model = {.alpha_ns = 1000, .step_ns = 10, .core_share = 1, .flight_ns = 500};
  const colli_algo *algo = colli_algo_find(COLLI_BARRIER, "dissemination");
  double ns = rehearse(algo, 2, 0, &model);
  cr_assert_geq(ns, 5 + 500 + 500 + 5);
  cr_assert_leq(ns, 5 + 500 + 500 + 5 + 100, "%g: looks again too seldom", ns);
}

/* Every algorithm comes to its end, in no less than the cores need for the work. */
Test(rehearse, all_algorithms, .timeout = 60) {
  const colli_model model = {.alpha_ns = 1000,
                             .beta_ns_per_byte = 0.1,
                             .gamma_ns_per_byte = 0.1,
                             .step_ns = 10,
                             .flight_ns = 300};
  for (const colli_algo *const *algo = colli_algos; *algo; algo++)
    for (int nranks = 2; nranks <= 9 && !(*algo)->groups; nranks++)
      for (int cores = 1; cores <= 2; cores++) {
        colli_model shared = model;
        shared.core_share = (double)cores / nranks;
        double little = rehearse(*algo, nranks, 16, &shared);
        double much = rehearse(*algo, nranks, 1 << 20, &shared);
        cr_assert_gt(little, 0, "%s of %d ranks", (*algo)->name, nranks);
        cr_assert((*algo)->coll == COLLI_BARRIER || much > 2 * little, "%s of %d ranks: %g and %g",
                  (*algo)->name, nranks, little, much);
        if ((*algo)->coll == COLLI_ALLREDUCE) /* each rank gets each byte, and sends one */
          cr_assert_geq(much, 0.1 * 2 * 4 * (nranks - 1) * (1 << 20) / cores * 0.9,
                        "%s of %d ranks: %g", (*algo)->name, nranks, much);
      }
}
