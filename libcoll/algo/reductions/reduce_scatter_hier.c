/*
 * reduce_scatter_hier.c: reduce-scatter inside groups, then between them (hier.h). In two ways:
 *
 *   hier        a ring inside the group, in which each rank sums up the blocks of all ranks of its
 *               position; these exchange the sums between groups. Cost: (m-1)/m N near beta inside
 *               groups of m ranks, (g-1)/(g m) N beta and g-1 alpha between g groups, for N bytes
 *               in all. Wins where links between groups are slow or far.
 *   hier_sites  the same between two sites, with a lane each way: what is sent never waits for what
 *               is received. Wins where the line between them has a long latency. More sites than
 *               two, and sites that differ in size, get leaders.
 *
 * If groups differ in size, leaders sum up all blocks of their groups, exchange them, and scatter
 * the results. Each block leaves each group once, however ranks are numbered. Source: Karonis, de
 * Supinski, Foster, Gropp, Lusk and Bresnahan, "Exploiting hierarchy in parallel computer networks
 * to optimize collective operation performance", IPDPS 2000.
 *
 * 4 ranks in the groups {0, 1} and {2, 3}:
 *
 *     0 <--> 1     0 <------> 2
 *     2 <--> 3     1 <------> 3
 */
#include "libcoll/algo/hier.h"

static const colli_hier led = {
    .enter = &colli_reduce_binomial,
    .across = &colli_reduce_scatter_pairwise,
    .leave = &colli_scatter_direct,
    .above = &colli_reduce_scatter_hier,
};

static const colli_hier split = {
    .enter = &colli_reduce_scatter_ring,
    .across = &colli_reduce_scatter_pairwise,
    .above = &colli_reduce_scatter_hier,
    .split = true,
    .otherwise = &led,
};

static const colli_hier led_sites = {
    .enter = &colli_reduce_binomial,
    .across = &colli_reduce_scatter_pairwise,
    .leave = &colli_scatter_direct,
    .widest = true,
};

static const colli_hier sites = {
    .enter = &colli_reduce_scatter_ring,
    .across = &colli_reduce_scatter_pairwise,
    .split = true,
    .widest = true,
    .duplex = true,
    .otherwise = &led_sites,
};

COLLI_HIER_FUNCTIONS(hier, &split)

const colli_algo colli_reduce_scatter_hier = {
    .name = "hier",
    .id = 146,
    .coll = COLLI_REDUCE_SCATTER,
    .when = "several hosts or sites: each sum leaves each of them once",
    .source = "Karonis et al. 2000",
    .orders = COLLI_GIVES_ANY,
    .varying = true,
    .groups = true,
    .nchunks = hier_nchunks,
    .emit = hier_emit,
    .cost = hier_cost,
};

COLLI_HIER_FUNCTIONS(hier_sites, &sites)

const colli_algo colli_reduce_scatter_hier_sites = {
    .name = "hier_sites",
    .id = 153,
    .coll = COLLI_REDUCE_SCATTER,
    .when = "long blocks at two sites: the line is full, however long its latency is",
    .source = "Karonis et al. 2000",
    .orders = COLLI_GIVES_ANY,
    .varying = true,
    .groups = true,
    .sites = true,
    .nchunks = hier_sites_nchunks,
    .emit = hier_sites_emit,
    .cost = hier_sites_cost,
};
