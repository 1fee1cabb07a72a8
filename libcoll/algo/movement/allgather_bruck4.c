/*
 * allgather_bruck4.c: in round k each rank sends the 4^k blocks that it has to the ranks 4^k,
 * 2 * 4^k and 3 * 4^k before, so that it has four times as many afterwards.
 *
 * Cost: about ceil(log4 n) alpha + (n-1)/n N beta for N bytes in all, as long as the lanes can keep
 * the messages of a round under way at once. Wins over bruck where latency counts more than the
 * number of partners.
 * Source: Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all
 * communications in multiport message-passing systems", IEEE TPDS 8 (1997): radix r and r - 1
 * ports.
 *
 * 5 ranks: what rank 0 has after each round:
 *
 *     round 0:  0 <-- 1, 2, 3    0 1 2 3
 *     round 1:  0 <-- 4          0 1 2 3 4
 */
#include "libcoll/algo/symmetric.h"

static coll_status bruck4_emit(const colli_shape *shape, colli_sched **sched) {
  colli_symmetric symmetric = colli_symmetric_dissemination(shape->nranks, 4);
  return colli_symmetric_emit(shape, &symmetric, sched);
}

static double bruck4_cost(const colli_shape *shape, const colli_partition *partition,
                          size_t elem_bytes, const colli_model *model) {
  colli_symmetric symmetric = colli_symmetric_dissemination(shape->nranks, 4);
  return colli_symmetric_cost(shape, &symmetric, partition, elem_bytes, model);
}

const colli_algo colli_allgather_bruck4 = {
    .name = "bruck4",
    .id = 51,
    .coll = COLLI_ALLGATHER,
    .when = "short blocks on many ranks: log4(n) rounds, 3 log4(n) partners",
    .source = "Bruck, Ho, Kipnis, Upfal and Weathersby 1997",
    .orders = COLLI_GIVES_ANY,
    .varying = true,
    .pipelined = false,
    .reach = COLLI_REACH_RING,
    .radix = 4,
    .longer = 1,
    .nchunks = colli_nchunks_blocks,
    .emit = bruck4_emit,
    .cost = bruck4_cost,
};
