/* twotrees.h: two trees over the same ranks, each for half of the vector, up and down again: where
 * each rank is in them, and the time of both at once. */
#ifndef COLLI_ALGO_TWOTREES_H
#define COLLI_ALGO_TWOTREES_H

#include "libcoll/algo/tree.h"

/*
 * Where a rank is in the first and in the second tree (colli_tree.place): binary trees in which the
 * ranks of a subtree follow each other, and whose inner ranks are leaves in the other tree. Needs
 * two ranks or more. allreduce_dbtree.c draws them. Source: Sanders, Speck and Traeff, Parallel
 * Computing 35 (2009).
 */
extern void (*const colli_twotrees[2])(const colli_tree *tree, int rank, colli_node *node);

/*
 * When the last rank has finished both trees, with one message in each. A rank does one thing at a
 * time, first what could begin first, so one tree may have to wait for the other. No recursion over
 * a single tree finds that. Infinite if out of memory. No rank has more than two children.
 * *sending: how long the rank that takes longest sends in a pass, whatever the number of slices.
 */
double colli_twotrees_time(const colli_shape *shape, const colli_tree *a, const colli_tree *b,
                           const colli_terms *terms, const colli_model *model, double *sending);

/* Beta of all links on which a rank sends, once each: in both trees, and in that one of them in
 * which it sends more. */
typedef struct colli_twotrees_load {
  double both, one;
} colli_twotrees_load;
colli_twotrees_load colli_twotrees_load_of(const colli_shape *shape, int rank,
                                           const colli_model *model);

#endif
