/*
 * scan_doubling.c: in round k each rank sends its reduction, of itself and the 2^k - 1 ranks before
 * it, to the rank 2^k further on, which puts it before its own.
 *
 * Cost: ceil(log2 n) (alpha + N beta + N gamma) for N bytes. Wins for short vectors: the fewest
 * rounds. Ranks are combined in rank order, but not from left to right.
 * Source: Hillis and Steele, "Data parallel algorithms", CACM 29 (1986).
 *
 * 5 ranks: which ranks' parts each has after each round:
 *
 *               0    1    2    3    4
 *     round 0:  0   0-1  1-2  2-3  3-4       from the rank before
 *     round 1:  0   0-1  0-2  0-3  1-4       from the second before
 *     round 2:  0   0-1  0-2  0-3  0-4       from the fourth before
 *
 * A reduction is stored and sent on to the next partner in the same pass over the data.
 */
#include "libcoll/algo/timeline.h"

/* Emits the steps of one rank of several. */
static void doubling_steps(colli_builder *builder, int n, int rank) {
  int to = rank + 1 < n ? rank + 1 : COLLI_NOBODY;
  colli_buf have = COLLI_INPUT;
  unsigned store = rank == 0 ? COLLI_STORE : 0;
  if (to != COLLI_NOBODY || store)
    colli_emit(builder, 0, store | (to != COLLI_NOBODY ? COLLI_SEND : 0),
               (colli_way){COLLI_NOBODY, to, COLLI_INPUT, COLLI_OUTPUT}, 0);
  for (int distance = 1; distance < n; distance *= 2) {
    int from = rank >= distance ? rank - distance : COLLI_NOBODY;
    unsigned bits = 0;
    to = 2 * distance < n - rank ? rank + 2 * distance : COLLI_NOBODY;
    if (from != COLLI_NOBODY)
      bits |= COLLI_RECV | COLLI_FOLD | COLLI_MSG_LEFT | COLLI_STORE;
    if (to != COLLI_NOBODY)
      bits |= COLLI_SEND;
    if (bits)
      colli_emit(builder, 0, bits, (colli_way){from, to, have, COLLI_OUTPUT}, 0);
    if (from != COLLI_NOBODY)
      have = COLLI_OUTPUT;
  }
}

static coll_status doubling_emit(const colli_shape *shape, colli_sched **sched) {
  colli_builder *builder = colli_builder_create(shape, 1, 0, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  if (shape->nranks == 1)
    colli_emit_alone(builder, shape->coll, 1);
  else
    doubling_steps(builder, shape->nranks, shape->rank);
  return colli_builder_finish(builder, sched);
}

static double doubling_cost(const colli_shape *shape, const colli_partition *partition,
                            size_t elem_bytes, const colli_model *model) {
  int n = shape->nranks;
  double messages = 0;
  for (int distance = 1; distance < n; distance *= 2)
    messages += (double)(n - distance) / n;
  colli_terms t = colli_terms_make(partition, elem_bytes, model);
  if (n == 1)
    return colli_cost_alone(partition, &t);
  colli_work work = {
      .steps = messages + 1, .received = messages, .waits = messages, .reduced = messages};
  double critical = colli_timeline_doubling(n, t.passes, colli_timeline_make(&t, model), false);
  return colli_cost_bound(critical, work, &t, model);
}

const colli_algo colli_scan_doubling = {
    .name = "doubling",
    .id = 101,
    .coll = COLLI_SCAN,
    .when = "short vectors: log2(n) rounds",
    .source = "Hillis and Steele 1986",
    .orders = COLLI_GIVES_RANKS,
    .reach = COLLI_REACH_LINE,
    .radix = 2,
    .nchunks = colli_nchunks_one,
    .emit = doubling_emit,
    .cost = doubling_cost,
};
