/*
 * reduce_knomial.c: partial results go up a k-nomial tree; every rank reduces what its children
 * send and passes the result on. Radix 2 is the binomial tree, on the seats of order.h.
 *
 * Cost: for N bytes, (k-1) log_k(n) (N beta + N gamma) + log_k(n) alpha. Wins for short vectors: a
 * higher radix takes fewer rounds, in each of which more messages come to the same rank.
 * Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
 * MPICH", IJHPCA 19 (2005); k-nomial: Kielmann et al., "MagPIe", PPoPP (1999).
 *
 * 5 ranks, root 0, radix 2: ranks 0 and 1 share a seat, so rank 0 is the tree's left end whatever
 * the root is; radix 4 (other roots: ranks counted from the root on):
 *
 *     radix 2:     0                 radix 4:       0
 *                / | \                           / / \ \
 *               1  2  3                         1 2   3 4
 *                     |
 *                     4
 */
#include "libcoll/algo/tree.h"

static coll_status knomial_emit(const colli_shape *shape, colli_sched **sched, colli_tree tree) {
  colli_node node;
  tree.nranks = shape->nranks;
  tree.root = shape->root;
  tree.place(&tree, shape->rank, &node);
  bool keeps = node.parent != COLLI_NOBODY && node.children > 1;
  colli_builder *builder = colli_builder_create(shape, 1, keeps, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  if (shape->nranks == 1)
    colli_emit_alone(builder, shape->coll, 1);
  else
    colli_tree_up(builder, &node, 0, COLLI_SCRATCH);
  return colli_builder_finish(builder, sched);
}

static double knomial_cost(const colli_shape *shape, const colli_partition *partition,
                           size_t elem_bytes, const colli_model *model, colli_tree tree) {
  tree.nranks = shape->nranks;
  tree.root = shape->root;
  return colli_tree_cost(&tree, COLLI_TREE_UP, partition, elem_bytes, model);
}

static const colli_tree seats = {.place = colli_tree_seats};
static const colli_tree radix4 = {.radix = 4, .place = colli_tree_knomial};
static const colli_tree radix8 = {.radix = 8, .place = colli_tree_knomial};

static coll_status binomial_emit(const colli_shape *shape, colli_sched **sched) {
  return knomial_emit(shape, sched, seats);
}
static coll_status radix4_emit(const colli_shape *shape, colli_sched **sched) {
  return knomial_emit(shape, sched, radix4);
}
static coll_status radix8_emit(const colli_shape *shape, colli_sched **sched) {
  return knomial_emit(shape, sched, radix8);
}

static double binomial_cost(const colli_shape *shape, const colli_partition *partition,
                            size_t elem_bytes, const colli_model *model) {
  return knomial_cost(shape, partition, elem_bytes, model, seats);
}
static double radix4_cost(const colli_shape *shape, const colli_partition *partition,
                          size_t elem_bytes, const colli_model *model) {
  return knomial_cost(shape, partition, elem_bytes, model, radix4);
}
static double radix8_cost(const colli_shape *shape, const colli_partition *partition,
                          size_t elem_bytes, const colli_model *model) {
  return knomial_cost(shape, partition, elem_bytes, model, radix8);
}

const colli_algo colli_reduce_binomial = {
    .name = "binomial",
    .id = 20,
    .coll = COLLI_REDUCE,
    .when = "short vectors: log2(n) rounds",
    .source = "Thakur, Rabenseifner and Gropp 2005",
    .orders = COLLI_GIVES_TREE,
    .nchunks = colli_nchunks_one,
    .emit = binomial_emit,
    .cost = binomial_cost,
};

const colli_algo colli_reduce_knomial4 = {
    .name = "knomial4",
    .id = 21,
    .coll = COLLI_REDUCE,
    .when = "short vectors where a round costs more than a message: log4(n) rounds",
    .source = "Kielmann et al. 1999",
    .orders = COLLI_GIVES_ANY,
    .ranks_min = 4,
    .nchunks = colli_nchunks_one,
    .emit = radix4_emit,
    .cost = radix4_cost,
};

const colli_algo colli_reduce_knomial8 = {
    .name = "knomial8",
    .id = 22,
    .coll = COLLI_REDUCE,
    .when = "the shortest vectors on many ranks: log8(n) rounds",
    .source = "Kielmann et al. 1999",
    .orders = COLLI_GIVES_ANY,
    .ranks_min = 8,
    .nchunks = colli_nchunks_one,
    .emit = radix8_emit,
    .cost = radix8_cost,
};
