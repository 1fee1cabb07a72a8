/*
 * reduce_chain.c: one rank after the other adds its part; passes follow each other closely.
 *
 * Cost: (n-1) (alpha + C (beta + gamma)) + N max(beta, gamma) for N bytes in chunks of C bytes.
 * Wins for long vectors: every rank sends and reduces each byte once, all at the same time. Source:
 * van de Geijn and Watts, "SUMMA: scalable universal matrix multiplication algorithm", CCPE 9
 * (1997): the pipelined chain; here with reductions.
 *
 * 5 ranks, root 1. Left: the chain begins behind the root, in no fixed order. Right: from left to
 * right it begins at rank 0, and the last rank sends the result to the root.
 *
 *     2 --> 3 --> 4 --> 0 --> 1          0 --> 1 --> 2 --> 3 --> 4
 *                                              ^                 |
 *                                              +-----------------+
 *
 * On the right, in one lane, the root would wait for each result before it passes the next chunk
 * on. So results travel in a lane of their own. The last rank hands them over through scratch,
 * which holds two chunks: while one is sent, the other is reduced. Lanes: 0 chain, 1 results.
 */
#include "libcoll/algo/timeline.h"

/* Whether the chain ends at another rank than the root, so that the result must be sent to it. */
static bool goes_back(const colli_shape *shape) {
  return shape->order != COLLI_ORDER_ANY && shape->root != shape->nranks - 1;
}

static int chain_nchunks(const colli_shape *shape) {
  return goes_back(shape) ? 2 : 1;
}

/* Emits a rank's link of the chain. At an end that is not the root the result goes to scratch. */
static int emit_link(colli_builder *builder, const colli_shape *shape, int chunk) {
  int n = shape->nranks, rank = shape->rank;
  bool back = goes_back(shape);
  int first = back ? 0 : (shape->root + 1) % n, end = (first + n - 1) % n;
  colli_way way = {(rank + n - 1) % n, (rank + 1) % n, COLLI_INPUT, COLLI_OUTPUT};
  unsigned bits = COLLI_RECV | COLLI_FOLD | COLLI_MSG_LEFT | COLLI_SEND;
  if (rank == first) {
    way.from = COLLI_NOBODY;
    bits = COLLI_SEND;
  } else if (rank == end) {
    way.to = COLLI_NOBODY;
    way.dst = back ? COLLI_SCRATCH : COLLI_OUTPUT;
    bits = COLLI_RECV | COLLI_FOLD | COLLI_MSG_LEFT | COLLI_FINAL | COLLI_STORE;
  }
  return colli_emit(builder, 0, bits, way, chunk);
}

/* Emits the transfer of the results to the root, for the two ranks involved. link: the rank's part
 * of the chain. */
static void emit_back(colli_builder *builder, const colli_shape *shape) {
  bool root = shape->rank == shape->root;
  int before = -1;
  for (int chunk = 0; chunk < 2; chunk++) {
    int link = emit_link(builder, shape, chunk);
    /* The second chunk waits until the first is sent, and so does the first chunk of the next pass;
     * its second chunk comes after the next send, which follows this one. */
    if (before >= 0 && !root)
      colli_builder_dep(builder, link, before);
    unsigned bits = root ? COLLI_RECV | COLLI_STORE : COLLI_SEND;
    colli_way way = {root ? shape->nranks - 1 : COLLI_NOBODY, root ? COLLI_NOBODY : shape->root,
                     COLLI_SCRATCH, COLLI_OUTPUT};
    before = colli_emit(builder, 1, bits, way, chunk);
    colli_builder_dep(builder, before, link);
  }
}

static coll_status chain_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks, rank = shape->rank;
  bool back = goes_back(shape), ends = rank == n - 1;
  colli_builder *builder =
      colli_builder_create(shape, back ? 2 : 1, back && ends ? 2 : 0, back ? 2 : 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  if (n == 1)
    colli_emit_alone(builder, shape->coll, 1);
  else if (back && (ends || rank == shape->root))
    emit_back(builder, shape);
  else
    for (int chunk = 0; chunk < (back ? 2 : 1); chunk++)
      emit_link(builder, shape, chunk);
  return colli_builder_finish(builder, sched);
}

/* The first pass, rank by rank; its time. */
static double first_pass(const colli_shape *shape, const colli_timeline *fresh, int chunks) {
  colli_flight in[2];
  colli_timeline at = *fresh;
  for (int c = 0; c < chunks; c++)
    in[c] = colli_timeline_send(&at);
  for (int hop = 2; hop < shape->nranks; hop++) {
    at = *fresh;
    for (int c = 0; c < chunks; c++)
      in[c] = colli_timeline_fold_forward(&at, in[c]);
  }
  at = *fresh;
  for (int c = 0; c < chunks; c++) {
    colli_timeline_fold(&at, in[c]);
    if (goes_back(shape))
      in[c] = colli_timeline_send(&at);
  }
  if (!goes_back(shape))
    return at.now;
  at = *fresh;
  for (int c = 0; c < chunks; c++)
    colli_timeline_receive(&at, in[c]);
  return at.now;
}

static double chain_cost(const colli_shape *shape, const colli_partition *partition,
                         size_t elem_bytes, const colli_model *model) {
  colli_terms t = colli_terms_make(partition, elem_bytes, model);
  if (shape->nranks == 1)
    return colli_cost_alone(partition, &t);
  colli_timeline fresh = colli_timeline_make(&t, model);
  bool back = goes_back(shape);
  int full = (int)(t.filled * partition->nchunks + 0.5);
  double pace = t.work_reduce + (back ? model->step_ns : 0);
  if (pace < t.copy)
    pace = t.copy;
  double critical = first_pass(shape, &fresh, full) + (t.passes - 1) * full * t.slices * pace;
  double n = shape->nranks, each = (n - 1) / n;
  colli_work work = {.steps = full * (1 + (back ? 2 / n : 0)),
                     .received = full * (each + (back ? 1 / n : 0)),
                     .waits = full * each,
                     .reduced = full * each};
  return colli_cost_bound(critical, work, &t, model);
}

const colli_algo colli_reduce_chain = {
    .name = "chain",
    .id = 23,
    .coll = COLLI_REDUCE,
    .when = "long vectors: each link carries every byte once, all at the same time",
    .source = "van de Geijn and Watts 1997",
    .orders = COLLI_GIVES_LEFT,
    .pipelined = true,
    .reach = COLLI_REACH_RING,
    .nchunks = chain_nchunks,
    .emit = chain_emit,
    .cost = chain_cost,
};
