/*
 * outsider.h: another program uses the core to which this rank is bound. The rank then loses the
 * core for milliseconds, when its slice is over or it yields. So it gives way: it moves to any
 * processor that its launcher allows it (COLL_CPUS). If it may not, and ranks are more than cores,
 * it sleeps while it waits, and its doorbell gets it the core back at once. After a while it comes
 * back and looks again.
 */
#ifndef COLLI_PROGRESS_OUTSIDER_H
#define COLLI_PROGRESS_OUTSIDER_H

#include "libcoll/comm/comm.h"

#define COLLI_LONG_YIELD_NS 1000000ull /* a yield that takes longer let something else compute */

/* Looks who has had the core since the last look, and gives way to others or comes back. Due at
 * family->outsider.next_ns; called by a thread that waits or tests, which is the one that
 * moves. */
void colli_outsider_look(coll_comm *comm);

/* This rank returns to its core: the family ends, or ranks are about to say where they are. */
void colli_outsider_leave(colli_family *family);

/* How often the kernel gave the core to others who wanted it, while this process (RUSAGE_SELF) or
 * thread (RUSAGE_THREAD) could have run on; also upon a yield. */
uint64_t colli_outsider_interruptions(int whose);

#endif
