/*
 * allreduce_direct.c: every rank sends its vector to all others at once, and reduces all of them in
 * rank order, so that all form the same expression.
 *
 * Cost: alpha + (n-1) (N beta + N gamma) for N bytes. Wins for short vectors on few ranks, where
 * one round is better than log2(n), most of all if ranks share cores and a round costs a change of
 * ranks. Every pair of ranks needs a connection, so with many ranks it runs only if asked for.
 * Source: folklore; "linear" in Thakur, Rabenseifner and Gropp 2005.
 *
 * 5 ranks: one round, 20 messages; rank 2 for example:
 *
 *     0 --.           .--> 0
 *     1 --+--> 2      +--> 1       scratch = v0; scratch op= v1; scratch op= own;
 *     3 --+      2 ---+--> 3       output = scratch op v3; output op= v4
 *     4 --'           '--> 4
 */
#include "libcoll/algo/timeline.h"

/* Emits the reduction of this rank and those below it; returns where the result is. */
static colli_buf emit_prefix(colli_builder *builder, int n, int rank) {
  unsigned bits = COLLI_RECV | COLLI_FOLD | COLLI_STORE;
  if (rank == 0)
    return COLLI_INPUT;
  if (rank == 1) {
    unsigned final = n == 2 ? COLLI_FINAL : 0;
    colli_emit(builder, 0, bits | COLLI_MSG_LEFT | final,
               (colli_way){0, COLLI_NOBODY, COLLI_INPUT, COLLI_OUTPUT}, 0);
    return COLLI_OUTPUT;
  }
  colli_emit(builder, 0, COLLI_RECV | COLLI_STORE,
             (colli_way){0, COLLI_NOBODY, COLLI_SCRATCH, COLLI_SCRATCH}, 0);
  for (int peer = 1; peer < rank; peer++)
    colli_emit(builder, 0, bits, (colli_way){peer, COLLI_NOBODY, COLLI_SCRATCH, COLLI_SCRATCH}, 0);
  unsigned final = rank == n - 1 ? COLLI_FINAL : 0;
  colli_emit(builder, 0, COLLI_FOLD | COLLI_STORE | final,
             (colli_way){COLLI_NOBODY, COLLI_NOBODY, COLLI_INPUT, COLLI_SCRATCH}, 0);
  return COLLI_SCRATCH;
}

/* Emits the steps of one rank of several. */
static void direct_steps(colli_builder *builder, int n, int rank) {
  /* Sends downwards, so that most ranks get the values of the lowest ranks, which they need first,
   * early. */
  for (int i = 1; i < n; i++)
    colli_emit(builder, 0, COLLI_SEND,
               (colli_way){COLLI_NOBODY, (rank + n - i) % n, COLLI_INPUT, COLLI_INPUT}, 0);
  colli_buf have = emit_prefix(builder, n, rank);
  for (int peer = rank + 1; peer < n; peer++) {
    unsigned final = peer == n - 1 ? COLLI_FINAL : 0;
    colli_emit(builder, 0, COLLI_RECV | COLLI_FOLD | COLLI_STORE | final,
               (colli_way){peer, COLLI_NOBODY, have, COLLI_OUTPUT}, 0);
    have = COLLI_OUTPUT;
  }
  if (have == COLLI_SCRATCH)
    colli_emit(builder, 0, COLLI_STORE,
               (colli_way){COLLI_NOBODY, COLLI_NOBODY, COLLI_SCRATCH, COLLI_OUTPUT}, 0);
}

static int direct_nchunks(const colli_shape *shape) {
  (void)shape;
  return 1;
}

static coll_status direct_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks;
  colli_builder *builder = colli_builder_create(shape, 1, shape->rank >= 2, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  if (n == 1)
    colli_emit_alone(builder, shape->coll, 1);
  else
    direct_steps(builder, n, shape->rank);
  return colli_builder_finish(builder, sched);
}

/* One pass of the ranks that may end last: rank 1 is the last to get the value that it needs first,
 * and the last rank must reduce and copy its own value. */
static void direct_pass(colli_timeline *at, const colli_shape *shape, const void *ctx) {
  colli_shape ordered = *shape;
  ordered.order = COLLI_ORDER_LEFT;
  (void)ctx;
  for (int i = 0; i < 2; i++)
    colli_timeline_combine(&at[i], &ordered, i == 0 ? 1 : shape->nranks - 1, true, false);
}

static double direct_cost(const colli_shape *shape, const colli_partition *partition,
                          size_t elem_bytes, const colli_model *model) {
  double peers = shape->nranks - 1;
  colli_work work = {.steps = 2 * peers + 1, .received = peers, .waits = 1, .reduced = peers};
  return colli_timeline_cost(shape, partition, elem_bytes, model, work, direct_pass, NULL);
}

const colli_algo colli_allreduce_direct = {
    .name = "direct",
    .id = 2,
    .coll = COLLI_ALLREDUCE,
    .when = "the shortest vectors on few ranks: one round, everybody to everybody",
    .source = "folklore; see Thakur, Rabenseifner and Gropp 2005",
    .orders = COLLI_GIVES_LEFT,
    .pipelined = false,
    .exchanges = true,
    .ranks_max = 16,
    .reach = COLLI_REACH_ALL,
    .nchunks = direct_nchunks,
    .emit = direct_emit,
    .cost = direct_cost,
};
