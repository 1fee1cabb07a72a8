/*
 * allreduce_hier.c: all-reduce inside groups and between them (hier.h). In eight ways:
 *
 *   hier        binomial reduce to the group's leader, recursive doubling among the leaders,
 *               binomial broadcast. Cost: log2(g) rounds between g groups, 2 log2(m) inside groups
 *               of m ranks, each with N bytes. Wins for short vectors.
 *   hier_ring   ring reduce-scatter in the group, then each of its ranks does a ring all-reduce of
 *               its share with the owners of the same share in other groups, ring all-gather in
 *               the group. Cost: 2 (m-1)/m N near beta + 2 (g-1)/(g m) N beta for N bytes. Wins for
 *               long vectors: what goes between groups is shared out among all ranks.
 *   hier_split  the same with recursive doubling between groups. Wins for two groups, which
 *               exchange their shares in one round, and for middle sizes.
 *   hier_levels        where hosts are in racks or at sites: reduces to leaders level by level,
 *               recursive doubling between those of the widest groups, broadcasts level by level.
 *   hier_levels_split  reduce-scatters level by level, each on the share that the one before has
 *               left to a rank, recursive doubling between the widest groups, all-gathers back.
 *               Cost: 2 N beta of the innermost level, and of each wider one as much less as it has
 *               ranks inside. Wins for long vectors.
 *   hier_lanes  the same in four lanes, each of which has a part of the vector on its way while
 *               others wait. Wins for long vectors between racks or sites: all links are busy.
 *   hier_trees  ring reduce-scatter in the group, two trees between the ranks that own the same
 *               share in each group, ring all-gather in the group, all on their way at once. Cost:
 *               2 (m-1)/m N near beta + 2/m N beta, and about 4 log2(g) hops. Wins for long vectors
 *               on many hosts.
 *   hier_sites  the same with sites as groups. What is sent never waits for what is received, so
 *               the line between sites is full, whatever its latency. Cost: N beta and about
 *               4 log2(g) hops between g sites.
 *
 * The first three and hier_trees take all hosts as equally far from each other, but neighbours in
 * rings, doubling and trees are of the same rack. Where groups differ in size, all but hier and
 * hier_levels still share out what goes between them (hier_shares.h). Source:
 * Karonis, de Supinski, Foster, Gropp, Lusk and Bresnahan, "Exploiting hierarchy in parallel
 * computer networks to optimize collective operation performance", IPDPS 2000; reduce-scatter and
 * all-gather inside: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005), and NCCL's use of it; at
 * several levels: Cho, Finkler, Serrano, Kung and Hunter, "BlueConnect: Decomposing all-reduce for
 * deep learning on heterogeneous network hierarchy", MLSys 2019; the trees: Sanders, Speck and
 * Traeff, Parallel Computing 35 (2009), and NCCL's use of them between hosts.
 *
 * hier on 5 ranks in the groups {0, 1, 2} and {3, 4}:
 *
 *     1 --.                     .--> 1
 *     2 --+--> 0 <------> 3     0 --> 2
 *                    4 --^     3 --> 4
 *       reduce   all-reduce    broadcast
 */
#include "libcoll/algo/hier.h"

static const colli_hier led = {
    .enter = &colli_reduce_binomial,
    .across = &colli_allreduce_recdbl,
    .leave = &colli_broadcast_binomial,
};

static const colli_hier ring = {
    .enter = &colli_reduce_scatter_ring,
    .across = &colli_allreduce_ring,
    .leave = &colli_allgather_ring,
    .split = true,
};

static const colli_hier split = {
    .enter = &colli_reduce_scatter_ring,
    .across = &colli_allreduce_recdbl,
    .leave = &colli_allgather_ring,
    .split = true,
};

static const colli_hier levels = {
    .enter = &colli_reduce_binomial,
    .across = &colli_allreduce_recdbl,
    .leave = &colli_broadcast_binomial,
    .above = &colli_allreduce_hier_levels,
};

static const colli_hier levels_split = {
    .enter = &colli_reduce_scatter_ring,
    .across = &colli_allreduce_recdbl,
    .leave = &colli_allgather_ring,
    .above = &colli_allreduce_hier_levels_split,
    .split = true,
};

static const colli_hier lanes = {
    .enter = &colli_reduce_scatter_ring,
    .across = &colli_allreduce_recdbl,
    .leave = &colli_allgather_ring,
    .above = &colli_allreduce_hier_levels_split,
    .split = true,
    .lanes = 4,
};

static const colli_hier trees = {
    .enter = &colli_reduce_scatter_ring,
    .across = &colli_allreduce_dbtree,
    .leave = &colli_allgather_ring,
    .split = true,
    .trees = true,
};

static const colli_hier sites = {
    .enter = &colli_reduce_scatter_ring,
    .across = &colli_allreduce_dbtree,
    .leave = &colli_allgather_ring,
    .split = true,
    .trees = true,
    .widest = true,
};

COLLI_HIER_FUNCTIONS(hier, &led)

