/*
 * allgather_pat.c: each block goes down a binomial tree of ranks, the farthest first; the trees of
 * all blocks run beside each other. In round k each rank sends 2^k blocks, 1/2^(k+1) of all ranks
 * further on.
 *
 * Cost: about ceil(log2 n) alpha + (n-1)/n N beta for N bytes in all, like bruck, but most bytes go
 * to neighbours. Wins for short blocks on many ranks where far ranks are also slow to reach.
 * Source: Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale",
 * arXiv 2506.20252 (2025), as in NCCL 2.23; without its limit on memory for messages under way.
 *
 * 5 ranks: the way of block 0; the other blocks go the same way from their ranks on:
 *
 *     round 0:  0 --------------> 4
 *     round 1:  0 -----> 2
 *     round 2:  0 --> 1  2 --> 3
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

const colli_algo colli_allgather_pat = {
    .name = "pat",
    .id = 55,
    .coll = COLLI_ALLGATHER,
    .when = "short blocks on many ranks: far ranks get few blocks, near ones many",
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
