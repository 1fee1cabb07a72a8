/* direct_share.h: ranks of several processes map virtual memory of each other. */
#ifndef COLLI_STREAM_DIRECT_SHARE_H
#define COLLI_STREAM_DIRECT_SHARE_H

#include "libcoll/stream/direct_agree.h"

/* Whether there is any that other processes could have; the same on all ranks. */
bool colli_direct_shares(const coll_comm *comm, const colli_gpu_memory_offer *offers);

/*
 * All ranks, each of which has described its memory and mapped what needs no descriptors; or has
 * failed, then `error` says why. Maps the rest, and has all ranks agree whether they could; errors
 * are those of colli_direct_agree(). `number`: of the registration. Collective.
 */
coll_status colli_direct_share(coll_comm *comm, const colli_direct_matter *matter, uint32_t number,
                               const colli_gpu_memory_offer *offers, colli_gpu_memory *memory,
                               coll_error *error);

#endif
