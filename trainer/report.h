/* report.h: the results of a run as JSON lines, and its progress: a bar on a terminal, otherwise a
 * line per epoch. */
#ifndef TRAINER_REPORT_H
#define TRAINER_REPORT_H

#include "trainer/options.h"

#include <stdint.h>
#include <stdio.h>

/* One finished epoch, over all ranks. Losses are means per sample; shares go from 0 to 1. */
typedef struct epoch_result {
  uint64_t epoch; /* from 1 */
  int ranks;      /* left at its end */
  double train_loss, train_accuracy;
  double test_loss, test_accuracy;
  double seconds;         /* of training, without the test */
  double samples_per_s;   /* over all ranks */
  double wait_share;      /* share of `seconds` spent waiting for others, mean over the ranks */
  double slowed_share;    /* ... asleep because of --slow */
  double compute_share;   /* ... in the model and the optimizer */
  double sent_bytes;      /* over all ranks, counted as the strategy defines it */
  size_t optimizer_bytes; /* of rank 0; no rank has more */
  uint64_t weights_hash;
  const char *notes; /* the strategy's own members of the JSON object, or "" */
} epoch_result;

typedef struct metrics {
  const char *path;
  FILE *file, *out; /* of --metrics, and standard output for --json; NULL: not wanted */
} metrics;

/* Opens what the options ask for, unless it is open. Lines are appended to an existing file. */
bool metrics_open(metrics *m, const options *o, fail *why);

/* Empties the file; call this only once the run has begun. */
bool metrics_restart(metrics *m, fail *why);

/* Writes the line of an epoch, and flushes it. */
bool metrics_epoch(metrics *m, const epoch_result *result, fail *why);

/* Writes the last line, about the whole run. */
bool metrics_final(metrics *m, const options *o, const epoch_result *last, double seconds,
                   fail *why);

void metrics_close(metrics *m);

/* ---- progress -------------------------------------------------------------------------------- */

/* How far the current epoch is. Loss and accuracy are of this rank's samples. */
typedef struct progress_state {
  uint64_t epoch; /* from 1 */
  size_t samples; /* done in this epoch, over all ranks */
  double loss, accuracy, wait_share;
} progress_state;

typedef struct progress {
  FILE *bar;   /* the terminal; NULL: no bar */
  FILE *lines; /* NULL: quiet, or not rank 0 */
  uint64_t epochs, first_epoch;
  size_t samples; /* of one epoch */
  double begin_s, drawn_s;
} progress;

/* Only rank 0 shows anything, and not if `quiet`. first_epoch: epochs done before this run. */
void progress_open(progress *p, int rank, bool quiet, uint64_t epochs, uint64_t first_epoch,
                   size_t samples);

/* Prints a line about the run. */
void progress_say(progress *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Call this after each step; draws at most ten times a second. */
void progress_step(progress *p, const progress_state *state);

/* Prints the line of a finished epoch. */
void progress_epoch(progress *p, const epoch_result *result);

/* Writes the bar's text, at most `width` columns, and returns its length. Public for tests. */
size_t progress_format(char *text, size_t size, size_t width, const progress *p,
                       const progress_state *state, double now_s);

#endif
