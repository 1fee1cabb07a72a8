/*
 * hier_shares.h: hierarchical all-reduce (hier.h) whose ranks share what goes between groups. The
 * vector is cut into shares, each of which has an owner in every group. Groups reduce and scatter
 * their vectors to the owners, the owners of a share combine it, and groups gather the results.
 *
 * In groups of one size, each rank owns the share of its position. Where groups differ in size,
 * there are more shares, and ranks of smaller groups own more of them: a group sends and receives
 * as much as another, whatever its size.
 */
#ifndef COLLI_ALGO_HIER_SHARES_H
#define COLLI_ALGO_HIER_SHARES_H

#include "libcoll/algo/hier_layout.h"
#include "libcoll/algo/hier_part.h"

/* Some chunks of the vector, which a lane works on. */
typedef struct colli_stretch {
  int first, chunks;
  int lane;
} colli_stretch;

/* The number of shares. */
int colli_shares_count(const colli_hier *hier, const colli_layout *l);

/* How many shares a rank owns at most, in the two smallest groups. */
typedef struct colli_owned {
  int most, second;
} colli_owned;
colli_owned colli_shares_owned(const colli_hier *hier, const colli_layout *l);

/* Adds the parts of a rank: each ends before the next begins. Errors: those of colli_part_add(). */
coll_status colli_shares_split(colli_whole *whole, const colli_hier *hier, const colli_shape *shape,
                               colli_layout *l, colli_stretch on);

#define COLLI_TREES_LANES 4 /* up and down, for each half */

/*
 * The same in two trees, each for half of the vector, which has shares of its own: the owners of a
 * share have a tree over the groups. One lane reduces inside groups and up the tree, another brings
 * the results down and to all of the group. So passes follow each other closely through all parts.
 */
coll_status colli_shares_trees(colli_whole *whole, const colli_hier *hier, colli_layout *l);

#endif
