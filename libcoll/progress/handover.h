/*
 * handover.h: ranks that share a core. Each should do all it can while it has the core, and hand it
 * over when the other one can do more.
 */
#ifndef COLLI_PROGRESS_HANDOVER_H
#define COLLI_PROGRESS_HANDOVER_H

#include "libcoll/comm/comm.h"

/* How often to poll for a rank on another core before this core is handed over. 0: hand it over at
 * once. */
unsigned colli_handover_polls(const coll_comm *comm);

/* Whether others need this rank's core while it waits, so that it should not spin. */
static inline bool colli_handover_due(const colli_watch *watch) {
  return watch->crowded || watch->contested;
}

/* Lets another process run on this core, and learns how long to spin next time. Releases the
 * family's lock meanwhile. */
void colli_handover_yield(coll_comm *comm);

/* Notes whether others want this thread's core, even though the ranks of this machine have cores
 * enough: other programs, or containers that pass for hosts. */
void colli_handover_look(coll_comm *comm);

#endif
