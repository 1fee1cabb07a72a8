/*
 * broadcast_knomial.c: the vector goes down a k-nomial tree: in each round every rank that has it
 * sends it to k - 1 that have not. (Radix 2 is broadcast_binomial.c.)
 *
 * Cost: log_k(n) (alpha + (k-1) N beta) for N bytes. Wins for the shortest vectors, where a message
 * more costs less than a round more.
 * Source: Kielmann et al., "MagPIe: MPI's collective communication operations for clustered wide
 * area systems", PPoPP 1999.
 *
 * 5 ranks, root 0 (other roots: ranks counted from the root on). Radix 4 (radix 8 has one level):
 *
 *          0
 *        / | \ \       sent in the order 4, 3, 2, 1: the highest subtree first
 *       1  2  3  4
 */
#include "libcoll/algo/tree.h"

COLLI_TREE_FUNCTIONS(knomial4, COLLI_TREE_DOWN, .radix = 4, .place = colli_tree_knomial)

const colli_algo colli_broadcast_knomial4 = {
    .name = "knomial4",
    .id = 30,
    .coll = COLLI_BROADCAST,
    .when = "short vectors where a round costs more than a message: log4(n) rounds",
    .source = "Kielmann et al. 1999",
    .orders = COLLI_GIVES_ANY,
    .ranks_min = 4,
    .reach = COLLI_REACH_KNOWN,
    .nchunks = colli_nchunks_one,
    .emit = knomial4_emit,
    .cost = knomial4_cost,
};

COLLI_TREE_FUNCTIONS(knomial8, COLLI_TREE_DOWN, .radix = 8, .place = colli_tree_knomial)

const colli_algo colli_broadcast_knomial8 = {
    .name = "knomial8",
    .id = 31,
    .coll = COLLI_BROADCAST,
    .when = "the shortest vectors on many ranks: log8(n) rounds",
    .source = "Kielmann et al. 1999",
    .orders = COLLI_GIVES_ANY,
    .ranks_min = 8,
    .reach = COLLI_REACH_KNOWN,
    .nchunks = colli_nchunks_one,
    .emit = knomial8_emit,
    .cost = knomial8_cost,
};
