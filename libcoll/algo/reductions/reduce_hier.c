/*
 * reduce_hier.c: reduce inside groups, then between their leaders (hier.h); the root leads its own
 * group.
 *
 *   hier        binomial trees. Cost: log2(m) rounds inside groups of m ranks, log2(g) between g
 *               groups, each with N bytes. Wins for short vectors.
 *   hier_chain  chains; passes follow each other closely. Cost: (m - 1 + g - 1) hops and N bytes
 *               at the pace of the leaders, which receive twice. Wins for long vectors.
 *
 * Source: Karonis, de Supinski, Foster, Gropp, Lusk and Bresnahan, "Exploiting hierarchy in
 * parallel computer networks to optimize collective operation performance", IPDPS 2000.
 *
 * 5 ranks in the groups {0, 1, 2} and {3, 4}, root 1:
 *
 *     0 --.
 *     2 --+--> 1 <-- 3
 *               4 --^
 */
#include "libcoll/algo/hier.h"

static const colli_hier trees = {
    .enter = &colli_reduce_binomial,
    .across = &colli_reduce_binomial,
    .above = &colli_reduce_hier,
};

static const colli_hier chains = {
    .enter = &colli_reduce_chain,
    .across = &colli_reduce_chain,
    .above = &colli_reduce_hier_chain,
};

COLLI_HIER_FUNCTIONS(hier, &trees)

const colli_algo colli_reduce_hier = {
    .name = "hier",
    .id = 43,
    .coll = COLLI_REDUCE,
    .when = "short vectors on several hosts: one message leaves each host",
    .source = "Karonis et al. 2000",
    .orders = COLLI_GIVES_ANY,
    .groups = true,
    .nchunks = hier_nchunks,
    .emit = hier_emit,
    .cost = hier_cost,
};

COLLI_HIER_FUNCTIONS(hier_chain, &chains)

const colli_algo colli_reduce_hier_chain = {
    .name = "hier_chain",
    .id = 44,
    .coll = COLLI_REDUCE,
    .when = "long vectors on several hosts: each host is left once",
    .source = "Karonis et al. 2000",
    .orders = COLLI_GIVES_ANY,
    .groups = true,
    .pipelined = true,
    .nchunks = hier_chain_nchunks,
    .emit = hier_chain_emit,
    .cost = hier_chain_cost,
};
