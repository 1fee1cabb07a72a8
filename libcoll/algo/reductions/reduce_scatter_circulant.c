/*
 * reduce_scatter_circulant.c: in each round a rank sends its parts for the farther half of the
 * remaining ranks to the first of that half. It adds what it receives from the same distance before
 * it to its parts for the nearer half. Halves are rounded up, so that any number of ranks takes
 * ceil(log2 n) rounds.
 *
 * Cost: about ceil(log2 n) alpha + (n-1)/n N (beta + gamma) for N bytes in all, as long as the
 * lanes can keep the messages of a round under way at once. Wins for short blocks on many ranks.
 * Ranks are not combined in rank order. Source: Traeff, "Optimal, non-pipelined reduce-scatter and
 * allreduce algorithms", arXiv 2410.14234 (2024).
 *
 * 5 ranks: distances 3, 2, 1; the way of what ends at rank 0 (already added parts in brackets):
 *
 *     round 0:  1 --> 4   2 --> 0
 *     round 1:  3 --> 0
 *     round 2:  4 [1] --> 0
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

const colli_algo colli_reduce_scatter_circulant = {
    .name = "circulant",
    .id = 64,
    .coll = COLLI_REDUCE_SCATTER,
    .when = "short blocks on many ranks: log2(n) rounds and the fewest bytes for any n",
    .source = "Traeff 2024",
    .orders = COLLI_GIVES_ANY,
    .varying = true,
    .pipelined = false,
    .reach = COLLI_REACH_RING,
    .radix = 2,
    .longer = 1,
    .nchunks = colli_nchunks_blocks,
    .emit = circulant_emit,
    .cost = circulant_cost,
};
