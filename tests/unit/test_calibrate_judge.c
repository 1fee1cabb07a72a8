/* test_calibrate_judge.c: what coll_calibrate concludes from several passes over the algorithms. */
#include <criterion/criterion.h>
#include <string.h>

#include "libcoll/tools/calibrate/calibrate.h"

#define SIZE 2

static calibrate_record record;

/* Records a pass of three broadcasts, in microseconds; 0: not measured. */
static const colli_algo *note(int pass, const char *name, float us) {
  const colli_algo *algo = colli_algo_find(COLLI_BROADCAST, name);
  cr_assert_not_null(algo);
  record.us[pass][algo->id][SIZE] = us;
  record.predicted_us[algo->id][SIZE] = 20;
  record.passes = pass + 1;
  return algo;
}

/* The time by which an algorithm is chosen. */
static double concluded(const colli_algo *algo) {
  static colli_correction corrections[COLLI_CORRECTED_ALGOS];
  memset(corrections, 0, sizeof(corrections));
  calibrate_conclude(&record, corrections);
  return corrections[algo->id][SIZE] * 20.0;
}

/* The algorithm that is good in both states of a machine is chosen, not one that is best in one of
 * them. */
Test(calibrate_judge, good_in_all_states) {
  const colli_algo *chain = note(0, "chain", 10), *binomial = note(0, "binomial", 13.5F);
  const colli_algo *bintree = note(0, "bintree", 11.9F);
  cr_assert_lt(concluded(chain), concluded(bintree));
  note(1, "chain", 27);
  note(1, "binomial", 20);
  note(1, "bintree", 23);
  cr_expect_lt(concluded(bintree), concluded(chain));
  cr_expect_lt(concluded(bintree), concluded(binomial));
}

/* The speed of a whole pass does not change the choice, and predicted times stay times. */
Test(calibrate_judge, times) {
  const colli_algo *chain = note(0, "chain", 10), *binomial = note(0, "binomial", 12);
  note(1, "chain", 40);
  note(1, "binomial", 48);
  cr_expect_float_eq(concluded(chain), 20, 1e-3);
  cr_expect_float_eq(concluded(binomial), 24, 1e-3);
}

/* Later passes measure algorithms that may be the best, if there are several. */
Test(calibrate_judge, contenders) {
  const colli_algo *chain = colli_algo_find(COLLI_BROADCAST, "chain");
  cr_assert(calibrate_contends(&record, chain, SIZE));
  note(0, "chain", 10);
  const colli_algo *binomial = note(0, "binomial", 12), *bintree = note(0, "bintree", 18);
  cr_expect(calibrate_contends(&record, chain, SIZE));
  cr_expect(calibrate_contends(&record, binomial, SIZE));
  cr_expect_not(calibrate_contends(&record, bintree, SIZE));
  cr_expect_not(calibrate_contends(&record, chain, SIZE + 1), "of another size none was measured");
  note(1, "chain", 10);
  note(1, "binomial", 10);
  cr_expect_float_eq(concluded(bintree), 18, 1e-3, "it stays as far behind as it was");
  note(1, "binomial", 30);
  cr_expect_not(calibrate_contends(&record, chain, SIZE), "the others are hopeless");
}
