/*
 * reduce_scatter_pairwise.c: in round k each rank sends the block of the rank k further on straight
 * to it, and reduces what comes from the rank k before.
 *
 * Cost: (n-1) (alpha + N/n beta + N/n gamma) for N bytes in all. As many bytes as the ring, but
 * nothing waits for a chain of other ranks: wins where ranks come late or at differing speed.
 * Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
 * MPICH", IJHPCA 19 (2005).
 *
 * 5 ranks: whom rank 2 sends to, and whom it receives from:
 *
 *     round 1:  2 --> 3    1 --> 2        own block: x2 + x1
 *     round 2:  2 --> 4    0 --> 2                   + x0
 *     round 3:  2 --> 0    4 --> 2                   + x4
 *     round 4:  2 --> 1    3 --> 2                   + x3
 */
#include "libcoll/algo/timeline.h"

/* Emits the steps of one rank of several. */
static void pairwise_steps(colli_builder *builder, int n, int rank) {
  for (int k = 1; k < n; k++) {
    int to = (rank + k) % n, from = (rank + n - k) % n;
    colli_emit(builder, 0, COLLI_SEND, (colli_way){COLLI_NOBODY, to, COLLI_INPUT, COLLI_INPUT}, to);
    colli_emit(builder, 0, COLLI_RECV | COLLI_FOLD | COLLI_STORE | (k == n - 1 ? COLLI_FINAL : 0),
               (colli_way){from, COLLI_NOBODY, k == 1 ? COLLI_INPUT : COLLI_OUTPUT, COLLI_OUTPUT},
               rank);
  }
}

static coll_status pairwise_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks;
  colli_builder *builder = colli_builder_create(shape, n, 0, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  if (n == 1)
    colli_emit_alone(builder, shape->coll, 1);
  else
    pairwise_steps(builder, n, shape->rank);
  return colli_builder_finish(builder, sched);
}

/* One pass of any rank. */
static void pairwise_pass(colli_timeline *at, const colli_shape *shape, const void *ctx) {
  (void)ctx;
  for (int k = 1; k < shape->nranks; k++)
    colli_timeline_fold(at, colli_timeline_send(at));
}

static double pairwise_cost(const colli_shape *shape, const colli_partition *partition,
                            size_t elem_bytes, const colli_model *model) {
  double peers = shape->nranks - 1;
  colli_work work = {.steps = 2 * peers, .received = peers, .waits = peers, .reduced = peers};
  return colli_timeline_cost(shape, partition, elem_bytes, model, work, pairwise_pass, NULL);
}

const colli_algo colli_reduce_scatter_pairwise = {
    .name = "pairwise",
    .id = 61,
    .coll = COLLI_REDUCE_SCATTER,
    .when = "long vectors where ranks come at differing times",
    .source = "Thakur, Rabenseifner and Gropp 2005",
    .orders = COLLI_GIVES_ANY,
    .varying = true,
    .pipelined = false,
    .reach = COLLI_REACH_TURNS,
    .nchunks = colli_nchunks_blocks,
    .emit = pairwise_emit,
    .cost = pairwise_cost,
};
