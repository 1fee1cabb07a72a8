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

/* Lets another process run on this core, and learns how long to spin next time. Releases the
 * family's lock meanwhile. */
void colli_handover_yield(coll_comm *comm);

#endif
