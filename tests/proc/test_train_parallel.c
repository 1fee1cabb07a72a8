/* test_train_parallel.c: models split over ranks give what one rank gives. */
#include "support_train.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* The same float32 numbers, grouped otherwise: see test_train.c. */
#define CURVE_TOLERANCE 2e-5

/* A job must give the curve of one rank of the strategy allreduce. */
static void check_curve(const char *more, const char *strategy, int nranks) {
  char both[512];
  job one = job_make(more);
  snprintf(both, sizeof(both), "%s %s", more, strategy);
  job split = job_make(both);
  job_runs_well(&one, 1);
  job_runs_well(&split, nranks);
  curve a = job_curve(&one), b = job_curve(&split);
  cr_assert_eq(a.epochs, b.epochs);
  for (size_t e = 0; e < a.epochs; e++) {
    cr_assert_float_eq(a.train_loss[e], b.train_loss[e], CURVE_TOLERANCE,
                       "%s, %d ranks, epoch %zu: %.9g, one rank %.9g", strategy, nranks, e,
                       b.train_loss[e], a.train_loss[e]);
    cr_assert_float_eq(a.test_loss[e], b.test_loss[e], CURVE_TOLERANCE);
  }
  job_drop(&one);
  job_drop(&split);
}

Test(train_parallel, pipeline_gives_the_curve_of_one_rank) {
  static const char *const schedules[] = {"gpipe", "1f1b"};
  static const int micro[] = {1, 2, 5, 40}; /* 40: more than there are samples in a batch */
  char strategy[128];
  for (int s = 0; s < 2; s++)
    for (int m = 0; m < 4; m++)
      for (int n = 1; n <= 3; n++) {
        snprintf(strategy, sizeof(strategy),
                 "--strategy pipeline --pipeline-schedule %s --micro-batches %d", schedules[s],
                 micro[m]);
        check_curve("--epochs 2", strategy, n);
      }
}

Test(train_parallel, pipeline_of_five_stages) {
  check_curve("--epochs 2 --layers 36,20,16,12,8,4", "--strategy pipeline --micro-batches 7", 5);
  check_curve("--epochs 2 --layers 36,20,16,12,8,4 --optimizer adam --lr 0.001",
              "--strategy pipeline --micro-batches 3 --pipeline-schedule gpipe", 5);
}

/* Both schedules add up the same numbers in the same order. */
Test(train_parallel, schedules_give_the_same_bits) {
  job a = job_make("--strategy pipeline --pipeline-schedule gpipe --micro-batches 6");
  job b = job_make("--strategy pipeline --pipeline-schedule 1f1b --micro-batches 6");
  job_runs_well(&a, 3);
  job_runs_well(&b, 3);
  curve first = job_curve(&a), second = job_curve(&b);
  for (size_t e = 0; e < first.epochs; e++)
    cr_assert_str_eq(first.hash[e], second.hash[e]);
  cr_assert_float_eq(job_number(&a, 0, "bubble_formula"), 2.0 / 8, 1e-3);
  cr_assert_gt(job_number(&a, 0, "bubble"), 0);
  job_drop(&a);
  job_drop(&b);
}

/* The state of a run is that of the whole model: any strategy can go on from it. */
Test(train_parallel, checkpoint_of_a_pipeline) {
  job j = job_make("--strategy pipeline --epochs 2"), other = job_make("--epochs 4");
  j.o.checkpoint = j.checkpoint;
  job_runs_well(&j, 3);
  job whole = job_make("--epochs 4");
  job_runs_well(&whole, 1);
  other.o.checkpoint = j.checkpoint;
  other.o.resume = true;
  job_runs_well(&other, 2);
  curve a = job_curve(&whole), b = job_curve(&other);
  cr_assert_eq(b.epochs, 2);
  for (size_t e = 0; e < 2; e++)
    cr_assert_float_eq(a.train_loss[e + 2], b.train_loss[e], CURVE_TOLERANCE);
  job_drop(&j);
  job_drop(&other);
  job_drop(&whole);
}

Test(train_parallel, tensor_gives_the_curve_of_one_rank) {
  for (int n = 1; n <= 5; n++) {
    check_curve("--epochs 2", "--strategy tensor", n);
    check_curve("--epochs 2 --layers 36,4", "--strategy tensor", n);
    check_curve("--epochs 2 --layers 36,17,13,11,4 --optimizer adam --lr 0.01", "--strategy tensor",
                n);
  }
}

Test(train_parallel, products_give_the_curve_of_one_rank) {
  static const struct {
    int ranks, tensor, pipeline;
  } grids[] = {{8, 2, 2}, {4, 2, 1}, {4, 1, 2}, {6, 3, 2}, {6, 1, 3}, {6, 2, 3}, {3, 1, 1}};
  char strategy[128];
  for (size_t i = 0; i < sizeof(grids) / sizeof(grids[0]); i++) {
    snprintf(strategy, sizeof(strategy), "--strategy grid --tensor %d --pipeline %d",
             grids[i].tensor, grids[i].pipeline);
    check_curve("--epochs 2 --layers 36,16,12,8,4", strategy, grids[i].ranks);
  }
}

/* Batches of which some copies have no sample, and some micro-batches none. */
Test(train_parallel, small_batches) {
  check_curve("--epochs 1 --batch 3 --lr 0.005", "--strategy grid --tensor 2 --pipeline 2", 8);
  check_curve("--epochs 1 --batch 1 --lr 0.002", "--strategy grid --pipeline 2 --micro-batches 3",
              4);
}

/* Such a job ends with that text on every rank: none has gone on and learns of an abort instead. */
static void check_impossible(const char *how, int nranks, const char *text) {
  job j = job_make(how);
  job_runs_badly(&j, nranks);
  for (int r = 0; r < nranks; r++) {
    cr_assert(strstr(j.out->why[r].text, text), "rank %d: %s", r, j.out->why[r].text);
    cr_assert(j.out->why[r].everywhere);
  }
  job_drop(&j);
}

Test(train_parallel, impossible_pipelines) {
  check_impossible("--strategy pipeline", 4, "4 stages, but the model has only 3 layers");
  check_impossible("--strategy tensor --layers 36,3,4", 4,
                   "a layer of 3 outputs cannot be split into 4");
  check_impossible("--strategy grid --tensor 2 --pipeline 2", 6,
                   "6 ranks are no multiple of --tensor 2");
  check_impossible("--strategy pipeline --clip 1", 2, "--clip");
}