const colli_algo colli_allreduce_hier = {
    .name = "hier",
    .id = 40,
    .coll = COLLI_ALLREDUCE,
    .when = "short vectors on several hosts: one rank of each talks to the others",
    .source = "Karonis et al. 2000",
    .orders = COLLI_GIVES_ANY,
    .exchanges = true,
    .groups = true,
    .flat = true,
    .nchunks = hier_nchunks,
    .emit = hier_emit,
    .cost = hier_cost,
};

COLLI_HIER_FUNCTIONS(hier_ring, &ring)

const colli_algo colli_allreduce_hier_ring = {
    .name = "hier_ring",
    .id = 41,
    .coll = COLLI_ALLREDUCE,
    .when = "long vectors on several hosts: all ranks share what goes between hosts",
    .source = "Karonis et al. 2000",
    .orders = COLLI_GIVES_ANY,
    .groups = true,
    .flat = true,
    .nchunks = hier_ring_nchunks,
    .emit = hier_ring_emit,
    .cost = hier_ring_cost,
};

COLLI_HIER_FUNCTIONS(hier_split, &split)

const colli_algo colli_allreduce_hier_split = {
    .name = "hier_split",
    .id = 42,
    .coll = COLLI_ALLREDUCE,
    .when = "middle sizes on several hosts, and long vectors on two",
    .source = "Karonis et al. 2000",
    .orders = COLLI_GIVES_ANY,
    .exchanges = true,
    .groups = true,
    .flat = true,
    .nchunks = hier_split_nchunks,
    .emit = hier_split_emit,
    .cost = hier_split_cost,
};

COLLI_HIER_FUNCTIONS(hier_levels, &levels)

const colli_algo colli_allreduce_hier_levels = {
    .name = "hier_levels",
    .id = 147,
    .coll = COLLI_ALLREDUCE,
    .when = "short vectors on hosts in racks or sites: one rank of each talks to the others",
    .source = "Karonis et al. 2000",
    .orders = COLLI_GIVES_ANY,
    .exchanges = true,
    .groups = true,
    .levels = true,
    .nchunks = hier_levels_nchunks,
    .emit = hier_levels_emit,
    .cost = hier_levels_cost,
};

COLLI_HIER_FUNCTIONS(hier_levels_split, &levels_split)

const colli_algo colli_allreduce_hier_levels_split = {
    .name = "hier_levels_split",
    .id = 148,
    .coll = COLLI_ALLREDUCE,
    .when = "long vectors on hosts in racks or sites: all ranks share what goes between these",
    .source = "Cho, Finkler, Serrano, Kung and Hunter 2019 (BlueConnect)",
    .orders = COLLI_GIVES_ANY,
    .exchanges = true,
    .groups = true,
    .levels = true,
    .nchunks = hier_levels_split_nchunks,
    .emit = hier_levels_split_emit,
    .cost = hier_levels_split_cost,
};

COLLI_HIER_FUNCTIONS(hier_lanes, &lanes)

const colli_algo colli_allreduce_hier_lanes = {
    .name = "hier_lanes",
    .id = 143,
    .coll = COLLI_ALLREDUCE,
    .when = "long vectors on hosts in racks, or at two sites: several parts are on their way",
    .source = "Karonis et al. 2000",
    .orders = COLLI_GIVES_ANY,
    .pipelined = true,
    .exchanges = true,
    .groups = true,
    .sites = true,
    .levels = true,
    .nchunks = hier_lanes_nchunks,
    .emit = hier_lanes_emit,
    .cost = hier_lanes_cost,
};

COLLI_HIER_FUNCTIONS(hier_trees, &trees)

const colli_algo colli_allreduce_hier_trees = {
    .name = "hier_trees",
    .id = 149,
    .coll = COLLI_ALLREDUCE,
    .when = "long vectors on many hosts: all ranks share what goes between hosts",
    .source = "Sanders, Speck and Traeff 2009",
    .orders = COLLI_GIVES_ANY,
    .pipelined = true,
    /* A ring sends (g - 1) / g of what trees send over a host's line, which its ranks may share:
     * with 8 hosts 1/8 less. Of more hosts, latency counts more. */
    .groups_min = 8,
    .groups = true,
    .flat = true,
    .nchunks = hier_trees_nchunks,
    .emit = hier_trees_emit,
    .cost = hier_trees_cost,
};

COLLI_HIER_FUNCTIONS(hier_sites, &sites)

const colli_algo colli_allreduce_hier_sites = {
    .name = "hier_sites",
    .id = 151,
    .coll = COLLI_ALLREDUCE,
    .when = "long vectors at several sites: the line is full, however long its latency is",
    .source = "Sanders, Speck and Traeff 2009",
    .orders = COLLI_GIVES_ANY,
    .pipelined = true,
    .groups = true,
    .sites = true,
    .long_lines = true,
    .nchunks = hier_sites_nchunks,
    .emit = hier_sites_emit,
    .cost = hier_sites_cost,
};
