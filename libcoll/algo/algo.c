/* algo.c: the table of all algorithms. */
#include <string.h>

#include "libcoll/algo/emit.h"
#include "libcoll/base/assert.h"

/* Where costs are equal the first one wins. */
const colli_algo *const colli_algos[] = {
    &colli_allreduce_recdbl,
    &colli_allreduce_direct,
    &colli_allreduce_pairs,
    &colli_allreduce_dbtree,
    &colli_allreduce_ring,
    &colli_broadcast_binomial,
    &colli_broadcast_chain,
    &colli_allgather_ring,
    &colli_barrier_dissemination,
    &colli_barrier_direct,
    &colli_reduce_scatter_ring,
    &colli_reduce_scatter_pairwise,
    &colli_alltoall_direct,
    &colli_alltoall_pairwise,
    &colli_alltoall_direct_sites,
    &colli_gather_direct,
    &colli_scatter_direct,
    &colli_scan_chain,
    &colli_exscan_chain,
    &colli_allreduce_rsag,
    &colli_allreduce_rabenseifner,
    &colli_allreduce_circulant,
    &colli_allreduce_bcube,
    &colli_reduce_binomial,
    &colli_reduce_knomial4,
    &colli_reduce_knomial8,
    &colli_reduce_chain,
    &colli_reduce_rsg,
    &colli_broadcast_scatterag,
    &colli_reduce_bintree,
    &colli_broadcast_knomial4,
    &colli_broadcast_knomial8,
    &colli_broadcast_bintree,
    &colli_allreduce_knomial2,
    &colli_allreduce_knomial4,
    &colli_allreduce_knomial8,
    &colli_allreduce_bintree,
    &colli_allgather_bruck,
    &colli_allgather_bruck4,
    &colli_allgather_pat,
    &colli_allgather_recdbl,
    &colli_allgather_bcube,
    &colli_allgather_direct,
    &colli_reduce_scatter_circulant,
    &colli_reduce_scatter_pat,
    &colli_reduce_scatter_bcube,
    &colli_reduce_scatter_direct,
    &colli_reduce_scatter_halving,
    &colli_allreduce_hier,
    &colli_allreduce_hier_ring,
    &colli_allreduce_hier_split,
    &colli_allreduce_hier_levels,
    &colli_allreduce_hier_levels_split,
    &colli_allreduce_hier_lanes,
    &colli_allreduce_hier_sites,
    &colli_allreduce_hier_trees,
    &colli_allreduce_hier_weighted,
    &colli_allreduce_hier_weighted_fine,
    &colli_allgather_hier,
    &colli_allgather_hier_ring,
    &colli_allgather_hier_sites,
    &colli_reduce_scatter_hier,
    &colli_reduce_scatter_hier_sites,
    &colli_reduce_hier,
    &colli_reduce_hier_chain,
    &colli_broadcast_hier,
    &colli_broadcast_hier_chain,
    &colli_scan_doubling,
    &colli_exscan_doubling,
    &colli_alltoall_bruck,
    &colli_gather_binomial,
    &colli_gather_knomial4,
    &colli_scatter_binomial,
    &colli_scatter_knomial4,
    &colli_barrier_dissemination4,
    NULL,
};

/* Finds an algorithm by collective and name; NULL if there is none. */
const colli_algo *colli_algo_find(colli_coll coll, const char *name) {
  for (const colli_algo *const *algo = colli_algos; *algo; algo++)
    if ((*algo)->coll == coll && strcmp((*algo)->name, name) == 0)
      return *algo;
  return NULL;
}

/* Makes this rank's schedule, complete. */
coll_status colli_algo_emit(const colli_algo *algo, const colli_shape *shape, colli_sched **sched) {
  COLLI_ASSERT_RANK(shape->rank >= 0 && shape->rank < shape->nranks, shape->rank);
  COLLI_ASSERT_RANK(algo->coll == shape->coll, shape->rank);
  coll_status status = algo->emit(shape, sched);
  if (status != COLL_OK)
    return status;
  COLLI_ASSERT_RANK((*sched)->rank == shape->rank && (*sched)->nranks == shape->nranks,
                    shape->rank);
  COLLI_ASSERT_RANK((*sched)->nlanes >= 1 && (*sched)->nlanes <= COLLI_MAX_LANES, shape->rank);
  (*sched)->algo = algo;
  colli_sched_mark_by_reference(*sched, !algo->exchanges);
  return COLL_OK;
}

/* Whether an algorithm can make a schedule of this shape at all. */
bool colli_algo_can(const colli_algo *algo, const colli_shape *shape) {
  return algo->coll == shape->coll && (algo->orders >> shape->order & 1) &&
         (algo->varying || !shape->varying) && (!algo->groups || shape->ngroups > 1);
}
