/*
 * allreduce_knomial.c: partial results go up a k-nomial tree, and the result comes down again.
 * Radix 2 is a binomial tree on the seats of order.h.
 *
 * Cost: 2 log_k(n) (alpha + (k-1) N beta) + (k-1) log_k(n) N gamma for N bytes. Takes twice the
 * rounds of recursive doubling, but only 2 (n-1) messages in all: wins for short vectors where
 * ranks share cores or the network is the bottleneck. A higher radix takes fewer rounds with more
 * messages at one rank.
 * Source: Kielmann et al., "MagPIe: MPI's collective communication operations for clustered wide
 * area systems", PPoPP 1999.
 *
 * 5 ranks. Radix 2: ranks 0 and 1 share a seat, for which 0 speaks as the root:
 *
 *     radix 2:     0                 radix 4:      0
 *                / | \                           / | \ \
 *               1  2  3                         1  2  3  4
 *                     |
 *                     4
 */
#include "libcoll/algo/tree.h"

COLLI_TREE_FUNCTIONS(knomial2, COLLI_TREE_UP | COLLI_TREE_DOWN, .place = colli_tree_seats)

const colli_algo colli_allreduce_knomial2 = {
    .name = "knomial2",
    .id = 14,
    .coll = COLLI_ALLREDUCE,
    .when = "short vectors where ranks share cores: the fewest messages",
    .source = "Kielmann et al. 1999",
    .orders = COLLI_GIVES_TREE,
    .reach = COLLI_REACH_KNOWN,
    .nchunks = colli_nchunks_one,
    .emit = knomial2_emit,
    .cost = knomial2_cost,
};

COLLI_TREE_FUNCTIONS(knomial4, COLLI_TREE_UP | COLLI_TREE_DOWN, .radix = 4,
                     .place = colli_tree_knomial)

const colli_algo colli_allreduce_knomial4 = {
    .name = "knomial4",
    .id = 15,
    .coll = COLLI_ALLREDUCE,
    .when = "short vectors where ranks share cores, in fewer rounds",
    .source = "Kielmann et al. 1999",
    .orders = COLLI_GIVES_ANY,
    .ranks_min = 4,
    .reach = COLLI_REACH_KNOWN,
    .nchunks = colli_nchunks_one,
    .emit = knomial4_emit,
    .cost = knomial4_cost,
};

COLLI_TREE_FUNCTIONS(knomial8, COLLI_TREE_UP | COLLI_TREE_DOWN, .radix = 8,
                     .place = colli_tree_knomial)

const colli_algo colli_allreduce_knomial8 = {
    .name = "knomial8",
    .id = 16,
    .coll = COLLI_ALLREDUCE,
    .when = "the shortest vectors where ranks share cores, in the fewest rounds",
    .source = "Kielmann et al. 1999",
    .orders = COLLI_GIVES_ANY,
    .ranks_min = 8,
    .reach = COLLI_REACH_KNOWN,
    .nchunks = colli_nchunks_one,
    .emit = knomial8_emit,
    .cost = knomial8_cost,
};
