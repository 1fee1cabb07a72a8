/* test_random.c: random programs on worlds in which nothing breaks give the right results. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "extent.h"
#include "support_program.h"
#include "support_seeds.h"

#define LIMIT_NS (60 * COLLI_NS_PER_S)

/* Prints the error of a failing rank. */
static void print_errors(const program *p) {
  for (int rank = 0; rank < p->nranks; rank++)
    if (p->ranks[rank].status != COLL_OK)
      fprintf(stderr, "  rank %d: %s: %s\n", rank, coll_status_name(p->ranks[rank].status),
              p->ranks[rank].error.message);
    else if (!p->ranks[rank].done)
      fprintf(stderr, "  rank %d is not done: operation %d is next, %d open\n", rank,
              p->ranks[rank].next, p->ranks[rank].open);
}

/* One seed. */
static bool run_seed(uint64_t seed, bool verbose) {
  seeded_world sw;
  seeded_world_make(&sw, seed, 1, 17);
  world w;
  if (!world_open(&w, &sw.config))
    return false;
  program p;
  program_make(&p, &w, &sw.config, seed);
  bool ended = program_run(&p, LIMIT_NS), ok = ended && p.wrong == 0;
  for (int rank = 0; rank < p.nranks; rank++)
    ok &= p.ranks[rank].status == COLL_OK;
  if (!ok || verbose) {
    fprintf(stderr, "seed %llu: %s after %.3f ms of virtual time, algorithms '%s', faults '%s'\n",
            (unsigned long long)seed, ok ? "right" : "wrong", (double)world_now(&w) / 1e6, sw.algo,
            sw.fault);
    program_print(&p);
    print_errors(&p);
  }
  world_close(&w);
  program_free(&p);
  return ok;
}

Test(random, programs, .timeout = 280) {
  cr_assert_eq(seeds_run("build/tests/sim_test_random", run_seed, 1, extent(300, 600, 300)), 0);
}
