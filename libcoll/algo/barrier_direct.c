/*
 * barrier_direct.c: every rank gives notice to all others and waits for all of theirs.
 *
 * Cost: alpha + 2 (n-1) steps. Wins for few ranks, where one round is better than log2(n), most of
 * all if ranks share cores. Every pair of ranks needs a connection: beyond some ranks only taken if
 * asked for.
 * Source: folklore.
 *
 * 5 ranks: one round, 20 notices; rank 2 for example:
 *
 *     0 --.           .--> 0
 *     1 --+--> 2      +--> 1
 *     3 --+      2 ---+--> 3
 *     4 --'           '--> 4
 */
#include "libcoll/algo/emit.h"

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

static double direct_cost(const colli_shape *shape, const colli_partition *partition,
                          size_t elem_bytes, const colli_model *model) {
  colli_terms t = colli_terms_make(partition, elem_bytes, model);
  double peers = shape->nranks - 1, plain = model->step_ns;
  if (peers == 0)
    return 0;
  /* The last notice comes alpha after it was sent; a rank may also be busy with earlier ones. */
  double sent = peers * plain, wait = model->alpha_ns < sent ? sent - plain : model->alpha_ns;
  double critical = sent + wait + plain;
  colli_work work = {.steps = 2 * peers, .received = peers, .waits = 1, .reduced = 0};
  return colli_cost_bound(critical, work, &t, model);
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
    .nchunks = direct_nchunks,
    .emit = direct_emit,
    .cost = direct_cost,
};
