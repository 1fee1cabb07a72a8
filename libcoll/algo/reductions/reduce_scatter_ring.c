/*
 * reduce_scatter_ring.c: every block goes once round the ring and is reduced on its way, so that it
 * is complete where it belongs.
 *
 * Cost: (n-1) (alpha + N/n beta + N/n gamma) for N bytes in all. No algorithm moves fewer bytes,
 * and every rank talks to two others only. Wins for long vectors. Source: Patarasuk and Yuan,
 * "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69 (2009).
 *
 * 5 ranks: block 4 starts at rank 0, and each rank adds its own part:
 *
 *     0 --> 1 --> 2 --> 3 --> 4
 *     x0   +x1   +x2   +x3   +x4
 *
 * The other blocks start one rank further on, so that all links work all the time.
 */
#include "libcoll/algo/timeline.h"

/* Emits the steps of one rank of several. */
static void ring_steps(colli_builder *builder, int n, int rank) {
  int next = (rank + 1) % n, last = (rank + n - 1) % n;
  colli_emit(builder, 0, COLLI_SEND, (colli_way){COLLI_NOBODY, next, COLLI_INPUT, COLLI_INPUT},
             last);
  for (int hop = 2; hop < n; hop++)
    colli_emit(builder, 0, COLLI_RECV | COLLI_FOLD | COLLI_SEND,
               (colli_way){last, next, COLLI_INPUT, COLLI_INPUT}, (rank + n - hop) % n);
  colli_emit(builder, 0, COLLI_RECV | COLLI_FOLD | COLLI_FINAL | COLLI_STORE,
             (colli_way){last, COLLI_NOBODY, COLLI_INPUT, COLLI_OUTPUT}, rank);
}

static coll_status ring_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks;
  colli_builder *builder = colli_builder_create(shape, n, 0, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  if (n == 1)
    colli_emit_alone(builder, shape->coll, 1);
  else
    ring_steps(builder, n, shape->rank);
  return colli_builder_finish(builder, sched);
}

/* One pass of any rank. */
static void ring_pass(colli_timeline *at, const colli_shape *shape, const void *ctx) {
  (void)ctx;
  colli_flight flight = colli_timeline_send(at);
  for (int hop = 2; hop < shape->nranks; hop++)
    flight = colli_timeline_fold_forward(at, flight);
  colli_timeline_fold(at, flight);
}

static double ring_cost(const colli_shape *shape, const colli_partition *partition,
                        size_t elem_bytes, const colli_model *model) {
  double hops = shape->nranks - 1;
  colli_work work = {.steps = hops + 1, .received = hops, .waits = hops, .reduced = hops};
  return colli_timeline_cost(shape, partition, elem_bytes, model, work, ring_pass, NULL);
}

const colli_algo colli_reduce_scatter_ring = {
    .name = "ring",
    .id = 60,
    .coll = COLLI_REDUCE_SCATTER,
    .when = "long vectors: moves the fewest bytes, between neighbours only",
    .source = "Patarasuk and Yuan 2009",
    .orders = COLLI_GIVES_ANY,
    .varying = true,
    .pipelined = false,
    .reach = COLLI_REACH_RING,
    .nchunks = colli_nchunks_blocks,
    .emit = ring_emit,
    .cost = ring_cost,
};
