/*
 * barrier_dissemination4.c: in round k each rank gives notice to the ranks 4^k, 2 * 4^k and 3 * 4^k
 * further on.
 *
 * Cost: ceil(log4(n)) alpha and up to 3 notices a round. Wins over radix 2 where a notice takes
 * long to arrive but little work to send. Source: Hensgen, Finkel and Manber, "Two algorithms for
 * barrier synchronization", IJPP 17 (1988); with more partners a round as in Hoefler, Mehlan,
 * Mietke and Rehm, "Fast barrier synchronization for InfiniBand", IPDPS 2006.
 *
 * 5 ranks: whom rank 0 has heard from after each round:
 *
 *     round 0:  4, 3, 2 --> 0         4 3 2
 *     round 1:  1 --> 0               4 3 2 1
 */
#include "libcoll/algo/timeline.h"

#define RADIX 4

static coll_status dissemination4_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks, rank = shape->rank;
  colli_builder *builder = colli_builder_create(shape, 1, 0, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  colli_way way = {COLLI_NOBODY, COLLI_NOBODY, COLLI_INPUT, COLLI_INPUT};
  for (int distance = 1; distance < n; distance *= RADIX) {
    for (int j = 1; j < RADIX && j * distance < n; j++) {
      way.to = (rank + j * distance) % n;
      colli_emit(builder, 0, COLLI_SEND, way, 0);
    }
    way.to = COLLI_NOBODY;
    for (int j = 1; j < RADIX && j * distance < n; j++) {
      way.from = (rank + n - j * distance) % n;
      colli_emit(builder, 0, COLLI_RECV, way, 0);
    }
    way.from = COLLI_NOBODY;
  }
  return colli_builder_finish(builder, sched);
}

/* The number of notices that a rank sends in the round with this distance. */
static int notices(int n, int distance) {
  int most = (n - 1) / distance;
  return most < RADIX - 1 ? most : RADIX - 1;
}

/* Any rank. */
static void dissemination4_pass(colli_timeline *at, const colli_shape *shape, const void *ctx) {
  (void)ctx;
  for (int distance = 1; distance < shape->nranks; distance *= RADIX) {
    colli_timeline sender = *at;
    for (int j = notices(shape->nranks, distance); j > 0; j--)
      colli_timeline_send(at);
    for (int j = notices(shape->nranks, distance); j > 0; j--)
      colli_timeline_receive(at, colli_timeline_send(&sender));
  }
}

static double dissemination4_cost(const colli_shape *shape, const colli_partition *partition,
                                  size_t elem_bytes, const colli_model *model) {
  colli_work work = {.waits = 0};
  if (shape->nranks == 1)
    return 0;
  for (int distance = 1; distance < shape->nranks; distance *= RADIX) {
    work.received += notices(shape->nranks, distance);
    work.waits++;
  }
  work.steps = 2 * work.received;
  return colli_timeline_cost(shape, partition, elem_bytes, model, work, dissemination4_pass, NULL);
}

const colli_algo colli_barrier_dissemination4 = {
    .name = "dissemination4",
    .id = 120,
    .coll = COLLI_BARRIER,
    .when = "many ranks: log4(n) rounds of three notices",
    .source = "Hensgen, Finkel and Manber 1988; Hoefler, Mehlan, Mietke and Rehm 2006",
    .orders = COLLI_GIVES_ANY,
    .reach = COLLI_REACH_RING,
    .radix = 4,
    .nchunks = colli_nchunks_one,
    .emit = dissemination4_emit,
    .cost = dissemination4_cost,
};
