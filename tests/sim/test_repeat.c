/* test_repeat.c: the same seed gives the same run, down to the last nanosecond and message. */
#include <criterion/criterion.h>
#include <string.h>

#include "support_program.h"
#include "support_seeds.h"

#define LIMIT_NS (60 * COLLI_NS_PER_S)

/* The outcome of a run. */
typedef struct trace {
  uint64_t end_ns, messages, steps;
  uint64_t rank_ns[17];
} trace;

/* Runs one seed, with a rank killed on the way. */
static trace run_seed(uint64_t seed) {
  seeded_world sw;
  seeded_world_make(&sw, seed, 2, 17);
  sim_fault fault = {.kind = SIM_KILL, .rank = 1, .at_ns = 300000};
  sw.config.sim.faults = &fault;
  sw.config.sim.nfaults = 1;
  world w;
  program p;
  cr_assert(world_open(&w, &sw.config));
  program_make(&p, &w, &sw.config, seed);
  cr_assert(program_run(&p, LIMIT_NS));
  trace t = {world_now(&w), sim_world_messages(w.sim), w.steps, {0}};
  for (int rank = 0; rank < p.nranks; rank++)
    t.rank_ns[rank] = p.ranks[rank].done_ns;
  world_close(&w);
  program_free(&p);
  return t;
}

Test(repeat, same_seed, .timeout = 60) {
  for (uint64_t seed = 1; seed <= 50; seed++) {
    trace a = run_seed(seed), b = run_seed(seed);
    cr_assert_eq(memcmp(&a, &b, sizeof(a)), 0, "seed %llu", (unsigned long long)seed);
  }
}

Test(repeat, another_seed, .timeout = 60) {
  trace a = run_seed(1), b = run_seed(2);
  cr_assert_neq(memcmp(&a, &b, sizeof(a)), 0);
}
