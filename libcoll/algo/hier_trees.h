/*
 * hier_trees.h: hierarchical all-reduce (hier.h) whose part between groups runs in two trees, each
 * for half of the vector. One lane reduces inside groups and up a tree, another brings the results
 * down and to all of the group. So passes follow each other closely through all parts, where other
 * hierarchical algorithms finish a part before they begin the next.
 *
 * Each half of the vector is cut into shares. Each has an owner in every group, and the owners of
 * one share have a tree over the groups. Where groups differ in size, ranks of smaller ones own
 * more shares.
 */
#ifndef COLLI_ALGO_HIER_TREES_H
#define COLLI_ALGO_HIER_TREES_H

#include "libcoll/algo/hier_layout.h"
#include "libcoll/algo/hier_part.h"

#define COLLI_TREES_LANES 4 /* up and down, for each half */

/* The number of shares in each half, which are chunks of the whole. */
int colli_trees_shares(const colli_layout *l);

/* Adds all steps of a rank of several groups. Errors: those of colli_part_add(). */
coll_status colli_trees_add(colli_whole *whole, const colli_hier *hier, const colli_shape *shape,
                            const colli_layout *l);

#endif
