/*
 * broadcast_bintree.c: the vector goes down a binary tree; passes follow each other closely.
 *
 * Cost: about 2 log2(n) (alpha + C beta) + 2 N beta for N bytes in chunks of C bytes. Wins in the
 * middle: fewer hops than the chain, fewer messages a rank than the binomial tree.
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

COLLI_TREE_FUNCTIONS(bintree, COLLI_TREE_DOWN, .place = colli_tree_binary)

const colli_algo colli_broadcast_bintree = {
    .name = "bintree",
    .id = 32,
    .coll = COLLI_BROADCAST,
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
