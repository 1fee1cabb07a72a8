/*
 * test_mixed.c: random programs of everything, with delays. Ranks run on their own stacks over the
 * simulator.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "extent.h"
#include "support_mixed.h"
#include "support_seeds.h"

#define LIMIT_NS (120 * COLLI_NS_PER_S)

/* One seed. */
static bool run_seed(uint64_t seed, bool verbose) {
  seeded_world sw;
  seeded_world_make(&sw, seed, 1, MIXED_RANKS);
  sw.config.timeout_ms = 10000;
  mixed_plan *plan = calloc(1, sizeof(*plan));
  world w;
  if (!plan || !world_open(&w, &sw.config))
    return false;
  plan->seed = seed;
  plan->config = sw.config;
  bool ok = world_run_fibers(&w, mixed_run, plan, LIMIT_NS);
  if (!ok || verbose)
    fprintf(stderr,
            "seed %llu: %s after %.3f ms of virtual time, %d ranks, algorithms '%s', '%s'\n",
            (unsigned long long)seed, ok ? "right" : "wrong", (double)world_now(&w) / 1e6, w.nranks,
            sw.algo, sw.fault);
  world_close(&w);
  free(plan);
  return ok;
}

Test(mixed, programs, .timeout = 290) {
  cr_assert_eq(seeds_run("build/tests/sim_test_mixed", run_seed, 1, extent(600, 2000, 300)), 0);
}
