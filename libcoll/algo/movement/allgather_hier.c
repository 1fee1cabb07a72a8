/*
 * allgather_hier.c: all-gather inside groups and between them (hier.h). In three ways:
 *
 *   hier        each rank exchanges blocks with the ranks of equal position in all other groups at
 *               once, then a ring inside the group passes on what they have. Cost: alpha +
 *               (g-1)/(g m) N beta between g groups, (m-1)/m N near beta inside groups of m ranks,
 *               for N bytes in all. Wins between few groups.
 *   hier_ring   the same with rings between groups. Wins between many.
 *   hier_sites  the same as hier between two sites, with a lane each way: what is sent never waits
 *               for what is received. Wins where the line between them has a long latency. More
 *               sites than two, and sites that differ in size, get leaders.
 *
 * If groups differ in size, the ranks of a group gather their blocks, leaders exchange them, and
 * broadcast those of others. Each block enters each group once, however ranks are numbered.
 * Source: Karonis, de Supinski, Foster, Gropp, Lusk and Bresnahan, "Exploiting hierarchy in
 * parallel computer networks to optimize collective operation performance", IPDPS 2000.
 *
 * 4 ranks in the groups {0, 1} and {2, 3}:
 *
 *     0 <------> 2     0 <--> 1
 *     1 <------> 3     2 <--> 3
 */
#include "libcoll/algo/hier.h"

static const colli_hier led = {
    .enter = &colli_allgather_ring,
    .across = &colli_allgather_direct,
    .leave = &colli_broadcast_binomial,
    .above = &colli_allgather_hier,
};

static const colli_hier split = {
    .across = &colli_allgather_direct,
    .leave = &colli_allgather_ring,
    .above = &colli_allgather_hier,
    .split = true,
    .otherwise = &led,
};

static const colli_hier led_ring = {
    .enter = &colli_allgather_ring,
    .across = &colli_allgather_ring,
    .leave = &colli_broadcast_chain,
    .above = &colli_allgather_hier_ring,
};

static const colli_hier ring = {
    .across = &colli_allgather_ring,
    .leave = &colli_allgather_ring,
    .above = &colli_allgather_hier_ring,
    .split = true,
    .otherwise = &led_ring,
};

static const colli_hier led_sites = {
    .enter = &colli_allgather_ring,
    .across = &colli_allgather_direct,
    .leave = &colli_broadcast_binomial,
    .widest = true,
};

static const colli_hier sites = {
    .across = &colli_allgather_direct,
    .leave = &colli_allgather_ring,
    .split = true,
    .widest = true,
    .duplex = true,
    .otherwise = &led_sites,
};

COLLI_HIER_FUNCTIONS(hier, &split)

const colli_algo colli_allgather_hier = {
    .name = "hier",
    .id = 144,
    .coll = COLLI_ALLGATHER,
    .when = "few hosts or sites: each block enters each of them once, all at the same time",
    .source = "Karonis et al. 2000",
    .orders = COLLI_GIVES_ANY,
    .varying = true,
    .groups_max = 16,
    .groups = true,
    .nchunks = hier_nchunks,
    .emit = hier_emit,
    .cost = hier_cost,
};

COLLI_HIER_FUNCTIONS(hier_ring, &ring)

const colli_algo colli_allgather_hier_ring = {
    .name = "hier_ring",
    .id = 145,
    .coll = COLLI_ALLGATHER,
    .when = "many hosts: each block enters each of them once",
    .source = "Karonis et al. 2000",
    .orders = COLLI_GIVES_ANY,
    .varying = true,
    .groups = true,
    .nchunks = hier_ring_nchunks,
    .emit = hier_ring_emit,
    .cost = hier_ring_cost,
};

COLLI_HIER_FUNCTIONS(hier_sites, &sites)

const colli_algo colli_allgather_hier_sites = {
    .name = "hier_sites",
    .id = 152,
    .coll = COLLI_ALLGATHER,
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
