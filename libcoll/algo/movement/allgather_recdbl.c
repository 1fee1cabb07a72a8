/*
 * allgather_recdbl.c: recursive doubling. In round k partners at distance 2^k exchange all that
 * they have. For each odd prime factor p of n, a round follows in which p ranks exchange all that
 * they have. So it works for every number of ranks and sends nothing twice.
 *
 * Cost: about log2(n) alpha + (n-1)/n N beta for N bytes in all, as long as the lanes can keep the
 * messages of a round under way at once. Wins for short blocks where n is a power of two, or
 * nearly: each round has one partner for both directions. Source: Thakur, Rabenseifner and Gropp,
 * "Optimization of collective communication operations in MPICH", IJHPCA 19 (2005), for powers of
 * two.
 *
 * 5 ranks are a prime: one round among all (left). 6 ranks are 2 * 3 (right):
 *
 *     round 0:  all five            round 0:  0 - 1      2 - 3      4 - 5
 *                                   round 1:  0 - 2 - 4 - 0    1 - 3 - 5 - 1
 */
#include "libcoll/algo/symmetric.h"

static coll_status recdbl_emit(const colli_shape *shape, colli_sched **sched) {
  colli_symmetric symmetric = colli_symmetric_digits(shape->nranks, 2);
  return colli_symmetric_emit(shape, &symmetric, sched);
}

static double recdbl_cost(const colli_shape *shape, const colli_partition *partition,
                          size_t elem_bytes, const colli_model *model) {
  colli_symmetric symmetric = colli_symmetric_digits(shape->nranks, 2);
  return colli_symmetric_cost(shape, &symmetric, partition, elem_bytes, model);
}

const colli_algo colli_allgather_recdbl = {
    .name = "recdbl",
    .id = 52,
    .coll = COLLI_ALLGATHER,
    .when = "short blocks, number of ranks a power of two: log2(n) exchanges of pairs",
    .source = "Thakur, Rabenseifner and Gropp 2005",
    .orders = COLLI_GIVES_ANY,
    .varying = true,
    .pipelined = false,
    .reach = COLLI_REACH_PAIRS,
    .radix = 2,
    .longer = 1,
    .nchunks = colli_nchunks_blocks,
    .emit = recdbl_emit,
    .cost = recdbl_cost,
};
