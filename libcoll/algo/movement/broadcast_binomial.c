/*
 * broadcast_binomial.c: in each round every rank that has the vector sends it to one that has not.
 *
 * Cost: ceil(log2(n)) (alpha + N beta) for N bytes. Wins for short vectors: the fewest rounds.
 * Source: Johnsson and Ho, "Optimum broadcasting and personalized communication in hypercubes",
 * IEEE Trans. Computers 38 (1989).
 *
 * 5 ranks, root 0 (other roots: ranks counted from the root on):
 *
 *            0
 *          / | \        sent in the order 4, 2, 1: the biggest subtree first
 *         4  2  1
 *            |
 *            3
 */
#include "libcoll/algo/emit.h"

static int binomial_nchunks(const colli_shape *shape) {
  (void)shape;
  return 1;
}

/* Emits the steps of a rank; `at` is its distance from the root. */
static void binomial_steps(colli_builder *builder, int n, int root, int at) {
  int span = 1; /* the subtree of `at` holds the distances below at + span */
  while (span < n && !(at & span))
    span *= 2;
  bool is_root = at == 0, first = true;
  int parent = is_root ? COLLI_NOBODY : (root + at - span) % n;
  unsigned arrive = is_root ? COLLI_STORE : COLLI_RECV | COLLI_STORE;
  colli_buf from = is_root ? COLLI_INPUT : COLLI_OUTPUT;
  for (int child = span / 2; child > 0; child /= 2) {
    if (at + child >= n)
      continue;
    int to = (root + at + child) % n;
    colli_way way = {first ? parent : COLLI_NOBODY, to, from, COLLI_OUTPUT};
    colli_emit(builder, 0, (first ? arrive : 0) | COLLI_SEND, way, 0);
    first = false;
  }
  if (first)
    colli_emit(builder, 0, arrive, (colli_way){parent, COLLI_NOBODY, from, COLLI_OUTPUT}, 0);
}

static coll_status binomial_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks;
  colli_builder *builder = colli_builder_create(shape, 1, 0, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  binomial_steps(builder, n, shape->root, (shape->rank - shape->root + n) % n);
  return colli_builder_finish(builder, sched);
}

/*
 * When the last rank gets its first slice. On the way from the root, each bit of a rank's distance
 * is either a hop, or a sibling that is served before. The path to the highest distance, n - 1, has
 * no such siblings; wherever another path leaves it, the subtrees below are full.
 */
static double deepest_cost(int n, const colli_terms *t) {
  double serve = t->slices * t->copy, level = serve > t->copy_hop ? serve : t->copy_hop;
  double along = 0, worst = 0;
  for (int j = colli_log2_up(n) - 1; j >= 0; j--) {
    if (!((n - 1) >> j & 1))
      continue;
    double leaves = j > 0 ? along + serve + t->copy_hop + (j - 1) * level : 0;
    worst = leaves > worst ? leaves : worst;
    along += t->copy_hop;
  }
  return along > worst ? along : worst;
}

static double binomial_cost(const colli_shape *shape, const colli_partition *partition,
                            size_t elem_bytes, const colli_model *model) {
  colli_terms t = colli_terms_make(partition, elem_bytes, model);
  double rounds = colli_log2_up(shape->nranks), n = shape->nranks;
  if (shape->nranks == 1)
    return colli_cost_alone(partition, &t);
  double first = deepest_cost(shape->nranks, &t) + (t.slices - 1) * t.copy + model->step_ns;
  double later = rounds * t.slices * t.copy;
  colli_work work = {
      .steps = 2 * (n - 1) / n, .received = (n - 1) / n, .waits = (n - 1) / n, .reduced = 0};
  return colli_cost_bound(first + (t.passes - 1) * later, work, &t, model);
}

const colli_algo colli_broadcast_binomial = {
    .name = "binomial",
    .id = 5,
    .coll = COLLI_BROADCAST,
    .when = "short vectors: log2(n) rounds",
    .source = "Johnsson and Ho 1989",
    .orders = COLLI_GIVES_ANY,
    .pipelined = false,
    .reach = COLLI_REACH_TREE,
    .radix = 2,
    .nchunks = binomial_nchunks,
    .emit = binomial_emit,
    .cost = binomial_cost,
};
