/*
 * allgather_ring.c: every block goes once round the ring.
 *
 * Cost: (n-1) alpha + (n-1)/n N beta for N bytes in all. No algorithm moves fewer bytes.
 * Source: Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory, practice
 * and experience", CCPE 19 (2007).
 *
 * 5 ranks: block 0 goes 0 -> 1 -> 2 -> 3 -> 4 while block 1 goes 1 -> 2 -> 3 -> 4 -> 0, and so on:
 *
 *     0 --> 1 --> 2 --> 3 --> 4
 *     ^                       |
 *     +-----------------------+
 */
#include "libcoll/algo/timeline.h"

/* One block for each rank. */
static int ring_nchunks(const colli_shape *shape) {
  return shape->nranks;
}

static coll_status ring_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks, rank = shape->rank;
  int next = (rank + 1) % n, last = (rank + n - 1) % n;
  colli_builder *builder = colli_builder_create(shape, n, 0, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  if (n == 1)
    colli_emit_alone(builder, shape->coll, 1);
  else
    colli_emit(builder, 0, COLLI_SEND | COLLI_STORE,
               (colli_way){COLLI_NOBODY, next, COLLI_INPUT, COLLI_OUTPUT}, rank);
  for (int hop = 1; hop < n; hop++) {
    bool end = hop == n - 1;
    colli_emit(builder, 0, COLLI_RECV | COLLI_STORE | (end ? 0 : COLLI_SEND),
               (colli_way){last, end ? COLLI_NOBODY : next, COLLI_OUTPUT, COLLI_OUTPUT},
               (rank + n - hop) % n);
  }
  return colli_builder_finish(builder, sched);
}

/* One pass of any rank. */
static void ring_pass(colli_timeline *at, const colli_shape *shape, const void *ctx) {
  (void)ctx;
  colli_flight flight = colli_timeline_send(at);
  for (int hop = 2; hop < shape->nranks; hop++)
    flight = colli_timeline_forward(at, flight);
  colli_timeline_receive(at, flight);
}

static double ring_cost(const colli_shape *shape, const colli_partition *partition,
                        size_t elem_bytes, const colli_model *model) {
  double hops = shape->nranks - 1;
  colli_work work = {.steps = hops + 1, .received = hops, .waits = hops};
  return colli_timeline_cost(shape, partition, elem_bytes, model, work, ring_pass, NULL);
}

const colli_algo colli_allgather_ring = {
    .name = "ring",
    .id = 7,
    .coll = COLLI_ALLGATHER,
    .when = "all sizes: moves the fewest bytes",
    .source = "Chan, Heimlich, Purkayastha and van de Geijn 2007",
    .orders = COLLI_GIVES_ANY,
    .varying = true,
    .pipelined = false,
    .reach = COLLI_REACH_RING,
    .nchunks = ring_nchunks,
    .emit = ring_emit,
    .cost = ring_cost,
};
