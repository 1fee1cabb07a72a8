/* progress.h: shows how far a run is: a progress bar on a terminal, otherwise a line per epoch. */
#ifndef TRAINER_PROGRESS_H
#define TRAINER_PROGRESS_H

#include "trainer/metrics.h"

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
