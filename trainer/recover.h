/* recover.h: goes on without a rank that was lost. */
#ifndef TRAINER_RECOVER_H
#define TRAINER_RECOVER_H

#include "trainer/worker.h"

/*
 * After `why` said that a rank is lost: makes a communicator of those that are left, gives all of
 * them the weights of the one that came furthest, and opens the strategy again, unless the strategy
 * has a way of its own. May be called again if it fails, as `why` then says. w->comm is replaced
 * then, and w->step is the step with which the epoch goes on. The parts of the lost rank fall to
 * the others, as each takes its part of a batch by its number among those that are left. Parts of
 * the step in which it was lost may have been applied to some layers only; all have the same then.
 */
bool recover(worker *w, fail *why);

/* What it does with strategies that have no way of their own: closes the strategy, gives all ranks
 * the model and the place of the one that came furthest, and opens the strategy anew. */
bool recover_restart(worker *w, fail *why);

#endif
