/* recover.h: goes on after a loss, with the ranks that are left. */
#ifndef TRAINER_RECOVER_H
#define TRAINER_RECOVER_H

#include "trainer/worker.h"

/*
 * After `why` said that a rank is lost, collective: makes a communicator of the ranks that are left
 * (w->comm is replaced), gives all of them the weights of the one that came furthest, and opens the
 * strategy again, unless the strategy has a way of its own; w->step is then the step with which the
 * epoch goes on. If another rank is lost meanwhile, it begins again. A lost rank's part of each
 * batch falls to the others. Of the step in which it was lost, some layers may have had their
 * update and others not; all ranks have the same then. False if `why` is about something else, if
 * the strategy cannot do without a rank, or if the others went on without this one.
 */
bool recover(worker *w, fail *why);

/* What it does with strategies that have no way of their own: closes the strategy, gives all ranks
 * the model and the place of the one that came furthest, and opens the strategy anew. */
bool recover_restart(worker *w, fail *why);

/* Destroys the communicators before w->comm, once nothing has memory of them. */
void recover_forget(worker *w);

#endif
