/*
 * gather_knomial.c: blocks go up a k-nomial tree. Ranks are counted from the root on and written in
 * digits of base k; a rank's parent has its lowest digit that is not 0 set to 0. Each rank sends
 * its own block and then those of its subtrees as they arrive, the smallest subtree first. The root
 * takes a block from each subtree in turn.
 *
 * Cost: about (k-1) ceil(logk n) alpha + (n-1) m beta for blocks of m bytes. A block travels up to
 * ceil(logk n) times, but the root has few partners. Wins for short blocks on many ranks. Source:
 * Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory, practice and
 * experience", CCPE 19 (2007): minimum spanning tree gather; here with a radix.
 *
 * 5 ranks, root 0, radix 2 (left) and 4 (right):
 *
 *            0                0
 *          / | \          / / | \
 *         1  2  4        1  2 3  4
 *            |
 *            3
 */
#include <math.h>
#include <stdlib.h>

#include "libcoll/algo/tree.h"

/* The root's child after `child`, as a distance from the root; n or more if there is none. */
static int next_child(int child, int radix) {
  int span = 1;
  while (child / span >= radix)
    span *= radix;
  return child + span;
}

/* Emits the steps of the root. It takes a block from each child in turn, so that all of them keep
 * sending. */
static void root_steps(colli_builder *builder, const colli_shape *shape, int radix) {
  int n = shape->nranks, root = shape->root;
  colli_emit(builder, 0, COLLI_STORE,
             (colli_way){COLLI_NOBODY, COLLI_NOBODY, COLLI_INPUT, COLLI_OUTPUT}, root);
  for (int i = 0, left = n - 1; left > 0; i++)
    for (int child = 1; child < n; child = next_child(child, radix)) {
      if (i >= colli_knomial_size(n, child, radix))
        continue;
      left--;
      colli_emit(builder, 0, COLLI_RECV | COLLI_STORE,
                 (colli_way){(root + child) % n, COLLI_NOBODY, COLLI_OUTPUT, COLLI_OUTPUT},
                 (root + child + i) % n);
    }
}

/* Emits the steps of another rank; `at` is its distance from the root. */
static void knomial_steps(colli_builder *builder, const colli_shape *shape, int at, int radix) {
  int n = shape->nranks, root = shape->root,
      parent = (root + colli_knomial_parent(n, at, radix)) % n;
  colli_emit(builder, 0, COLLI_SEND, (colli_way){COLLI_NOBODY, parent, COLLI_INPUT, COLLI_INPUT},
             shape->rank);
  for (int below = at + 1; below < at + colli_knomial_size(n, at, radix); below++) {
    int from = (root + colli_knomial_towards(at, below, radix)) % n;
    colli_emit(builder, 0, COLLI_RECV | COLLI_STORE | COLLI_SEND,
               (colli_way){from, parent, COLLI_SCRATCH, COLLI_SCRATCH}, (root + below) % n);
  }
}

static coll_status knomial_emit(const colli_shape *shape, int radix, colli_sched **sched) {
  int n = shape->nranks, at = (shape->rank - shape->root + n) % n;
  bool relays = at > 0 && colli_knomial_size(n, at, radix) > 1;
  colli_builder *builder = colli_builder_create(shape, n, relays ? n : 0, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  if (at > 0)
    knomial_steps(builder, shape, at, radix);
  else
    root_steps(builder, shape, radix);
  return colli_builder_finish(builder, sched);
}

/*
 * The first pass. All subtrees send in the same order, though small ones send less: the block `i`
 * ranks further on leaves every subtree that has it at the same time. Returns when the root has
 * everything.
 */
static double first_pass(int n, int radix, colli_timeline fresh, colli_flight *flight) {
  colli_timeline relay = fresh, root = fresh;
  int largest = 1; /* of the children's subtrees */
  for (int child = 1; child < n; child = next_child(child, radix))
    largest = colli_knomial_size(n, child, radix) > largest ? colli_knomial_size(n, child, radix)
                                                            : largest;
  flight[0] = colli_timeline_send(&relay);
  for (int i = 1; i < largest; i++)
    flight[i] = colli_timeline_forward(&relay, flight[i - colli_knomial_towards(0, i, radix)]);
  colli_timeline_copy(&root);
  for (int i = 0; i < largest; i++)
    for (int child = 1; child < n; child = next_child(child, radix))
      if (i < colli_knomial_size(n, child, radix))
        colli_timeline_receive(&root, flight[i]);
  return root.now;
}

static double knomial_cost(const colli_shape *shape, int radix, const colli_partition *partition,
                           size_t elem_bytes, const colli_model *model) {
  colli_terms t = colli_terms_make(partition, elem_bytes, model);
  colli_timeline fresh = colli_timeline_make(&t, model);
  int n = shape->nranks, largest = 1;
  if (n == 1)
    return colli_cost_alone(partition, &t);
  colli_flight *flight = malloc((size_t)n * sizeof(*flight));
  if (!flight)
    return HUGE_VAL;
  double critical = first_pass(n, radix, fresh, flight), hops = 0;
  free(flight);
  /* Further passes: the root's work, or the sending time of its busiest child, whichever is
   * longer. */
  for (int at = 1; at < n; at++) {
    int size = colli_knomial_size(n, at, radix);
    hops += size;
    largest = size > largest ? size : largest;
  }
  double work = t.slices * ((n - 1) * fresh.step + fresh.fold), way = t.slices * largest * t.copy;
  critical += (t.passes - 1) * (work > way ? work : way);
  /* A rank waits once per level, because the children of a level send at the same time. */
  double waits = (n - 1.0) / (radix - 1) / n;
  colli_work all = {
      .steps = (hops + n) / n, .received = hops / n, .waits = waits, .reduced = 1.0 / n};
  return colli_cost_bound(critical, all, &t, model);
}

/* Where links differ, it counts as a LINE, though scatter_knomial.c is a TREE: the root's children
 * send at the same time, each over a link of its own, so the slowest link holds up half of all
 * blocks. A root that scatters sends all blocks itself, one after the other, so its links count by
 * what goes over them. Each taken for the other is off by nearly a factor of two
 * (sched_test_formula). */
COLLI_KNOMIAL_FUNCTIONS(binomial, 2)
COLLI_KNOMIAL_FUNCTIONS(knomial4, 4)

const colli_algo colli_gather_binomial = {
    .name = "binomial",
    .id = 81,
    .coll = COLLI_GATHER,
    .when = "short blocks on many ranks: the root has log2(n) partners",
    .source = "Chan, Heimlich, Purkayastha and van de Geijn 2007",
    .orders = COLLI_GIVES_ANY,
    .reach = COLLI_REACH_LINE,
    .radix = 2,
    .nchunks = colli_nchunks_blocks,
    .emit = binomial_emit,
    .cost = binomial_cost,
};

const colli_algo colli_gather_knomial4 = {
    .name = "knomial4",
    .id = 82,
    .coll = COLLI_GATHER,
    .when = "short blocks on many ranks: half the way of binomial, more partners",
    .source = "Chan, Heimlich, Purkayastha and van de Geijn 2007",
    .orders = COLLI_GIVES_ANY,
    .reach = COLLI_REACH_LINE,
    .radix = 4,
    .nchunks = colli_nchunks_blocks,
    .emit = knomial4_emit,
    .cost = knomial4_cost,
};
