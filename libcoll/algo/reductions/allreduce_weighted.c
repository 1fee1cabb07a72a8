/*
 * allreduce_weighted.c: all-reduce between groups (hosts) whose links to the network are not
 * equally fast (hier.h), by owners, each of which combines a share of the vector that suits its
 * link.
 *
 * Group i owns s_i of the S = sum of s chunks, or a multiple. It sends each chunk that it does not
 * own to its owner, and each that it owns to all others: N (1 + s_i/S (n - 2)) bytes out, and as
 * many in, for N bytes and n groups. With equal shares these are the ring's 2 (n-1)/n N. A group
 * whose link is slow has a small share or none. Without one it is a leaf, through whose link the
 * vector passes once each way, which is the least possible: all others need its contribution, and
 * it needs the result. cost/weights.h finds the shares. Inside groups: hier.h.
 *
 * Where hosts are in racks, each rack does this by itself, but the owners of a chunk in all racks
 * combine it before its result goes to their racks (owners.c): N (1 + s_i/S (m - 2 + c)) for m
 * hosts of a rack and doubling in c rounds between racks.
 *
 * In two ways: hier_weighted combines all before results are sent, with few messages, for shorter
 * vectors; hier_weighted_fine cuts the vector finely, and a slow link sends what comes next while
 * results of what came before arrive.
 *
 * Cost: max over i of N (1 + s_i/S (n - 2)) beta_i. Two lanes, so that a slow link does not idle
 * while a group waits for results.
 * Source: the direct (bundled) exchange of Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005), with
 * unequal blocks; that all must send N, and together 2 (n-1) N: Patarasuk and Yuan, "Bandwidth
 * optimal all-reduce algorithms for clusters of workstations", JPDC 69 (2009); racks: BlueConnect
 * (allreduce_hier.c).
 *
 * 4 groups with the shares 1, 1, 1, 0: the way of chunk 1; group 3 combines nothing:
 *
 *     0 --.              .--> 3
 *     2 --+--> 1   1 ----+--> 0
 *     3 --'              '--> 2
 */
#include "libcoll/algo/hier.h"
#include "libcoll/algo/owners.h"

static const colli_hier weighted = {
    .enter = &colli_reduce_scatter_ring,
    .across = &colli_allreduce_owners,
    .above = &colli_allreduce_owners,
    .leave = &colli_allgather_ring,
    .lanes = 2,
    .split = true,
};

static const colli_hier fine = {
    .enter = &colli_reduce_scatter_ring,
    .across = &colli_allreduce_owners_fine,
    .above = &colli_allreduce_owners_fine,
    .leave = &colli_allgather_ring,
    .lanes = 2,
    .split = true,
};

COLLI_HIER_FUNCTIONS(weighted, &weighted)

const colli_algo colli_allreduce_hier_weighted = {
    .name = "hier_weighted",
    .id = 142,
    .coll = COLLI_ALLREDUCE,
    .when = "hosts whose links differ: a slow one sends and gets the vector once",
    .source = "Patarasuk and Yuan 2009",
    .orders = COLLI_GIVES_ANY,
    .exchanges = true,
    .groups = true,
    .weighted = true,
    .nchunks = weighted_nchunks,
    .emit = weighted_emit,
    .cost = weighted_cost,
};

COLLI_HIER_FUNCTIONS(fine, &fine)

const colli_algo colli_allreduce_hier_weighted_fine = {
    .name = "hier_weighted_fine",
    .id = 150,
    .coll = COLLI_ALLREDUCE,
    .when = "the same for long vectors on few ranks: a slow host sends while it gets results",
    .source = "Patarasuk and Yuan 2009",
    .orders = COLLI_GIVES_ANY,
    .exchanges = true,
    .groups = true,
    .ranks_max = 64, /* as a replay tells what it takes, and a formula does not */
    .weighted = true,
    .nchunks = fine_nchunks,
    .emit = fine_emit,
    .cost = fine_cost,
};
