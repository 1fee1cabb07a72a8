/* test_perf_rounds.c: how coll_perf finds the fastest of several algorithms. */
#include <criterion/criterion.h>
#include <math.h>

#include "perf/perf.h"

/* A number in 0 .. 1. */
static double draw(uint64_t *state) {
  *state = *state * 6364136223846793005ull + 1442695040888963407ull;
  return (double)(*state >> 33) / (double)(1u << 31);
}

/* Rounds of algorithms that take `factor` times as long as the first one, and up to `noise` more.
 * */
static perf_rounds make(const double *times, int ways, int count, double noise, uint64_t seed) {
  perf_rounds rounds = {.ways = ways, .count = count};
  for (int round = 0; round < count; round++)
    for (int way = 0; way < ways; way++)
      rounds.us[way][round] = 10 * times[way] * exp(noise * draw(&seed));
  return rounds;
}

/* A machine that becomes slower in the middle slows all algorithms down. */
Test(perf_rounds, drift) {
  const double times[] = {1.2, 1, 1.5};
  perf_rounds rounds = make(times, 3, 32, 0, 1);
  for (int way = 0; way < 3; way++)
    for (int round = 11; round < 32; round++)
      rounds.us[way][round] *= 3;
  cr_assert_float_eq(perf_rounds_of_best(&rounds, 0), 1.2, 1e-9);
  cr_assert_float_eq(perf_rounds_of_best(&rounds, 1), 1, 1e-9);
  cr_assert_float_eq(perf_rounds_of_best(&rounds, 2), 1.5, 1e-9);
}

/* Single disturbed turns do not count. */
Test(perf_rounds, disturbed) {
  const double times[] = {1, 1.05};
  perf_rounds rounds = make(times, 2, 16, 0, 1);
  for (int round = 0; round < 3; round++)
    rounds.us[round % 2][5 * round] *= 100;
  cr_assert_float_eq(perf_rounds_us(&rounds, 0), 10, 1e-9);
  cr_assert_float_eq(perf_rounds_of_best(&rounds, 1), 1.05, 1e-9);
  cr_assert(perf_rounds_settled(&rounds, 1));
}

/* None of equally fast algorithms is the best, however noisy they are; the minimum of their times
 * would suggest one. */
Test(perf_rounds, luck) {
  const double times[] = {1, 1, 1, 1, 1};
  double sum = 0;
  for (uint64_t seed = 1; seed <= 200; seed++) {
    perf_rounds rounds = make(times, 5, 16, 0.6, seed);
    sum += log(perf_rounds_of_best(&rounds, 2));
  }
  cr_assert_float_eq(sum / 200, 0, 0.02, "equals look like %.3f", exp(sum / 200));
}

/* Clear cases need no more rounds; close ones do if there is noise. */
Test(perf_rounds, settled) {
  const double far[] = {1, 1.4}, near[] = {1, 1.01}, close[] = {1, 1.1};
  perf_rounds rounds = make(far, 2, 16, 0.1, 1);
  cr_assert(perf_rounds_settled(&rounds, 0));
  cr_assert(perf_rounds_settled(&rounds, 1));
  rounds = make(near, 2, 16, 0.1, 1);
  cr_assert(perf_rounds_settled(&rounds, 1));
  rounds = make(near, 2, 16, 1, 1);
  cr_assert_not(perf_rounds_settled(&rounds, 1));
  rounds = make(close, 2, 128, 0.2, 1);
  cr_assert_not(perf_rounds_settled(&rounds, 1));
}
