/*
 * reduce_scatter_pat.c: each block is reduced up a binomial tree of ranks, the nearest first; the
 * trees of all blocks run beside each other. In the last round each rank sends one block, half of
 * all ranks back.
 *
 * Cost: about ceil(log2 n) alpha + (n-1)/n N (beta + gamma) for N bytes in all, like circulant, but
 * most bytes go to neighbours. Wins for short blocks on many ranks where far ranks are also slow to
 * reach.
 * Source: Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale",
 * arXiv 2506.20252 (2025), as in NCCL 2.23; without its limit on memory for messages under way.
 *
 * 5 ranks: the way of what ends at rank 0; other blocks end the same way at their ranks:
 *
 *     round 0:  0 <-- 1  2 <-- 3
 *     round 1:  0 <----- 2
 *     round 2:  0 <-------------- 4
 */
#include "libcoll/algo/symmetric.h"

static coll_status pat_emit(const colli_shape *shape, colli_sched **sched) {
  colli_symmetric symmetric = colli_symmetric_far_first(shape->nranks);
  return colli_symmetric_emit(shape, &symmetric, sched);
}

static double pat_cost(const colli_shape *shape, const colli_partition *partition,
                       size_t elem_bytes, const colli_model *model) {
  colli_symmetric symmetric = colli_symmetric_far_first(shape->nranks);
  return colli_symmetric_cost(shape, &symmetric, partition, elem_bytes, model);
}

const colli_algo colli_reduce_scatter_pat = {
    .name = "pat",
    .id = 65,
    .coll = COLLI_REDUCE_SCATTER,
    .when = "short blocks on many ranks: near ranks get many blocks, far ones few",
    .source = "Jeaugey 2025 (NCCL 2.23)",
    .orders = COLLI_GIVES_ANY,
    .varying = true,
    .pipelined = false,
    .reach = COLLI_REACH_RING,
    .radix = 2,
    .longer = -1,
    .nchunks = colli_nchunks_blocks,
    .emit = pat_emit,
    .cost = pat_cost,
};
