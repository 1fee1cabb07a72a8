/*
 * judge.c: combines several passes over the algorithms. A machine has states that last for minutes,
 * with a different best algorithm in each. So an algorithm is rated by its time over the best one's
 * in the same pass, and passes in which it was far behind count more than those in which it was
 * ahead.
 */
#include <math.h>

#include "calibrate.h"

#define WEIGHT 4.0 /* weight of bad passes: the exponent of the mean of ratios */
#define CLOSE  1.4 /* times the best: may be the best in another pass */

/* The least time of a collective's algorithms in a pass; 0: none was measured. */
static double best_us(const calibrate_record *record, colli_coll coll, int size, int pass) {
  double best = 0;
  for (const colli_algo *const *algo = colli_algos; *algo; algo++) {
    double us = record->us[pass][(*algo)->id][size];
    if ((*algo)->coll == coll && us > 0 && (best == 0 || us < best))
      best = us;
  }
  return best;
}

/* An algorithm's time over that of the best one; 0: not measured. */
static double over_best(const calibrate_record *record, const colli_algo *algo, int size) {
  double sum = 0;
  int passes = 0;
  for (int pass = 0; pass < record->passes; pass++) {
    double us = record->us[pass][algo->id][size];
    if (us <= 0)
      continue;
    sum += pow(us / best_us(record, algo->coll, size, pass), WEIGHT);
    passes++;
  }
  return passes ? pow(sum / passes, 1 / WEIGHT) : 0;
}

bool calibrate_contends(const calibrate_record *record, const colli_algo *algo, int size) {
  if (record->passes == 0)
    return true;
  int others = 0;
  for (const colli_algo *const *other = colli_algos; *other; other++) {
    double ratio = (*other)->coll == algo->coll ? over_best(record, *other, size) : 0;
    others += *other != algo && ratio > 0 && ratio <= CLOSE;
  }
  double ratio = over_best(record, algo, size);
  return others > 0 && ratio > 0 && ratio <= CLOSE;
}

void calibrate_conclude(const calibrate_record *record, colli_correction *corrections) {
  for (const colli_algo *const *algo = colli_algos; *algo; algo++)
    for (int size = 0; size < COLLI_CORRECTED_SIZES; size++) {
      int id = (*algo)->id, passes = 0;
      double ratio = over_best(record, *algo, size), logs = 0;
      if (ratio <= 0 || record->predicted_us[id][size] <= 0)
        continue;
      for (int pass = 0; pass < record->passes; pass++) {
        double best = best_us(record, (*algo)->coll, size, pass);
        if (best > 0)
          logs += log(best), passes++;
      }
      corrections[id][size] = (float)(exp(logs / passes) * ratio / record->predicted_us[id][size]);
    }
}
