/*
 * allreduce_rsag.c: reduce-scatter and all-gather, both direct. Every rank owns a chunk: it gets
 * all contributions to it from the other ranks, combines them in rank order, and sends the result
 * to all.
 *
 * Cost: 2 alpha + 2 (n-1)/n N beta + (n-1)/n N gamma for N bytes, and 3 (n-1) messages a rank. As
 * few bytes as the ring in two rounds, for any number of ranks and in any order of combination.
 * Wins for middle sizes, and for long vectors that must be combined in rank order. Every pair of
 * ranks needs a connection: beyond some ranks only taken if asked for.
 * Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
 * MPICH", IJHPCA 19 (2005): pairwise exchange for operations that do not commute.
 *
 * 5 ranks: the way of chunk 2; each of the other chunks goes the same way to and from its owner:
 *
 *     0 --.              .--> 0
 *     1 --+              +--> 1
 *         +--> 2   2 ----+
 *     3 --+              +--> 3
 *     4 --'              '--> 4
 */
#include "libcoll/algo/timeline.h"

/* Emits the steps of one rank of several. */
static void rsag_steps(colli_builder *builder, const colli_shape *shape) {
  int n = shape->nranks, rank = shape->rank;
  colli_emit_contribute(builder, shape, 0);
  colli_emit_combine(builder, shape, 0, true, (rank + n - 1) % n);
  for (int i = 2; i < n; i++)
    colli_emit(builder, 0, COLLI_SEND,
               (colli_way){COLLI_NOBODY, (rank + n - i) % n, COLLI_OUTPUT, COLLI_OUTPUT}, rank);
  for (int i = 1; i < n; i++)
    colli_emit(builder, 0, COLLI_RECV | COLLI_STORE,
               (colli_way){(rank + i) % n, COLLI_NOBODY, COLLI_OUTPUT, COLLI_OUTPUT},
               (rank + i) % n);
}

static coll_status rsag_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks;
  colli_builder *builder = colli_builder_create(shape, n, colli_combine_scratch(shape, true), 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  colli_builder_scratch_own(builder);
  if (n == 1)
    colli_emit_alone(builder, shape->coll, 1);
  else
    rsag_steps(builder, shape);
  return colli_builder_finish(builder, sched);
}

/* One pass of the ranks that end last. */
static void rsag_pass(colli_timeline *at, const colli_shape *shape, const void *ctx) {
  (void)ctx;
  int n = shape->nranks, owners = (int)(at->filled * n + 0.5);
  for (int i = 0; i < 2; i++) {
    colli_flight in = colli_timeline_combine(&at[i], shape,
                                             i == 0 ? 1 : colli_combine_busiest(shape), true, true);
    colli_timeline peer = at[i];
    for (int k = 2; k < n; k++)
      colli_timeline_send(&at[i]);
    /* What comes from the owners: it comes last to the rank that each of them serves last. */
    for (int k = 1; k < n; k++, in = colli_timeline_send(&peer))
      if (k >= n - owners)
        colli_timeline_receive(&at[i], in);
  }
}

static double rsag_cost(const colli_shape *shape, const colli_partition *partition,
                        size_t elem_bytes, const colli_model *model) {
  double peers = shape->nranks - 1, filled = colli_terms_make(partition, elem_bytes, model).filled;
  /* Owners wait for contributions, and all for results. */
  colli_work work = {
      .steps = 4 * peers, .received = 2 * peers, .waits = 1 + 1 / filled, .reduced = peers};
  return colli_timeline_cost(shape, partition, elem_bytes, model, work, rsag_pass, NULL);
}

const colli_algo colli_allreduce_rsag = {
    .name = "rsag",
    .id = 10,
    .coll = COLLI_ALLREDUCE,
    .when = "middle sizes, and long vectors combined in rank order: two rounds, the fewest bytes",
    .source = "Thakur, Rabenseifner and Gropp 2005",
    .orders = COLLI_GIVES_TREE | COLLI_GIVES_LEFT,
    .ranks_min = 3, /* two ranks exchange as many bytes in one round with recdbl */
    .ranks_max = 16,
    .reach = COLLI_REACH_ALL,
    .nchunks = colli_nchunks_blocks,
    .emit = rsag_emit,
    .cost = rsag_cost,
};
