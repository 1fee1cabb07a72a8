/*
 * direct.h: whether the ranks of a communicator work in each other's GPU memory. Each has an area
 * there (gpu/peers.h); what these are is found out by all ranks together.
 */
#ifndef COLLI_STREAM_DIRECT_H
#define COLLI_STREAM_DIRECT_H

#include <stdbool.h>

#include "libcoll/stream/direct_agree.h"

/* What coll_comm_use_gpu() is about. */
extern const colli_direct_matter colli_direct_joining;

/* Whether this rank can share GPU memory, as far as it knows alone, and the device that it would
 * use: that of the thread's context. Errors: UNSUPPORTED, SYSTEM. */
coll_status colli_direct_check(const coll_comm *comm, int *device, coll_error *error);

/*
 * Lets calls in streams use GPU memory if all ranks can: sets comm->direct on all of them or on
 * none. All ranks call it, which are several on one host; a thread is inside. The device is that of
 * the thread's context. Errors: UNSUPPORTED (not all can; the record says which rank and why),
 * others: the communicator failed.
 */
coll_status colli_direct_join(coll_comm *comm);

/* Whether that is worth trying, as far as this rank knows before the others are asked. */
bool colli_direct_wanted(const coll_comm *comm);

/* Before the communicator is destroyed and when no stream uses it: waits for the other ranks to say
 * the same, a second at the most, and frees this rank's area. Without them it is kept until the
 * process ends, because they may still look into it. */
void colli_direct_leave(coll_comm *comm);

#endif
