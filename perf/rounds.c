/*
 * rounds.c: finds the fastest of several variants, and how much longer others take, from
 * interleaved rounds. Averages logarithms, because ratios matter, and only their middle half,
 * because a machine has disturbances and more than one speed.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"

#define SURE 2.5 /* standard errors: a smaller difference does not count */

static int compare_doubles(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

/* The mean of the middle half of some values, which it sorts; *error: its standard error. */
static double middle(double *values, int count, double *error) {
  int cut = count / 4;
  double sum = 0, squares = 0, all = 0;
  qsort(values, (size_t)count, sizeof(*values), compare_doubles);
  for (int i = cut; i < count - cut; i++)
    sum += values[i];
  for (int i = 0; i < count; i++) { /* values outside the middle half are replaced by its
                                       outermost ones */
    int at = i < cut ? cut : i >= count - cut ? count - cut - 1 : i;
    all += values[at];
    squares += values[at] * values[at];
  }
  double variance = count > 1 ? (squares - all * all / count) / (count - 1) : 0;
  *error = sqrt(variance > 0 ? variance / count : 0) * count / (count - 2 * cut);
  return sum / (count - 2 * cut);
}

/* Whether a round belongs to a half: pairs of rounds (forwards and backwards) alternate. */
static bool in_half(int round, int half) {
  return half < 0 || (round / 2 + half) % 2 == 0;
}

/*
 * The logarithm of one variant's time over another's (-1: of the time itself) in one half of the
 * rounds (-1: in all).
 */
static double compare(const perf_rounds *r, int way, int other, int half, double *error) {
  double values[PERF_ROUNDS_MAX];
  int count = 0;
  for (int round = 0; round < r->count; round++)
    if (in_half(round, half))
      values[count++] = log(r->us[way][round]) - (other < 0 ? 0 : log(r->us[other][round]));
  return middle(values, count, error);
}

/* The fastest variant in one half of the rounds. */
static int fastest(const perf_rounds *r, int half) {
  double error;
  int best = 0;
  for (int way = 1; way < r->ways; way++)
    if (compare(r, way, best, half, &error) < 0)
      best = way;
  return best;
}

double perf_rounds_us(const perf_rounds *r, int way) {
  double error;
  return exp(compare(r, way, -1, -1, &error));
}

double perf_rounds_of_best(const perf_rounds *r, int way) {
  double error, sum = 0;
  for (int half = 0; half < 2; half++)
    sum += compare(r, way, fastest(r, half), !half, &error);
  return exp(sum / 2);
}

bool perf_rounds_settled(const perf_rounds *r, int way) {
  bool settled = true;
  for (int other = 0; other < r->ways; other++) {
    double error = 0, bound = log(PERF_WITHIN);
    double more = other == way ? 0 : compare(r, way, other, -1, &error);
    if (more - SURE * error > bound)
      return true;
    settled = settled && more + SURE * error < bound;
  }
  return settled;
}
