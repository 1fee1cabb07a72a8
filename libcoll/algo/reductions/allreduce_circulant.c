/*
 * allreduce_circulant.c: a reduce-scatter and an all-gather whose distances are n halved
 * repeatedly, rounded up. In each round of the first half, a rank sends its parts for the farther
 * half of the remaining ranks to the first of that half. It adds what it receives from the same
 * distance before it to its parts for the nearer half. The second half runs the same rounds
 * backwards with the results.
 *
 * Cost: about 2 ceil(log2 n) alpha + 2 (n-1)/n N beta + (n-1)/n N gamma for N bytes, as long as the
 * lanes can keep the messages of a round under way at once. As few bytes as the ring in a
 * logarithmic number of rounds, for any number of ranks: wins for middle sizes on many ranks. Ranks
 * are not combined in rank order.
 * Source: Traeff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", arXiv
 * 2410.14234 (2024).
 *
 * 5 ranks: distances 3, 2, 1; the way of chunk 0, first to its owner (already added parts in
 * brackets), then from it:
 *
 *     round 0:  1 --> 4   2 --> 0         round 3:  0 --> 4
 *     round 1:  3 --> 0                   round 4:  0 --> 3
 *     round 2:  4 [1] --> 0               round 5:  0 --> 2   4 --> 1
 */
#include "libcoll/algo/symmetric.h"

static coll_status circulant_emit(const colli_shape *shape, colli_sched **sched) {
  colli_symmetric symmetric = colli_symmetric_circulant(shape->nranks);
  return colli_symmetric_emit(shape, &symmetric, sched);
}

static double circulant_cost(const colli_shape *shape, const colli_partition *partition,
                             size_t elem_bytes, const colli_model *model) {
  colli_symmetric symmetric = colli_symmetric_circulant(shape->nranks);
  return colli_symmetric_cost(shape, &symmetric, partition, elem_bytes, model);
}

const colli_algo colli_allreduce_circulant = {
    .name = "circulant",
    .id = 12,
    .coll = COLLI_ALLREDUCE,
    .when = "middle sizes on many ranks: 2 log2(n) rounds and the fewest bytes for any n",
    .source = "Traeff 2024",
    .orders = COLLI_GIVES_ANY,
    .ranks_min = 3, /* two ranks exchange as many bytes in one round with recdbl */
    .reach = COLLI_REACH_RING,
    .radix = 2,
    .longer = 1,
    .nchunks = colli_nchunks_blocks,
    .emit = circulant_emit,
    .cost = circulant_cost,
};
