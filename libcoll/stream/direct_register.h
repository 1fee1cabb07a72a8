/* direct_register.h: memory of the program that all ranks of a communicator map, or of each group
 * of ranks whose GPUs reach each other, so that calls in streams use it where it is
 * (direct_in_place.h). */
#ifndef COLLI_STREAM_DIRECT_REGISTER_H
#define COLLI_STREAM_DIRECT_REGISTER_H

#include "libcoll/comm/comm.h"

/* At the end of the communicator, when no stream uses them: unmaps what others have registered;
 * frees all, but if `keep`, not what coll_mem_alloc_gpu() gave, which others may have mapped. */
void colli_direct_unmap_registered(colli_direct *direct);
void colli_direct_free_registered(colli_direct *direct, bool keep);

/* Whether memory is of coll_mem_alloc_gpu() on this communicator; and the end of it, the contract
 * of coll_mem_free(). A thread is inside. */
bool colli_direct_owns(coll_comm *comm, const void *at);
coll_status colli_direct_mem_free(coll_comm *comm, const void *at);

#endif
