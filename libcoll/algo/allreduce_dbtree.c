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
#include "libcoll/algo/emit.h"

typedef struct node {
  int parent;   /* -1: the root */
  int child[2]; /* -1: none; a single child is child[0] */
} node;

/*
 * Rank r's place in tree A. Below a rank whose lowest set bit is b lie the ranks within b - 1 of it
 * on both sides; where the upper half is cut off at n, the biggest subtree that is left moves up.
 */
static node tree_a(int n, int r) {
  node found = {-1, {-1, -1}};
  int b = 1, children = 0;
  while (b < n && !(r & b))
    b <<= 1;
  if (r != 0) {
    found.parent = (r - b) | (b << 1);
    if (found.parent >= n)
      found.parent = r - b;
    if (b > 1)
      found.child[children++] = r - b / 2;
  }
  for (int half = b / 2; half > 0; half /= 2) {
    if (r + half < n) {
      found.child[children] = r + half;
      break;
    }
  }
  return found;
}

/* The rank that takes rank r's place when tree A becomes tree B (and back, with back set). */
static int moved(int n, int r, bool back) {
  if (n % 2 == 0)
    return n - 1 - r;
  return (r + (back ? n - 1 : 1)) % n;
}

/* Rank r's place in tree B. */
static node tree_b(int n, int r) {
  node place = tree_a(n, moved(n, r, true));
  if (place.parent >= 0)
    place.parent = moved(n, place.parent, false);
  for (int i = 0; i < 2; i++)
    if (place.child[i] >= 0)
      place.child[i] = moved(n, place.child[i], false);
  return place;
}

/* Emits the way up: own value and the children's, to the parent. Returns the last step. */
static int emit_up(colli_builder *builder, const node *at, int lane, int chunk) {
  if (at->child[0] < 0)
    return colli_emit(builder, lane, COLLI_SEND,
                      (colli_way){COLLI_NOBODY, at->parent, COLLI_INPUT, COLLI_INPUT}, chunk);
  colli_buf have = COLLI_INPUT;
  int only = at->child[1] < 0;
  if (!only) {
    colli_emit(builder, lane, COLLI_RECV | COLLI_FOLD | COLLI_STORE,
               (colli_way){at->child[0], COLLI_NOBODY, COLLI_INPUT, COLLI_OUTPUT}, chunk);
    have = COLLI_OUTPUT;
  }
  unsigned bits = COLLI_RECV | COLLI_FOLD;
  bits |= at->parent < 0 ? COLLI_FINAL | COLLI_STORE : COLLI_SEND;
  return colli_emit(builder, lane, bits,
                    (colli_way){at->child[only ? 0 : 1], at->parent, have, COLLI_OUTPUT}, chunk);
}

/* Emits the way down: the result from the parent, to the children. Returns the first step. */
static int emit_down(colli_builder *builder, const node *at, int lane, int chunk) {
  int first = -1, next = 0;
  if (at->parent >= 0) {
    unsigned bits = COLLI_RECV | COLLI_STORE;
    if (at->child[0] >= 0)
      bits |= COLLI_SEND;
    first = colli_emit(builder, lane, bits,
                       (colli_way){at->parent, at->child[0], COLLI_OUTPUT, COLLI_OUTPUT}, chunk);
    next = 1;
  }
  for (; next < 2 && at->child[next] >= 0; next++) {
    int step =
        colli_emit(builder, lane, COLLI_SEND,
                   (colli_way){COLLI_NOBODY, at->child[next], COLLI_OUTPUT, COLLI_OUTPUT}, chunk);
    first = first < 0 ? step : first;
  }
  return first;
}

static int dbtree_nchunks(const colli_shape *shape) {
  (void)shape;
  return 2;
}

static coll_status dbtree_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks;
  colli_builder *builder = colli_builder_create(shape, 2, 0, 4);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  if (n == 1)
    colli_emit_alone(builder, shape->coll, 2);
  for (int tree = 0; tree < 2 && n > 1; tree++) {
    node at = tree == 0 ? tree_a(n, shape->rank) : tree_b(n, shape->rank);
    int up = emit_up(builder, &at, 2 * tree, tree);
    int down = emit_down(builder, &at, 2 * tree + 1, tree);
    colli_builder_dep(builder, down, up);
  }
  return colli_builder_finish(builder, sched);
}

static double dbtree_cost(const colli_shape *shape, const colli_partition *partition,
                          size_t elem_bytes, const colli_model *model) {
  colli_terms t = colli_terms_make(partition, elem_bytes, model);
  if (shape->nranks == 1)
    return colli_cost_alone(partition, &t);
  /* A level of the tree: the slices of the first child come before those of the second one. */
  double whole = shape->nranks > 3 ? t.slices : shape->nranks > 2 ? t.slices - 1 : 0;
  double levels = colli_log2_up(shape->nranks) - 1;
  double up = t.reduce_hop + whole * t.reduce;
  double down = t.copy_hop + whole * t.copy;
  double first = 2 * t.copy_hop + levels * (up + down) + t.slices * t.reduce +
                 (t.slices - 1) * t.copy + model->step_ns;
  /* What the busiest rank does in a pass, in both trees together. */
  colli_work most = {.steps = shape->nranks > 3 ? 6 : 4, .reduced = shape->nranks > 2 ? 2 : 1};
  double sent = shape->nranks > 3 ? 4 : shape->nranks;
  double steps =
      most.steps * t.slices * model->step_ns + most.reduced * t.bytes * model->gamma_ns_per_byte;
  double links = sent * t.bytes * model->beta_ns_per_byte;
  double pass = steps > links ? steps : links;
  double n = shape->nranks, moves = 4 * (n - 1) / n;
  colli_work work = {
      .steps = 1.5 * moves, .received = moves, .waits = 0.75 * moves, .reduced = moves / 2};
  double critical = first > pass ? first : pass;
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
    .nchunks = dbtree_nchunks,
    .emit = dbtree_emit,
    .cost = dbtree_cost,
};
