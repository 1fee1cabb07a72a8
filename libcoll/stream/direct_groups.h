/*
 * direct_groups.h: which ranks can share GPU memory if not all of one host can: groups in which
 * each GPU reaches each other one.
 */
#ifndef COLLI_STREAM_DIRECT_GROUPS_H
#define COLLI_STREAM_DIRECT_GROUPS_H

#include <stdbool.h>

#include "coll/coll.h"

/*
 * Finds each rank's group: group[rank] is the lowest rank in it. Ranks join in their order the
 * first group all of whose GPUs reach theirs and are reached by it. *lend: on all ranks the GPU
 * lends memory to networks (gpu/rdma.h), and some peer is connected by one that takes it, as far as
 * is known without trying. All ranks call it, which needs the device of the thread's context, and
 * find the same; a thread is inside. Errors: UNSUPPORTED (some rank has no such device; the record
 * says which and why), others: the communicator failed.
 */
coll_status colli_direct_groups(coll_comm *comm, int *group, bool *lend);

#endif
