/*
 * barrier_direct.c: every rank gives notice to all others and waits for all of theirs.
 *
 * Cost: alpha + 2 (n-1) steps. Wins for few ranks, where one round is better than log2(n), most of
 * all if ranks share cores. Every pair of ranks needs a connection, so with many ranks it runs only
 * if asked for. Source: folklore.
 *
 * 5 ranks: one round, 20 notices; rank 2 for example:
 *
 *     0 --.           .--> 0
 *     1 --+--> 2      +--> 1
 *     3 --+      2 ---+--> 3
 *     4 --'           '--> 4
 */
#include "libcoll/algo/timeline.h"

static int direct_nchunks(const colli_shape *shape) {
  (void)shape;
  return 1;
}

static coll_status direct_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks, rank = shape->rank;
  colli_builder *builder = colli_builder_create(shape, 1, 0, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  colli_way way = {COLLI_NOBODY, COLLI_NOBODY, COLLI_INPUT, COLLI_INPUT};
  for (int i = 1; i < n; i++) {
    way.to = (rank + i) % n;
    colli_emit(builder, 0, COLLI_SEND, way, 0);
  }
  way.to = COLLI_NOBODY;
  for (int i = 1; i < n; i++) {
    way.from = (rank + n - i) % n;
    colli_emit(builder, 0, COLLI_RECV, way, 0);
  }
  return colli_builder_finish(builder, sched);
}

/* Any rank. */
static void direct_pass(colli_timeline *at, const colli_shape *shape, const void *ctx) {
  (void)ctx;
  colli_timeline sender = *at;
  for (int i = 1; i < shape->nranks; i++)
    colli_timeline_send(at);
  for (int i = 1; i < shape->nranks; i++)
    colli_timeline_receive(at, colli_timeline_send(&sender));
}

static double direct_cost(const colli_shape *shape, const colli_partition *partition,
                          size_t elem_bytes, const colli_model *model) {
  double peers = shape->nranks - 1;
  if (shape->nranks == 1)
    return 0;
  colli_work work = {.steps = 2 * peers, .received = peers, .waits = 1};
  return colli_timeline_cost(shape, partition, elem_bytes, model, work, direct_pass, NULL);
}

const colli_algo colli_barrier_direct = {
    .name = "direct",
    .id = 9,
    .coll = COLLI_BARRIER,
    .when = "few ranks: one round, everybody to everybody",
    .source = "folklore",
    .orders = COLLI_GIVES_ANY,
    .pipelined = false,
    .ranks_max = 16,
    .reach = COLLI_REACH_ALL,
    .nchunks = direct_nchunks,
    .emit = direct_emit,
    .cost = direct_cost,
};
