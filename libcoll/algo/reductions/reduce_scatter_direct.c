/*
 * reduce_scatter_direct.c: every rank sends its contribution to each block straight to the rank
 * that gets the block, which combines all of them in the order that is asked for.
 *
 * Cost: alpha + (n-1)/n N beta + (n-1)/n N gamma for N bytes in all, and 2 (n-1) messages a rank.
 * As few bytes as the ring in one round, for any number of ranks and in any order of combination.
 * Wins for short blocks on few ranks, and wherever blocks must be combined in rank order. Every
 * pair of ranks needs a connection, so with many ranks it runs only if nothing else gives the
 * order. Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication
 * operations in MPICH", IJHPCA 19 (2005): pairwise exchange for operations that do not commute.
 *
 * 5 ranks: the way of block 2; each of the other blocks goes the same way to its rank:
 *
 *     0 --.
 *     1 --+
 *         +--> 2: ((x0 + x1) + x2) + x3 + x4, or order.h's tree
 *     3 --+
 *     4 --'
 */
#include "libcoll/algo/timeline.h"

static coll_status direct_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks;
  colli_builder *builder = colli_builder_create(shape, n, colli_combine_scratch(shape, true), 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  colli_builder_scratch_own(builder);
  if (n == 1) {
    colli_emit_alone(builder, shape->coll, 1);
  } else {
    colli_emit_contribute(builder, shape, 0);
    colli_emit_combine(builder, shape, 0, true, COLLI_NOBODY);
  }
  return colli_builder_finish(builder, sched);
}

/* One pass of the ranks that end last. */
static void direct_pass(colli_timeline *at, const colli_shape *shape, const void *ctx) {
  (void)ctx;
  colli_timeline_combine(&at[0], shape, 1, true, false);
  colli_timeline_combine(&at[1], shape, colli_combine_busiest(shape), true, false);
}

static double direct_cost(const colli_shape *shape, const colli_partition *partition,
                          size_t elem_bytes, const colli_model *model) {
  double peers = shape->nranks - 1;
  colli_work work = {.steps = 2 * peers, .received = peers, .waits = 1, .reduced = peers};
  return colli_timeline_cost(shape, partition, elem_bytes, model, work, direct_pass, NULL);
}

const colli_algo colli_reduce_scatter_direct = {
    .name = "direct",
    .id = 141,
    .coll = COLLI_REDUCE_SCATTER,
    .when = "short blocks on few ranks, and blocks combined in rank order: one round",
    .source = "Thakur, Rabenseifner and Gropp 2005",
    .orders = COLLI_GIVES_TREE | COLLI_GIVES_LEFT,
    .varying = true,
    .reach = COLLI_REACH_ALL,
    .nchunks = colli_nchunks_blocks,
    .emit = direct_emit,
    .cost = direct_cost,
};
