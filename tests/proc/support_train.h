/* support_train.h: small jobs of the trainer on several ranks, and what they leave behind. */
#ifndef TESTS_SUPPORT_TRAIN_H
#define TESTS_SUPPORT_TRAIN_H

#include "support_ranks.h"
#include "tests/unit/trainer_files.h"
#include "trainer/fail.h"
#include "trainer/options.h"

#define JOB_MOST_RANKS  8
#define JOB_MOST_EPOCHS 64

/* What a job's ranks found; in memory that they share with the test. */
typedef struct outcome {
  fail why[JOB_MOST_RANKS];
} outcome;

/* One run of training. */
typedef struct job {
  options o;
  char folder[64], metrics[96], checkpoint[96];
  outcome *out;
  int odd_rank;              /* the rank that is treated otherwise, or -1 */
  uint64_t seed;             /* its seed, if not 0 */
  bool bad_data;             /* it has none */
  bool killed;               /* it is killed once there is a checkpoint */
  const coll_config *config; /* of the ranks' communicator; NULL: as by default */
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

/* A small job in a fresh folder, with more options in `more`, between spaces; NULL: none. */
job job_make(const char *more);
void job_drop(job *j);

/* Runs a job; results: as run_processes() gives them. */
void job_run(const job *j, int nranks, int results[JOB_MOST_RANKS]);

/* Runs a job that must succeed. */
void job_runs_well(const job *j, int nranks);

/* Runs a job that must fail on all ranks (but one that is killed), in time. */
void job_runs_badly(const job *j, int nranks);

/* Runs a job of which the odd rank is killed, and the others must succeed. */
void job_survives(const job *j, int nranks);

/* Reads a job's metrics file. */
curve job_curve(const job *j);

/* The number behind "name": in the line of an epoch (from 0) of a job's metrics file. */
double job_number(const job *j, size_t epoch, const char *name);

/* Runs the job of job_make(how) with and without a rank that is killed: the others must go on, and
 * end as well trained. */
void job_survives_as_well_trained(const char *how, int nranks, int killed);

#endif
