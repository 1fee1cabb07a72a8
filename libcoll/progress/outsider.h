/*
 * outsider.h: another program uses the core to which this rank is bound. A rank that yields, or
 * spins until its slice is over, then loses the core for milliseconds. So it gives way: where ranks
 * are more than cores, it sleeps while it waits, and its doorbell gets it the core back at once;
 * otherwise it moves to any processor that its launcher allows it (COLL_CPUS). After a while it
 * looks again.
 */
#ifndef COLLI_PROGRESS_OUTSIDER_H
#define COLLI_PROGRESS_OUTSIDER_H

#include "libcoll/comm/comm.h"

#define COLLI_SLICE_NS 1000000ull /* a yield that takes longer let something else compute */

/* After such a yield: looks who has had the core since the last one, and gives way to others. */
void colli_outsider_look(coll_comm *comm);

/* It is time to return and look again. */
void colli_outsider_over(coll_comm *comm);

/* The family ends: this rank returns to its core. */
void colli_outsider_leave(colli_family *family);

#endif
