/*
 * allreduce_dbtree.c: two binary trees over the same ranks, each for one half of the vector. Values
 * are reduced up the tree and the result comes down again; passes follow each other closely. Ranks
 * that are leaves in one tree are inner nodes in the other, so all links and ranks share the load.
 *
 * Cost: about 4 log2(n) (alpha + C (beta + gamma)) + 2 N beta + N gamma for N bytes in chunks of C
 * bytes. Wins in the middle: nearly the ring's bytes at a logarithmic number of hops.
 * Source: Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction
 * and scan", Parallel Computing 35 (2009).
 *
 * 5 ranks: tree A (chunk 0) and tree B (chunk 1; the same tree moved on by one rank):
 *
 *     0                1
 *     |                |
 *     4                0
 *     |                |
 *     2                3
 *    / \              / \
 *   1   3            2   4
 *
 * Even numbers of ranks take the mirror image (rank n-1-r in r's place) as tree B.
 * Lanes: 0 up A, 1 down A, 2 up B, 3 down B.
 */
#include "libcoll/algo/twotrees.h"

/* Lanes work far from each other on the vector, so what one has sent is no longer in a cache when
 * another one stores the result there, if it is longer than about this. */
#define CACHED_BYTES (16u << 20)

static int dbtree_nchunks(const colli_shape *shape) {
  (void)shape;
  return 2;
}

static coll_status dbtree_emit(const colli_shape *shape, colli_sched **sched) {
  colli_tree tree = {.nranks = shape->nranks};
  colli_builder *builder = colli_builder_create(shape, 2, 0, 4);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  if (shape->nranks == 1)
    colli_emit_alone(builder, shape->coll, 2);
  for (int which = 0; which < 2 && shape->nranks > 1; which++) {
    colli_node node;
    colli_twotrees[which](&tree, shape->rank, &node);
    int up = colli_tree_up(builder, &node, 2 * which, which, COLLI_INPUT, COLLI_OUTPUT);
    int down = colli_tree_down(builder, &node, 2 * which + 1, which, COLLI_OUTPUT);
    colli_builder_dep(builder, down, up);
  }
  return colli_builder_finish(builder, sched);
}

static double dbtree_cost(const colli_shape *shape, const colli_partition *partition,
                          size_t elem_bytes, const colli_model *model) {
  colli_terms t = colli_terms_make(partition, elem_bytes, model);
  if (shape->nranks == 1)
    return colli_cost_alone(partition, &t);
  /* Both trees have the same shape, and the inner ranks of one are leaves of the other. So if
   * chunks have many slices, it is enough to follow the first slice through a single tree. */
  const unsigned ways = COLLI_TREE_UP | COLLI_TREE_DOWN;
  const colli_tree tree = {.nranks = shape->nranks, .place = colli_twotrees[0]};
  const colli_tree other = {.nranks = shape->nranks, .place = colli_twotrees[1]};
  colli_work one; /* of one tree */
  double sending = 0;
  double first = colli_tree_first(shape, tree, ways, &t, model, NULL, &one);
  double thin = colli_twotrees_time(shape, &tree, &other, &t, model, &sending);
  /* The work of the busiest rank in a pass, in both trees together. */
  colli_work most = {.steps = shape->nranks > 3 ? 6 : 4, .reduced = shape->nranks > 2 ? 2 : 1};
  double steps =
      most.steps * t.slices * model->step_ns + most.reduced * t.bytes * model->gamma_ns_per_byte;
  double pass = steps > sending ? steps : sending;
  colli_work work = {2 * one.steps, 2 * one.received, 2 * one.waits, 2 * one.reduced};
  /* The first slice has been counted; all others, of both trees, pass through the busiest rank. */
  double shared = thin + pass * (t.slices - 1) / t.slices;
  double critical = first > shared ? first : shared;
  const double bytes = (double)partition->count * (double)elem_bytes;
  if (bytes > CACHED_BYTES)
    critical += bytes * model->gamma_ns_per_byte;
  return colli_cost_bound(critical + (t.passes - 1) * pass, work, &t, model);
}

const colli_algo colli_allreduce_dbtree = {
    .name = "dbtree",
    .id = 3,
    .coll = COLLI_ALLREDUCE,
    .when = "middle sizes on many ranks: logarithmic hops at nearly full bandwidth",
    .source = "Sanders, Speck and Traeff 2009",
    .orders = COLLI_GIVES_ANY,
    .pipelined = true,
    .ranks_min = 4, /* trees of fewer ranks are lines: the ring does it in fewer, longer messages */
    .ranks_remote = 2, /* but two that wait for sockets wait less often where lanes go one way */
    .reach = COLLI_REACH_KNOWN,
    .nchunks = dbtree_nchunks,
    .emit = dbtree_emit,
    .cost = dbtree_cost,
};
