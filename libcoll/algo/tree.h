/*
 * tree.h: algorithms whose messages go up and down a rooted tree: each rank's place in the tree,
 * the steps, and the cost.
 */
#ifndef COLLI_ALGO_TREE_H
#define COLLI_ALGO_TREE_H

#include "libcoll/algo/timeline.h"

#define COLLI_CHILDREN_MAX 48 /* 65536 ranks at radix 8 have 7 at each of 6 levels */

/* A rank's place in a tree. Children are in the order in which they are reduced: the lowest subtree
 * first. */
typedef struct colli_node {
  int parent; /* COLLI_NOBODY: the root */
  int children;
  int child[COLLI_CHILDREN_MAX];
  bool left[COLLI_CHILDREN_MAX]; /* its ranks precede this one, so it is the left operand */
} colli_node;

/* A tree over all ranks, and where it begins. */
typedef struct colli_tree {
  int nranks;
  int root;
  int radix; /* of a k-nomial tree */
  void (*place)(const struct colli_tree *tree, int rank, colli_node *node);
} colli_tree;

/*
 * k-nomial: ranks are counted from the root on and written in digits of base `radix`; a rank's
 * parent has its lowest digit that is not 0 set to 0.
 */
void colli_tree_knomial(const colli_tree *tree, int rank, colli_node *node);

/*
 * In terms of distances from the root: the number of ranks in the subtree of `at`, which begins
 * with `at`; its parent; its child whose subtree contains `below`.
 */
int colli_knomial_size(int n, int at, int radix);
int colli_knomial_parent(int n, int at, int radix);
int colli_knomial_towards(int at, int below, int radix);

/*
 * Binomial on the seats of order.h: a rank that has heard from all its children has combined its
 * part of the order TREE, whatever the root is. It takes as many rounds as a binomial tree on
 * ranks.
 */
void colli_tree_seats(const colli_tree *tree, int rank, colli_node *node);

/* Binary: ranks are counted from the root on, and i's children are 2 i + 1 and 2 i + 2. */
void colli_tree_binary(const colli_tree *tree, int rank, colli_node *node);

/*
 * Emits the way up: own values in `from` and the children's, to the parent; the root has the result
 * in OUTPUT. Intermediate values are kept in `kept`. Returns the last step.
 */
int colli_tree_up(colli_builder *builder, const colli_node *node, int lane, int chunk,
                  colli_buf from, colli_buf kept);

/*
 * Emits the way down: from the parent to OUTPUT and to the children, highest subtree first. The
 * root sends from `from`, and copies it to OUTPUT if that is INPUT. Returns the first step.
 */
int colli_tree_down(colli_builder *builder, const colli_node *node, int lane, int chunk,
                    colli_buf from);

/* Which ways a collective takes. */
enum {
  COLLI_TREE_UP = 1,
  COLLI_TREE_DOWN = 2,
  COLLI_TREE_LANES = 4 /* each in a lane of its own */
};

/* The schedule for these directions, with the whole vector as one chunk. The shape gives the number
 * of ranks and the root. */
coll_status colli_tree_emit(const colli_shape *shape, colli_tree tree, unsigned ways,
                            colli_sched **sched);

/* When the last rank ends the first pass. Also gives the pass time of the busiest rank, unless
 * busiest is NULL, and the average work of the ranks in a pass. */
double colli_tree_first(const colli_shape *shape, colli_tree tree, unsigned ways,
                        const colli_terms *terms, const colli_model *model, double *busiest,
                        colli_work *work);

/* Its cost. */
double colli_tree_cost(const colli_shape *shape, colli_tree tree, unsigned ways,
                       const colli_partition *partition, size_t elem_bytes,
                       const colli_model *model);

/* Defines the functions that the table of algorithms needs for an algorithm with these directions
 * on the colli_tree with the given members: NAME_emit and NAME_cost. */
#define COLLI_TREE_FUNCTIONS(name, ways, ...)                                                      \
  static coll_status name##_emit(const colli_shape *shape, colli_sched **sched) {                  \
    return colli_tree_emit(shape, (colli_tree){__VA_ARGS__}, ways, sched);                         \
  }                                                                                                \
  static double name##_cost(const colli_shape *shape, const colli_partition *partition,            \
                            size_t elem_bytes, const colli_model *model) {                         \
    return colli_tree_cost(shape, (colli_tree){__VA_ARGS__}, ways, partition, elem_bytes, model);  \
  }

/* The same from the functions knomial_emit and knomial_cost of a file, for a radix. */
#define COLLI_KNOMIAL_FUNCTIONS(name, radix)                                                       \
  static coll_status name##_emit(const colli_shape *shape, colli_sched **sched) {                  \
    return knomial_emit(shape, radix, sched);                                                      \
  }                                                                                                \
  static double name##_cost(const colli_shape *shape, const colli_partition *partition,            \
                            size_t elem_bytes, const colli_model *model) {                         \
    return knomial_cost(shape, radix, partition, elem_bytes, model);                               \
  }

#endif
