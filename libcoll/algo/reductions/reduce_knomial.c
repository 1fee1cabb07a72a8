/*
 * reduce_knomial.c: partial results go up a k-nomial tree; every rank reduces what its children
 * send and passes the result on. Radix 2 is the binomial tree, on the seats of order.h.
 *
 * Cost: log_k(n) (alpha + (k-1) (N beta + N gamma)) for N bytes. Wins for short vectors: a higher
 * radix takes fewer rounds, in each of which more messages come to the same rank.
 * Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
 * MPICH", IJHPCA 19 (2005); k-nomial: Kielmann et al., "MagPIe: MPI's collective communication
 * operations for clustered wide area systems", PPoPP 1999.
 *
 * 5 ranks, root 0. Radix 2: ranks 0 and 1 share a seat, 2, 3 and 4 have one each; whatever the root
 * is, the seats that meet are the same. Radix 4: ranks are counted from the root on.
 *
 *     radix 2:     0                 radix 4:      0
 *                / | \                           / | \ \
 *               1  2  3                         1  2  3  4
 *                     |
 *                     4
 */
#include "libcoll/algo/tree.h"

COLLI_TREE_FUNCTIONS(binomial, COLLI_TREE_UP, .place = colli_tree_seats)

const colli_algo colli_reduce_binomial = {
    .name = "binomial",
    .id = 20,
    .coll = COLLI_REDUCE,
    .when = "short vectors: log2(n) rounds",
    .source = "Thakur, Rabenseifner and Gropp 2005",
    .orders = COLLI_GIVES_TREE,
    .reach = COLLI_REACH_KNOWN,
    .nchunks = colli_nchunks_one,
    .emit = binomial_emit,
    .cost = binomial_cost,
};

COLLI_TREE_FUNCTIONS(knomial4, COLLI_TREE_UP, .radix = 4, .place = colli_tree_knomial)

const colli_algo colli_reduce_knomial4 = {
    .name = "knomial4",
    .id = 21,
    .coll = COLLI_REDUCE,
    .when = "short vectors where a round costs more than a message: log4(n) rounds",
    .source = "Kielmann et al. 1999",
    .orders = COLLI_GIVES_ANY,
    .ranks_min = 4,
    .reach = COLLI_REACH_KNOWN,
    .nchunks = colli_nchunks_one,
    .emit = knomial4_emit,
    .cost = knomial4_cost,
};

COLLI_TREE_FUNCTIONS(knomial8, COLLI_TREE_UP, .radix = 8, .place = colli_tree_knomial)

const colli_algo colli_reduce_knomial8 = {
    .name = "knomial8",
    .id = 22,
    .coll = COLLI_REDUCE,
    .when = "the shortest vectors on many ranks: log8(n) rounds",
    .source = "Kielmann et al. 1999",
    .orders = COLLI_GIVES_ANY,
    .ranks_min = 8,
    .reach = COLLI_REACH_KNOWN,
    .nchunks = colli_nchunks_one,
    .emit = knomial8_emit,
    .cost = knomial8_cost,
};
