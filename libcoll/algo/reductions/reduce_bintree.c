/*
 * reduce_bintree.c: partial results go up a binary tree; passes follow each other closely.
 *
 * Cost: about 2 log2(n) (alpha + C (beta + gamma)) + N max(beta, 2 gamma) for N bytes in chunks of
 * C bytes. Wins in the middle: no rank gets more than two messages a chunk, and there are few hops.
 * Source: Pjesivac-Grbovic et al., "Performance analysis of MPI collective operations", Cluster
 * Computing 10 (2007).
 *
 * 5 ranks, root 0 (other roots: ranks counted from the root on):
 *
 *         0
 *        / \
 *       1   2
 *      / \
 *     3   4
 */
#include "libcoll/algo/tree.h"

COLLI_TREE_FUNCTIONS(bintree, COLLI_TREE_UP, .place = colli_tree_binary)

const colli_algo colli_reduce_bintree = {
    .name = "bintree",
    .id = 24,
    .coll = COLLI_REDUCE,
    .when = "middle sizes on many ranks: few hops, two messages a rank and chunk",
    .source = "Pjesivac-Grbovic et al. 2007",
    .orders = COLLI_GIVES_ANY,
    .pipelined = true,
    .ranks_min = 4, /* below that it is a line or a star */
    .reach = COLLI_REACH_KNOWN,
    .nchunks = colli_nchunks_one,
    .emit = bintree_emit,
    .cost = bintree_cost,
};
