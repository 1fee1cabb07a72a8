/*
 * allgather_bruck.c: in round k each rank sends the 2^k blocks that it has to the rank 2^k before,
 * so that what it has doubles. The last round moves what is missing.
 *
 * Cost: about ceil(log2 n) alpha + (n-1)/n N beta for N bytes in all, as long as the lanes can keep
 * the messages of a round under way at once; n - 1 messages, as each block is one. Wins for short
 * blocks on many ranks, where direct would need too many connections.
 * Source: Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all
 * communications in multiport message-passing systems", IEEE TPDS 8 (1997).
 *
 * 5 ranks: what rank 0 has after each round:
 *
 *     round 0:  0 <-- 1    0 1
 *     round 1:  0 <-- 2    0 1 2 3
 *     round 2:  0 <-- 4    0 1 2 3 4
 */
#include "libcoll/algo/symmetric.h"

static coll_status bruck_emit(const colli_shape *shape, colli_sched **sched) {
  colli_symmetric symmetric = colli_symmetric_dissemination(shape->nranks, 2);
  return colli_symmetric_emit(shape, &symmetric, sched);
}

static double bruck_cost(const colli_shape *shape, const colli_partition *partition,
                         size_t elem_bytes, const colli_model *model) {
  colli_symmetric symmetric = colli_symmetric_dissemination(shape->nranks, 2);
  return colli_symmetric_cost(shape, &symmetric, partition, elem_bytes, model);
}

const colli_algo colli_allgather_bruck = {
    .name = "bruck",
    .id = 50,
    .coll = COLLI_ALLGATHER,
    .when = "short blocks on many ranks: log2(n) rounds, log2(n) partners",
    .source = "Bruck, Ho, Kipnis, Upfal and Weathersby 1997",
    .orders = COLLI_GIVES_ANY,
    .varying = true,
    .pipelined = false,
    .reach = COLLI_REACH_RING,
    .radix = 2,
    .longer = 1,
    .nchunks = colli_nchunks_blocks,
    .emit = bruck_emit,
    .cost = bruck_cost,
};
