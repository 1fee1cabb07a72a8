/* recover.h: continues after a rank is lost, with those that are left. */
#ifndef TRAINER_RECOVER_H
#define TRAINER_RECOVER_H

#include "trainer/worker.h"

/*
 * Call this when `why` says that a rank is lost; collective over the ranks that are left. Replaces
 * w->comm by a communicator of those ranks. Then calls the strategy's recover(), or
 * recover_restart() if it has none. The epoch continues with step w->step, and the ranks that are
 * left share the lost rank's part of each batch. Starts again if another rank is lost meanwhile.
 * Some layers may already have the update of the interrupted step and others not, but all ranks
 * have the same. False if `why` is about something else, if the strategy needs all ranks, or if
 * the others continued without this one.
 */
bool recover(worker *w, fail *why);

/* Recovery of strategies that have none of their own: closes the strategy, gives all ranks the
 * model and the position of the rank that is furthest ahead, and opens the strategy again. */
bool recover_restart(worker *w, fail *why);

/* Destroys the earlier communicators, once nothing uses their memory. */
void recover_forget(worker *w);

#endif
