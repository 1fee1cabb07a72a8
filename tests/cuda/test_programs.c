/*
 * test_programs.c: random programs of calls in streams (support_program.h), in every mode, on a GPU
 * for each rank or on shared ones, whose memory is weak or watched for races. A seed decides what
 * all ranks do, when each of them waits, and what the software GPU does by chance. SIM_SEED repeats
 * one, see seeds.h. 100 seeds by default, 1,000 in cuda_seeds.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "extent.h"
#include "libcoll/base/prng.h"
#include "seeds.h"
#include "support_levels.h"
#include "support_program.h"
#include "tests/proc/support_ranks.h"

enum { MOST_RANKS = 4, LIMIT_S = 240 };

TestSuite(programs, .timeout = 3000);

static void set_number(const char *name, uint64_t number) {
  char text[24];
  snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
  setenv(name, text, 1);
}

/* Chooses what a seed runs on. */
static program choose(uint64_t seed, bool weak, bool verbose) {
  static const char *const modes[] = {"staged", "ordered", "ordered", "spin",
                                      "spin",   "spin",    "meet",    "auto"};
  colli_prng prng = {seed + 1000003};
  program p = {.seed = seed, .verbose = verbose};
  p.mode = modes[colli_prng_below(&prng, 8)];
  p.nranks = 2 + (int)colli_prng_below(&prng, MOST_RANKS - 1);
  p.devices = 1 << colli_prng_below(&prng, 3);
  p.lanes = 1 + (int)colli_prng_below(&prng, PROGRAM_LANES);
  if (strcmp(p.mode, "spin") == 0 && p.devices < p.nranks)
    p.devices = 4;
  if (strcmp(p.mode, "meet") == 0)
    p.devices = 1;
  if (p.devices > device_count()) /* on a real driver */
    p.devices = device_count();
  if (strcmp(p.mode, "spin") == 0 && p.devices < p.nranks) {
    p.mode = "meet";
    p.devices = 1;
  }
  p.direct = strcmp(p.mode, "staged") != 0;
  p.graphs = colli_prng_below(&prng, 4) != 0;
  /* Where threads share a GPU, a call waits until other calls have begun. */
  p.gates = p.devices > 1 || strcmp(p.mode, "ordered") == 0 || !p.direct;
  /* To watch long ones for races takes half a minute. */
  if (p.nranks > 2 && colli_prng_below(&prng, weak ? 12 : 100) == 0)
    p.long_bytes = 800 << 10;
  return p;
}

/* The same for ranks in groups. */
static program choose_groups(uint64_t seed, bool verbose) {
  static const char *const modes[] = {"ordered", "spin", "meet"};
  static const int numbers[] = {MODE_ORDERED, MODE_SPIN, MODE_MEET};
  colli_prng prng = {seed + 2000003};
  const int mode = (int)colli_prng_below(&prng, 3);
  program p = {.seed = seed, .verbose = verbose, .devices = MOST_DEVICES, .direct = true};
  p.ngroups = 2 + (int)colli_prng_below(&prng, 2);
  p.nranks = p.ngroups == 2 && colli_prng_below(&prng, 3) == 0 ? 6 : 2 * p.ngroups;
  p.mode = modes[mode];
  p.mode_number = numbers[mode];
  p.lanes = 1 + (int)colli_prng_below(&prng, PROGRAM_LANES);
  p.graphs = colli_prng_below(&prng, 4) != 0;
  p.gates = p.mode_number != MODE_MEET;
  levels_peers();
  return p;
}

/* Runs a seed in this process, which has not initialised the driver; its exit status. */
static int run_here(const char *model, uint64_t seed, bool verbose, bool groups) {
  program p =
      groups ? choose_groups(seed, verbose) : choose(seed, strcmp(model, "weak") == 0, verbose);
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = slow_ms(20000);
  setenv("GPU_MODEL", model, 1);
  setenv("COLL_GPU_MODE", p.mode, 1);
  set_number("COLL_GPU_SLOT_BYTES", p.long_bytes ? 1 << 20 : 4096);
  set_number("GPU_SEED", seed);
  set_number("GPU_QUEUES", 128); /* graphs have streams too */
  set_number("GPU_DEVICES", (uint64_t)p.devices);
  alarm(LIMIT_S * (unsigned)slow_s(1));
  device_use(0);
  device_may_leak();
  const int failed = run_threads(p.nranks, &config, program_run, &p);
  const uint64_t races = device_take_races();
  if (failed || races || verbose)
    fprintf(stderr, "seed %llu: %llu races; mode %s, %d ranks, %d GPUs, %d streams%s\n",
            (unsigned long long)seed, (unsigned long long)races, p.mode, p.nranks, p.devices,
            p.lanes, p.graphs ? ", graphs" : "");
  return failed || races;
}

/* Runs a seed in a process of its own, because the driver reads its settings once. */
static bool run_seed(const char *model, uint64_t seed, bool verbose, bool groups) {
  int status;
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0)
    _exit(run_here(model, seed, verbose, groups));
  if (child < 0 || waitpid(child, &status, 0) != child)
    return false;
  if (WIFSIGNALED(status))
    fprintf(stderr, "seed %llu: signal %d\n", (unsigned long long)seed, WTERMSIG(status));
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool run_weak(uint64_t seed, bool verbose) {
  return run_seed("weak", seed, verbose, false);
}

static bool run_races(uint64_t seed, bool verbose) {
  return run_seed("races", seed, verbose, false);
}

static bool run_groups(uint64_t seed, bool verbose) {
  return run_seed(seed % 2 ? "weak" : "races", seed, verbose, true);
}

/* The two halves of the seeds; they run at the same time. */
Test(programs, weak) {
  cr_assert_eq(seeds_run("build/tests/cuda_test_programs --filter programs/weak", run_weak, 1,
                         extent_seeds(40, 40, 3, 400)),
               0);
}

Test(programs, races) {
  const int count = extent_seeds(40, 40, 3, 400);
  cr_assert_eq(seeds_run("build/tests/cuda_test_programs --filter programs/races", run_races,
                         1 + (uint64_t)count, count),
               0);
}

Test(programs, groups) {
  DEVICE_NEEDS_FAKE("GPU_PEERS");
  cr_assert_eq(seeds_run("build/tests/cuda_test_programs --filter programs/groups", run_groups, 1,
                         extent_seeds(20, 20, 2, 200)),
               0);
}
