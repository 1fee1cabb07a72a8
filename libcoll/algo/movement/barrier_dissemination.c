/*
 * barrier_dissemination.c: in round k each rank gives notice to the rank 2^k further on.
 *
 * Cost: ceil(log2(n)) alpha. The fewest rounds for any number of ranks.
 * Source: Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", IJPP 17 (1988).
 *
 * 5 ranks: whom rank 0 has heard from after each round:
 *
 *     round 0:  4 --> 0         4
 *     round 1:  3 --> 0         4 3 2
 *     round 2:  1 --> 0         4 3 2 1
 */
#include "libcoll/algo/emit.h"

static int dissemination_nchunks(const colli_shape *shape) {
  (void)shape;
  return 1;
}

static coll_status dissemination_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks, rank = shape->rank;
  colli_builder *builder = colli_builder_create(shape, 1, 0, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  for (int distance = 1; distance < n; distance *= 2) {
    int to = (rank + distance) % n, from = (rank + n - distance) % n;
    colli_emit(builder, 0, COLLI_SEND, (colli_way){COLLI_NOBODY, to, COLLI_INPUT, COLLI_INPUT}, 0);
    colli_emit(builder, 0, COLLI_RECV, (colli_way){from, COLLI_NOBODY, COLLI_INPUT, COLLI_INPUT},
               0);
  }
  return colli_builder_finish(builder, sched);
}

static double dissemination_cost(const colli_shape *shape, const colli_partition *partition,
                                 size_t elem_bytes, const colli_model *model) {
  colli_terms t = colli_terms_make(partition, elem_bytes, model);
  double rounds = colli_log2_up(shape->nranks);
  colli_work work = {.steps = 2 * rounds, .received = rounds, .waits = rounds, .reduced = 0};
  return colli_cost_bound(rounds * (t.copy_hop + model->step_ns), work, &t, model);
}

const colli_algo colli_barrier_dissemination = {
    .name = "dissemination",
    .id = 8,
    .coll = COLLI_BARRIER,
    .when = "many ranks: log2(n) rounds of one notice",
    .source = "Hensgen, Finkel and Manber 1988",
    .orders = COLLI_GIVES_ANY,
    .pipelined = false,
    .reach = COLLI_REACH_RING,
    .radix = 2,
    .nchunks = dissemination_nchunks,
    .emit = dissemination_emit,
    .cost = dissemination_cost,
};
