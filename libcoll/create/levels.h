/* levels.h: how the ranks of a communicator come to use GPU memory: all together, or in groups. */
#ifndef COLLI_CREATE_LEVELS_H
#define COLLI_CREATE_LEVELS_H

#include "coll/coll.h"

/*
 * Lets calls in streams use GPU memory: sets comm->direct, or comm->levels if the ranks form
 * several groups of equal size, on all ranks or on none. All ranks call it; a thread is inside.
 * Errors: UNSUPPORTED (neither is possible; the record says why), others: the communicator failed.
 */
coll_status colli_levels_use_gpu(coll_comm *comm);

#endif
