/*
 * allreduce_bcube.c: ranks are numbers whose digits have the base 4, or other bases where n is no
 * power of 4: its prime factors, with twos taken in pairs, so that every number of ranks fits. In
 * each round of the first half the ranks that differ in one digit only, the highest first, share
 * out what they have among each other by that digit and reduce it; the second half goes the same
 * way back with the results.
 *
 * Cost: about 2 (number of digits) alpha + 2 (n-1)/n N beta + (n-1)/n N gamma for N bytes, as long
 * as the lanes can keep the messages of a round under way at once; 3 partners a digit. Wins for
 * middle sizes: half the rounds of recursive halving and doubling.
 * Source: Guo et al., "BCube: a high performance, server-centric network architecture for modular
 * data centers", SIGCOMM 2009; as the algorithm of that name in Gloo.
 *
 * 5 ranks are a prime: one digit, all among each other (left). 8 ranks are 2 * 4 (right):
 *
 *     round 0:  all five (reduce)   round 0:  0, 2, 4, 6 among each other; 1, 3, 5, 7 as well
 *     round 1:  all five (results)  round 1:  0 - 1      2 - 3      4 - 5      6 - 7
 *                                   round 2, 3: the same pairs, then the same fours, with results
 */
#include "libcoll/algo/symmetric.h"

static coll_status bcube_emit(const colli_shape *shape, colli_sched **sched) {
  colli_symmetric symmetric = colli_symmetric_digits(shape->nranks, 4);
  return colli_symmetric_emit(shape, &symmetric, sched);
}

static double bcube_cost(const colli_shape *shape, const colli_partition *partition,
                         size_t elem_bytes, const colli_model *model) {
  colli_symmetric symmetric = colli_symmetric_digits(shape->nranks, 4);
  return colli_symmetric_cost(shape, &symmetric, partition, elem_bytes, model);
}

const colli_algo colli_allreduce_bcube = {
    .name = "bcube",
    .id = 13,
    .coll = COLLI_ALLREDUCE,
    .when = "middle sizes: few rounds with few partners each",
    .source = "Guo et al. 2009 (Gloo)",
    .orders = COLLI_GIVES_ANY,
    .ranks_min = 3, /* two ranks exchange as many bytes in one round with recdbl */
    .reach = COLLI_REACH_PAIRS,
    .radix = 4,
    .longer = 1,
    .nchunks = colli_nchunks_blocks,
    .emit = bcube_emit,
    .cost = bcube_cost,
};
