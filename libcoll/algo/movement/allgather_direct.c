/*
 * allgather_direct.c: every rank sends its block to all others.
 *
 * Cost: alpha + (n-1)/n N beta for N bytes in all. Wins for short blocks: one round, and no rank
 * forwards blocks of others. Every pair of ranks needs a connection, so with many ranks it runs
 * only if asked for. Source: folklore; "linear" in Thakur, Rabenseifner and Gropp 2005.
 *
 * 5 ranks: one round, 20 messages; rank 2 for example:
 *
 *     0 --.           .--> 1
 *     1 --+--> 2      +--> 0
 *     3 --+      2 ---+--> 4
 *     4 --'           '--> 3
 */
#include "libcoll/algo/symmetric.h"

static coll_status direct_emit(const colli_shape *shape, colli_sched **sched) {
  colli_symmetric symmetric =
      colli_symmetric_dissemination(shape->nranks, shape->nranks > 1 ? shape->nranks : 2);
  return colli_symmetric_emit(shape, &symmetric, sched);
}

static double direct_cost(const colli_shape *shape, const colli_partition *partition,
                          size_t elem_bytes, const colli_model *model) {
  colli_symmetric symmetric =
      colli_symmetric_dissemination(shape->nranks, shape->nranks > 1 ? shape->nranks : 2);
  return colli_symmetric_cost(shape, &symmetric, partition, elem_bytes, model);
}

const colli_algo colli_allgather_direct = {
    .name = "direct",
    .id = 54,
    .coll = COLLI_ALLGATHER,
    .when = "short blocks on few ranks: one round, everybody to everybody",
    .source = "folklore; see Thakur, Rabenseifner and Gropp 2005",
    .orders = COLLI_GIVES_ANY,
    .varying = true,
    .pipelined = false,
    .ranks_max = 16,
    .reach = COLLI_REACH_ALL,
    .nchunks = colli_nchunks_blocks,
    .emit = direct_emit,
    .cost = direct_cost,
};
