/*
 * broadcast_hier.c: broadcast between the leaders of groups, then inside (hier.h); the root leads
 * its own group.
 *
 *   hier        binomial trees. Cost: log2(g) rounds between g groups, log2(m) inside groups of m
 *               ranks, each with N bytes. Wins for short vectors.
 *   hier_chain  chains; passes follow each other closely. Cost: (g - 1 + m - 1) hops and N bytes
 *               at the pace of the leaders, which send twice. Wins for long vectors.
 *
 * Source: Karonis, de Supinski, Foster, Gropp, Lusk and Bresnahan, "Exploiting hierarchy in
 * parallel computer networks to optimize collective operation performance", IPDPS 2000.
 *
 * 5 ranks in the groups {0, 1, 2} and {3, 4}, root 1:
 *
 *           .--> 0
 *     1 ----+--> 2
 *     |
 *     '--> 3 --> 4
 */
#include "libcoll/algo/hier.h"

static const colli_hier trees = {
    .across = &colli_broadcast_binomial,
    .leave = &colli_broadcast_binomial,
    .above = &colli_broadcast_hier,
};

static const colli_hier chains = {
    .across = &colli_broadcast_chain,
    .leave = &colli_broadcast_chain,
    .above = &colli_broadcast_hier_chain,
};

COLLI_HIER_FUNCTIONS(hier, &trees)

const colli_algo colli_broadcast_hier = {
    .name = "hier",
    .id = 45,
    .coll = COLLI_BROADCAST,
    .when = "short vectors on several hosts: one message comes to each host",
    .source = "Karonis et al. 2000",
    .orders = COLLI_GIVES_ANY,
    .groups = true,
    .nchunks = hier_nchunks,
    .emit = hier_emit,
    .cost = hier_cost,
};

COLLI_HIER_FUNCTIONS(hier_chain, &chains)

const colli_algo colli_broadcast_hier_chain = {
    .name = "hier_chain",
    .id = 46,
    .coll = COLLI_BROADCAST,
    .when = "long vectors on several hosts: each host is entered once",
    .source = "Karonis et al. 2000",
    .orders = COLLI_GIVES_ANY,
    .groups = true,
    .pipelined = true,
    .nchunks = hier_chain_nchunks,
    .emit = hier_chain_emit,
    .cost = hier_chain_cost,
};
