/* progress.h: what a person sees of a run: a moving bar on a terminal, one line an epoch elsewhere.
 */
#ifndef TRAINER_PROGRESS_H
#define TRAINER_PROGRESS_H

#include "trainer/metrics.h"

/* How far the current epoch is; loss and accuracy are those of the calling rank's samples. */
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

/*
 * Shows something on rank 0 unless `quiet`. first_epoch: epochs that were done before this run.
 */
void progress_open(progress *p, int rank, bool quiet, uint64_t epochs, uint64_t first_epoch,
                   size_t samples);

/* A line about the run as a whole. */
void progress_say(progress *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* After each step; draws ten times a second at most. */
void progress_step(progress *p, const progress_state *state);

/* After each epoch: its line. */
void progress_epoch(progress *p, const epoch_result *result);

/* The bar's text, at most `width` columns; the return value is its length. For tests, too. */
size_t progress_format(char *text, size_t size, size_t width, const progress *p,
                       const progress_state *state, double now_s);

#endif
