/*
 * gather_direct.c: every rank sends its block straight to the root.
 *
 * Cost: alpha + (n-1) m beta for blocks of m bytes: no block travels twice. Wins for long blocks
 * and for few ranks; the root handles n-1 messages. Source: folklore; "linear" in Chan, Heimlich,
 * Purkayastha and van de Geijn 2007.
 *
 * 5 ranks, root 0:
 *
 *     1 --.
 *     2 --+--> 0
 *     3 --+
 *     4 --'
 */
#include "libcoll/algo/timeline.h"

static coll_status direct_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks, rank = shape->rank, root = shape->root;
  colli_builder *builder = colli_builder_create(shape, n, 0, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  if (rank != root) {
    colli_emit(builder, 0, COLLI_SEND, (colli_way){COLLI_NOBODY, root, COLLI_INPUT, COLLI_INPUT},
               rank);
    return colli_builder_finish(builder, sched);
  }
  colli_emit(builder, 0, COLLI_STORE,
             (colli_way){COLLI_NOBODY, COLLI_NOBODY, COLLI_INPUT, COLLI_OUTPUT}, root);
  for (int k = 1; k < n; k++) {
    int from = (root + k) % n;
    colli_emit(builder, 0, COLLI_RECV | COLLI_STORE,
               (colli_way){from, COLLI_NOBODY, COLLI_OUTPUT, COLLI_OUTPUT}, from);
  }
  return colli_builder_finish(builder, sched);
}

/* One pass of the root, at[0], and of any other rank, at[1]. */
static void direct_pass(colli_timeline *at, const colli_shape *shape, const void *ctx) {
  (void)ctx;
  colli_flight flight = colli_timeline_send(&at[1]);
  colli_timeline_copy(at);
  for (int k = 1; k < shape->nranks; k++)
    colli_timeline_receive(at, flight);
}

static double direct_cost(const colli_shape *shape, const colli_partition *partition,
                          size_t elem_bytes, const colli_model *model) {
  double n = shape->nranks, share = (n - 1) / n;
  colli_work work = {
      .steps = 2 * share + 1 / n, .received = share, .waits = 1 / n, .reduced = 1 / n};
  return colli_timeline_cost(shape, partition, elem_bytes, model, work, direct_pass, NULL);
}

const colli_algo colli_gather_direct = {
    .name = "direct",
    .id = 80,
    .coll = COLLI_GATHER,
    .when = "long blocks or few ranks: no block travels twice",
    .source = "folklore; see Chan, Heimlich, Purkayastha and van de Geijn 2007",
    .orders = COLLI_GIVES_ANY,
    .varying = true,
    .pipelined = false,
    .nchunks = colli_nchunks_blocks,
    .emit = direct_emit,
    .cost = direct_cost,
};
