/*
 * allreduce_ring.c: each chunk goes round the ring twice, first to be reduced, then to be
 * distributed.
 *
 * Cost: 2 (n-1) alpha + 2 (n-1)/n N beta + (n-1)/n N gamma for N bytes on n ranks. No algorithm
 * moves fewer bytes, so it wins for long vectors; its 2 (n-1) hops lose for short ones.
 * Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
 * workstations", JPDC 69 (2009).
 *
 * 5 ranks: who holds which part of chunk 0 after each hop (hops 1-4 reduce, 5-8 hand out):
 *
 *     0 --> 1 --> 2 --> 3 --> 4      hop 1: rank 1 has 01      hop 5: rank 0 has 01234
 *     ^                       |      hop 2: rank 2 has 012     hop 6: rank 1
 *     +-----------------------+      hop 3: rank 3 has 0123    hop 7: rank 2
 *                                    hop 4: rank 4 has 01234   hop 8: rank 3
 *
 * The other chunks start one rank further on, so that all links work all the time.
 */
#include "libcoll/algo/emit.h"

/* One chunk for each rank. */
static int ring_nchunks(const colli_shape *shape) {
  return shape->nranks;
}

/* Emits the steps of one rank. */
static void ring_steps(colli_builder *builder, int n, int rank) {
  int next = (rank + 1) % n, last = (rank + n - 1) % n;
  colli_emit(builder, 0, COLLI_SEND, (colli_way){COLLI_NOBODY, next, COLLI_INPUT, COLLI_INPUT},
             rank);
  for (int hop = 1; hop < 2 * n - 1; hop++) {
    int chunk = (rank + 2 * n - hop) % n;
    unsigned bits = COLLI_RECV;
    bits |= hop < n ? COLLI_FOLD : COLLI_STORE;
    if (hop == n - 1)
      bits |= COLLI_FINAL | COLLI_STORE;
    if (hop < 2 * n - 2)
      bits |= COLLI_SEND;
    int to = bits & COLLI_SEND ? next : COLLI_NOBODY;
    colli_emit(builder, 0, bits, (colli_way){last, to, COLLI_INPUT, COLLI_OUTPUT}, chunk);
  }
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

static double ring_cost(const colli_shape *shape, const colli_partition *partition,
                        size_t elem_bytes, const colli_model *model) {
  colli_terms t = colli_terms_make(partition, elem_bytes, model);
  double hops = shape->nranks - 1;
  if (hops == 0)
    return colli_cost_alone(partition, &t);
  double pass = t.copy_hop + hops * colli_stage(&t, t.reduce, t.reduce_hop) +
                (hops - 1) * colli_stage(&t, t.copy, t.copy_hop) + (t.slices - 1) * t.copy +
                model->step_ns;
  colli_work work = {
      .steps = 2 * hops + 1, .received = 2 * hops, .waits = 2 * hops, .reduced = hops};
  return colli_cost_bound(t.passes * pass, work, &t, model);
}

const colli_algo colli_allreduce_ring = {
    .name = "ring",
    .id = 4,
    .coll = COLLI_ALLREDUCE,
    .when = "long vectors: moves the fewest bytes, in 2(n-1) hops",
    .source = "Patarasuk and Yuan 2009",
    .orders = COLLI_GIVES_ANY,
    .pipelined = false,
    .ranks_min = 3,    /* two ranks exchange as many bytes in one round with recdbl ... */
    .ranks_remote = 2, /* ... but reduce twice as many, which costs less than one more round where
                        * ranks share memory */
    .reach = COLLI_REACH_RING,
    .nchunks = ring_nchunks,
    .emit = ring_emit,
    .cost = ring_cost,
};
