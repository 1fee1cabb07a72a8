/*
 * scatter_direct.c: the root sends every rank its block.
 *
 * Cost: alpha + (n-1) m beta for blocks of m bytes: no block travels twice. Wins for long blocks
 * and for few ranks; the root handles n-1 messages. Source: folklore; "linear" in Chan, Heimlich,
 * Purkayastha and van de Geijn 2007.
 *
 * 5 ranks, root 0:
 *
 *          .--> 1
 *     0 ---+--> 2
 *          +--> 3
 *          '--> 4
 */
#include "libcoll/algo/timeline.h"

static coll_status direct_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks, rank = shape->rank, root = shape->root;
  colli_builder *builder = colli_builder_create(shape, n, 0, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  if (rank != root) {
    colli_emit(builder, 0, COLLI_RECV | COLLI_STORE,
               (colli_way){root, COLLI_NOBODY, COLLI_OUTPUT, COLLI_OUTPUT}, rank);
    return colli_builder_finish(builder, sched);
  }
  for (int k = 1; k < n; k++) {
    int to = (root + k) % n;
    colli_emit(builder, 0, COLLI_SEND, (colli_way){COLLI_NOBODY, to, COLLI_INPUT, COLLI_INPUT}, to);
  }
  colli_emit(builder, 0, COLLI_STORE,
             (colli_way){COLLI_NOBODY, COLLI_NOBODY, COLLI_INPUT, COLLI_OUTPUT}, root);
  return colli_builder_finish(builder, sched);
}

/* One pass of the root, at[0], and of the rank that is served last, at[1]. */
static void direct_pass(colli_timeline *at, const colli_shape *shape, const void *ctx) {
  (void)ctx;
  colli_flight flight = {0, 0};
  for (int k = 1; k < shape->nranks; k++)
    flight = colli_timeline_send(at);
  colli_timeline_copy(at);
  colli_timeline_receive(&at[1], flight);
}

static double direct_cost(const colli_shape *shape, const colli_partition *partition,
                          size_t elem_bytes, const colli_model *model) {
  double n = shape->nranks, share = (n - 1) / n;
  colli_work work = {
      .steps = 2 * share + 1 / n, .received = share, .waits = share, .reduced = 1 / n};
  return colli_timeline_cost(shape, partition, elem_bytes, model, work, direct_pass, NULL);
}

const colli_algo colli_scatter_direct = {
    .name = "direct",
    .id = 90,
    .coll = COLLI_SCATTER,
    .when = "long blocks or few ranks: no block travels twice",
    .source = "folklore; see Chan, Heimlich, Purkayastha and van de Geijn 2007",
    .orders = COLLI_GIVES_ANY,
    .varying = true,
    .pipelined = false,
    .reach = COLLI_REACH_ALL,
    .nchunks = colli_nchunks_blocks,
    .emit = direct_emit,
    .cost = direct_cost,
};
