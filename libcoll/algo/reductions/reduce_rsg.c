/*
 * reduce_rsg.c: reduce-scatter and gather, both direct. Every rank owns a chunk: it gets all
 * contributions to it from the other ranks, combines them in rank order, and sends the result to
 * the root.
 *
 * Cost: 2 alpha + 2 (n-1)/n N beta + (n-1)/n N gamma for N bytes. The reduction is shared out among
 * all ranks, in two rounds, for any number of ranks and in any order of combination. Wins for
 * middle sizes, and for long vectors that must be combined in a tree. Every pair of ranks needs a
 * connection, so with many ranks it runs only if asked for. Source: Rabenseifner, "Optimization of
 * collective reduction operations", ICCS 2004 (reduce-scatter and gather; here both are direct).
 *
 * 5 ranks, root 0: the way of chunk 2; each of the other chunks goes the same way to its owner:
 *
 *     0 --.
 *     1 --+
 *         +--> 2 ----> 0
 *     3 --+
 *     4 --'
 */
#include "libcoll/algo/timeline.h"

/* Emits the steps of one rank of several. */
static void rsg_steps(colli_builder *builder, const colli_shape *shape) {
  int n = shape->nranks, rank = shape->rank, root = shape->root;
  colli_emit_contribute(builder, shape, 0);
  colli_emit_combine(builder, shape, 0, rank == root, rank == root ? COLLI_NOBODY : root);
  /* In a fixed order, lower ranks wait longer for the contribution of rank 0. */
  for (int owner = n - 1; owner >= 0 && rank == root; owner--) {
    if (owner != root)
      colli_emit(builder, 0, COLLI_RECV | COLLI_STORE,
                 (colli_way){owner, COLLI_NOBODY, COLLI_OUTPUT, COLLI_OUTPUT}, owner);
  }
}

static coll_status rsg_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks, scratch = colli_combine_scratch(shape, shape->rank == shape->root);
  colli_builder *builder = colli_builder_create(shape, n, scratch, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  colli_builder_scratch_own(builder);
  if (n == 1)
    colli_emit_alone(builder, shape->coll, 1);
  else
    rsg_steps(builder, shape);
  return colli_builder_finish(builder, sched);
}

/* One pass of the root, at[0], and of three others: rank 1 and 2, and the last one. The ranks
 * between them begin like the last one. */
static void rsg_pass(colli_timeline *at, const colli_shape *shape, const void *ctx) {
  (void)ctx;
  int n = shape->nranks, root = shape->root, owners = (int)(at->filled * n + 0.5);
  int followed[] = {root, 1, n > 2 ? 2 : 1, n - 1};
  colli_timeline middle;
  colli_flight out[4];
  /* No rank gets far ahead of the root, because all need its contributions. */
  for (int i = 3; i >= 0; i--) {
    at[i].now = at[i].now > at[0].now ? at[i].now : at[0].now;
    middle = i == 3 ? at[i] : middle;
    if (i > 0 || root < owners)
      out[i] = colli_timeline_combine(&at[i], shape, followed[i], i == 0, i > 0);
  }
  for (int owner = owners - 1; owner >= 0; owner--) {
    colli_timeline one = middle;
    if (owner == root)
      continue;
    int known = owner == n - 1 ? 3 : owner == 1 || owner == 2 ? owner : 0;
    colli_timeline_receive(&at[0], known ? out[known]
                                         : colli_timeline_combine(&one, shape, owner, false, true));
  }
}

static double rsg_cost(const colli_shape *shape, const colli_partition *partition,
                       size_t elem_bytes, const colli_model *model) {
  double n = shape->nranks, peers = n - 1;
  colli_work work = {.steps = 2 * peers + 2 * peers / n,
                     .received = peers + peers / n,
                     .waits = 1 + 1 / (n * colli_terms_make(partition, elem_bytes, model).filled),
                     .reduced = peers};
  return colli_timeline_cost(shape, partition, elem_bytes, model, work, rsg_pass, NULL);
}

const colli_algo colli_reduce_rsg = {
    .name = "rsg",
    .id = 25,
    .coll = COLLI_REDUCE,
    .when = "middle sizes, and long vectors combined in a tree: all ranks share the reduction",
    .source = "Rabenseifner 2004",
    .orders = COLLI_GIVES_TREE | COLLI_GIVES_LEFT,
    .ranks_min = 3,
    .ranks_max = 16,
    .reach = COLLI_REACH_ALL,
    .nchunks = colli_nchunks_blocks,
    .emit = rsg_emit,
    .cost = rsg_cost,
};
