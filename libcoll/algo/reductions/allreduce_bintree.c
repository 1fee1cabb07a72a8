/*
 * allreduce_bintree.c: partial results go up a binary tree and the result comes down again, each in
 * a lane of its own, so that passes follow each other closely.
 *
 * Cost: about 4 log2(n) (alpha + C (beta + gamma)) + 3 N beta for N bytes in chunks of C bytes. One
 * tree instead of two: simpler than dbtree and with half the connections, but half of the ranks are
 * leaves that do little.
 * Source: Pjesivac-Grbovic et al., "Performance analysis of MPI collective operations", Cluster
 * Computing 10 (2007).
 *
 * 5 ranks:
 *
 *         0
 *        / \
 *       1   2
 *      / \
 *     3   4
 */
#include "libcoll/algo/tree.h"

COLLI_TREE_FUNCTIONS(bintree, COLLI_TREE_UP | COLLI_TREE_DOWN | COLLI_TREE_LANES,
                     .place = colli_tree_binary)

const colli_algo colli_allreduce_bintree = {
    .name = "bintree",
    .id = 17,
    .coll = COLLI_ALLREDUCE,
    .when = "middle sizes on many ranks that should have few connections",
    .source = "Pjesivac-Grbovic et al. 2007",
    .orders = COLLI_GIVES_ANY,
    .pipelined = true,
    .ranks_min = 4, /* below that it is a line or a star */
    .reach = COLLI_REACH_KNOWN,
    .nchunks = colli_nchunks_one,
    .emit = bintree_emit,
    .cost = bintree_cost,
};
