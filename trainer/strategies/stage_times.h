/* stage_times.h: when each stage of a pipeline was at work, for the metrics. */
#ifndef TRAINER_STRATEGIES_STAGE_TIMES_H
#define TRAINER_STRATEGIES_STAGE_TIMES_H

#include "trainer/strategies/grid.h"

/* When a pass of a micro-batch through a stage began and ended. */
typedef struct span {
  double begin_s, end_s;
} span;

/* Notes when each stage was at work in the last step, by its host's clock; collective. `mine` has
 * this rank's forward passes of `micro` micro-batches, then its backward ones. */
bool stage_times_note(worker *w, const grid *g, const span *mine, int micro, fail *why);

#endif
