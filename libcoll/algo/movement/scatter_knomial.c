/*
 * scatter_knomial.c: blocks go down a k-nomial tree. Ranks are counted from the root on and written
 * in digits of base k; a rank's parent has its lowest digit that is not 0 set to 0. The blocks that
 * go farthest are sent first; each rank forwards the blocks of others as they arrive.
 *
 * Cost: about ceil(logk n) alpha + (n-1) m beta for blocks of m bytes. A block travels up to
 * ceil(logk n) times, but the root has only (k-1) ceil(logk n) partners. Wins on many ranks where
 * connections are expensive. Source: Chan, Heimlich, Purkayastha and van de Geijn, "Collective
 * communication: theory, practice and experience", CCPE 19 (2007): minimum spanning tree scatter;
 * here with a radix.
 *
 * 5 ranks, root 0, radix 2 (left) and 4 (right):
 *
 *            0                0
 *          / | \          / / | \
 *         4  2  1        4  3 2  1
 *            |
 *            3           blocks leave the root in the order 4, 3, 2, 1
 */
#include "libcoll/algo/tree.h"

/* Emits the steps of a rank; `at` is its distance from the root. */
static void knomial_steps(colli_builder *builder, const colli_shape *shape, int at, int radix) {
  int n = shape->nranks, root = shape->root;
  int parent = at ? (root + colli_knomial_parent(n, at, radix)) % n : COLLI_NOBODY;
  colli_buf have = at ? COLLI_SCRATCH : COLLI_INPUT;
  for (int below = at + colli_knomial_size(n, at, radix) - 1; below > at; below--) {
    int to = (root + colli_knomial_towards(at, below, radix)) % n;
    colli_emit(builder, 0, COLLI_SEND | (at ? COLLI_RECV | COLLI_STORE : 0),
               (colli_way){parent, to, have, have}, (root + below) % n);
  }
  colli_emit(builder, 0, COLLI_STORE | (at ? COLLI_RECV : 0),
             (colli_way){parent, COLLI_NOBODY, at ? COLLI_OUTPUT : COLLI_INPUT, COLLI_OUTPUT},
             shape->rank);
}

static coll_status knomial_emit(const colli_shape *shape, int radix, colli_sched **sched) {
  int n = shape->nranks, at = (shape->rank - shape->root + n) % n;
  bool relays = at > 0 && colli_knomial_size(n, at, radix) > 1;
  colli_builder *builder = colli_builder_create(shape, n, relays ? n : 0, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  knomial_steps(builder, shape, at, radix);
  return colli_builder_finish(builder, sched);
}

/* The number of hops of a block: the digits that are not 0. */
static int depth_of(int at, int radix) {
  int depth = 0;
  for (; at > 0; at /= radix)
    depth += at % radix != 0;
  return depth;
}

static double knomial_cost(const colli_shape *shape, int radix, const colli_partition *partition,
                           size_t elem_bytes, const colli_model *model) {
  colli_terms t = colli_terms_make(partition, elem_bytes, model);
  colli_timeline root = colli_timeline_make(&t, model);
  int n = shape->nranks;
  if (n == 1)
    return colli_cost_alone(partition, &t);
  double last = 0, hops = 0;
  for (int at = n - 1; at > 0; at--) {
    int depth = depth_of(at, radix);
    double arrives = colli_timeline_send(&root).last + (depth - 1) * t.copy_hop + root.step;
    last = arrives > last ? arrives : last;
    hops += depth;
  }
  double sent = root.out;
  colli_timeline_copy(&root);
  last = root.now > last ? root.now : last;
  double later = root.now > sent ? root.now : sent; /* the root's work or its way out */
  /* A rank waits for its first message; the others follow closely. */
  colli_work work = {
      .steps = (hops + n) / n, .received = hops / n, .waits = (n - 1.0) / n, .reduced = 1.0 / n};
  return colli_cost_bound(last + (t.passes - 1) * later, work, &t, model);
}

/* Where links differ, it counts as a TREE, and gather_knomial.c, which says why, as a LINE. */
COLLI_KNOMIAL_FUNCTIONS(binomial, 2)
COLLI_KNOMIAL_FUNCTIONS(knomial4, 4)

const colli_algo colli_scatter_binomial = {
    .name = "binomial",
    .id = 91,
    .coll = COLLI_SCATTER,
    .when = "short blocks on many ranks: the root has log2(n) partners",
    .source = "Chan, Heimlich, Purkayastha and van de Geijn 2007",
    .orders = COLLI_GIVES_ANY,
    .ranks_min = 5, /* of up to 4 direct's root has at most 3 partners, and nobody relays */
    .reach = COLLI_REACH_TREE,
    .radix = 2,
    .longer = 1,
    .nchunks = colli_nchunks_blocks,
    .emit = binomial_emit,
    .cost = binomial_cost,
};

const colli_algo colli_scatter_knomial4 = {
    .name = "knomial4",
    .id = 92,
    .coll = COLLI_SCATTER,
    .when = "short blocks on many ranks: half the way of binomial, more partners",
    .source = "Chan, Heimlich, Purkayastha and van de Geijn 2007",
    .orders = COLLI_GIVES_ANY,
    .ranks_min = 5, /* of up to 4 it is direct in another order */
    .reach = COLLI_REACH_TREE,
    .radix = 4,
    .longer = 1,
    .nchunks = colli_nchunks_blocks,
    .emit = knomial4_emit,
    .cost = knomial4_cost,
};
