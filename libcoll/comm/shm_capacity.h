/*
 * shm_capacity.h: hosts on which ranks may not use memfds and must share memory through files.
 * There it is limited, so slots are made to fit; where even the smallest do not fit, ranks use TCP.
 * All decisions follow from the table of ranks, so every rank makes the same ones.
 */
#ifndef COLLI_COMM_SHM_CAPACITY_H
#define COLLI_COMM_SHM_CAPACITY_H

#include "libcoll/base/log.h"
#include "libcoll/base/shared.h"
#include "libcoll/wireup/bootstrap/bootstrap.h"

#define COLLI_SHM_UNBOUNDED UINT64_MAX /* memfds, which memory alone bounds */

/* Fills in the capacity in this rank's record. */
void colli_shm_capacity_describe(const colli_shared_capacity *found, colli_rank_info *info);

/* Whether some host has not all the memory that there is. If not, what is below does nothing. */
bool colli_shm_capacity_limited(const colli_rank_table *table);

/* Removes the transport with bit `shm` from the records of ranks on hosts without the capacity for
 * it; whether there are such. */
bool colli_shm_capacity_check(colli_rank_info *table, int nranks, uint32_t shm);

/* The same in a table; false if out of memory. */
bool colli_shm_capacity_restrict(colli_rank_table *table, uint32_t shm);

/* The size of slots for which all hosts have the capacity: at most `wanted`. */
size_t colli_shm_capacity_slots(const colli_rank_info *table, int nranks, uint32_t shm,
                                size_t wanted);

/* On the first rank of such a host: logs what was found, what is used instead, and what to do.
 * `slot_bytes`: the result of colli_shm_capacity_slots() for `wanted`. */
void colli_shm_capacity_explain(const colli_rank_info *table, int nranks, int rank, uint32_t shm,
                                const colli_shared_capacity *found, size_t wanted,
                                size_t slot_bytes, const colli_log *log);

#endif
