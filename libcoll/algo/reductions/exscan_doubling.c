/*
 * exscan_doubling.c: first each rank sends its own part to the next rank. Then all ranks but the
 * first scan these parts: in round k each sends its reduction, of 2^k parts, to the rank 2^k
 * further on, which puts it before its own.
 *
 * Cost: (1 + ceil(log2(n-1))) (alpha + N beta + N gamma) for N bytes. Wins for short vectors: the
 * fewest rounds. Ranks are combined in rank order, but not from left to right.
 * Source: Hillis and Steele, "Data parallel algorithms", CACM 29 (1986); with a shift first.
 *
 * 5 ranks: which ranks' parts each has after each round:
 *
 *               0    1    2    3    4
 *     shift:    -    0    1    2    3        from the rank before
 *     round 0:  -    0   0-1  1-2  2-3       from the rank before
 *     round 1:  -    0   0-1  0-2  0-3       from the second before
 */
#include "libcoll/algo/timeline.h"

/* Emits the steps of one rank. */
static void doubling_steps(colli_builder *builder, int n, int rank) {
  int to = rank + 1 < n ? rank + 1 : COLLI_NOBODY;
  if (to != COLLI_NOBODY)
    colli_emit(builder, 0, COLLI_SEND, (colli_way){COLLI_NOBODY, to, COLLI_INPUT, COLLI_INPUT}, 0);
  if (rank == 0)
    return;
  colli_emit(builder, 0, COLLI_RECV | COLLI_STORE | (to != COLLI_NOBODY ? COLLI_SEND : 0),
             (colli_way){rank - 1, to, COLLI_OUTPUT, COLLI_OUTPUT}, 0);
  for (int distance = 1; distance < n - 1; distance *= 2) {
    int from = rank - 1 >= distance ? rank - distance : COLLI_NOBODY;
    unsigned bits = 0;
    to = 2 * distance < n - rank ? rank + 2 * distance : COLLI_NOBODY;
    if (from != COLLI_NOBODY)
      bits |= COLLI_RECV | COLLI_FOLD | COLLI_MSG_LEFT | COLLI_STORE;
    if (to != COLLI_NOBODY)
      bits |= COLLI_SEND;
    if (bits)
      colli_emit(builder, 0, bits, (colli_way){from, to, COLLI_OUTPUT, COLLI_OUTPUT}, 0);
  }
}

static coll_status doubling_emit(const colli_shape *shape, colli_sched **sched) {
  colli_builder *builder = colli_builder_create(shape, 1, 0, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  doubling_steps(builder, shape->nranks, shape->rank);
  return colli_builder_finish(builder, sched);
}

static double doubling_cost(const colli_shape *shape, const colli_partition *partition,
                            size_t elem_bytes, const colli_model *model) {
  int n = shape->nranks;
  double reduced = 0, share = (n - 1.0) / n;
  if (n == 1)
    return 0;
  for (int distance = 1; distance < n - 1; distance *= 2)
    reduced += (n - 1.0 - distance) / n;
  colli_work work = {.steps = reduced + 2 * share,
                     .received = reduced + share,
                     .waits = reduced + share,
                     .reduced = reduced};
  colli_terms t = colli_terms_make(partition, elem_bytes, model);
  double critical = colli_timeline_doubling(n, t.passes, colli_timeline_make(&t, model), true);
  return colli_cost_bound(critical, work, &t, model);
}

const colli_algo colli_exscan_doubling = {
    .name = "doubling",
    .id = 111,
    .coll = COLLI_EXSCAN,
    .when = "short vectors: 1 + log2(n) rounds",
    .source = "Hillis and Steele 1986",
    .orders = COLLI_GIVES_RANKS,
    .reach = COLLI_REACH_LINE,
    .radix = 2,
    .nchunks = colli_nchunks_one,
    .emit = doubling_emit,
    .cost = doubling_cost,
};
