/* support_train.h: small jobs of the trainer on several ranks, and their files. */
#ifndef TESTS_SUPPORT_TRAIN_H
#define TESTS_SUPPORT_TRAIN_H

#include "support_ranks.h"
#include "tests/unit/trainer_files.h"
#include "trainer/base.h"
#include "trainer/options.h"

#define JOB_MOST_RANKS  8
#define JOB_MOST_EPOCHS 64

/* Results of a job's ranks, in memory that they share with the test. */
typedef struct outcome {
  fail why[JOB_MOST_RANKS];
} outcome;

/* One run of training. */
typedef struct job {
  options o;
  char folder[64], metrics[96], checkpoint[96];
  outcome *out;
  int odd_rank;              /* the rank that is treated differently, or -1 */
  uint64_t seed;             /* its seed, if not 0 */
  bool bad_data;             /* it has no data */
  bool killed;               /* it is killed once there is a checkpoint */
  const coll_config *config; /* of the ranks' communicator; NULL: defaults */
  void (*before)(int rank);  /* called on each rank before it trains; NULL: nothing */
} job;

/* The numbers of a run's metrics file. */
typedef struct curve {
  size_t epochs;
  double train_loss[JOB_MOST_EPOCHS], test_loss[JOB_MOST_EPOCHS], train_accuracy[JOB_MOST_EPOCHS];
  double sent_bytes[JOB_MOST_EPOCHS];
  double test_accuracy; /* at the end */
  char hash[JOB_MOST_EPOCHS][17];
} curve;

/* Makes a small job in a fresh folder. more: further options, separated by spaces, or NULL. */
job job_make(const char *more);
void job_drop(job *j);

/* Runs a job; results: as run_processes() gives them. */
void job_run(const job *j, int nranks, int results[JOB_MOST_RANKS]);

/* Runs a job that must succeed. */
void job_runs_well(const job *j, int nranks);

/* Runs a job that must fail in time on all ranks, except one that is killed. */
void job_runs_badly(const job *j, int nranks);

/* Runs a job whose odd rank is killed; the others must succeed. */
void job_survives(const job *j, int nranks);

/* Reads a job's metrics file. */
curve job_curve(const job *j);

/* The number after "name": in the line of an epoch (from 0) of a job's metrics file. */
double job_number(const job *j, size_t epoch, const char *name);

/* Runs the job of job_make(how) with and without killing a rank. The others must continue, and end
 * as well trained. */
void job_survives_as_well_trained(const char *how, int nranks, int killed);

#endif
