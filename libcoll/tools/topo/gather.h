/* gather.h: the cluster of a run, for coll_topo --save, and clusters from files. */
#ifndef COLLI_TOOLS_TOPO_GATHER_H
#define COLLI_TOOLS_TOPO_GATHER_H

#include "libcoll/tools/described/cluster.h"
#include "libcoll/tools/topo/ranks.h"

/*
 * Describes the cluster of a run, on rank 0: all ranks call it, and the first rank of each host
 * looks at its machine (COLL_TOPO_FILE, or this one). Machines that differ in nothing but names,
 * addresses and serial numbers, which are left out, and a few percent of memory count as one, and
 * are sent once, up a tree: of m machines no rank receives more than log2 m messages. Freed with
 * cluster_free(). Errors: those of collectives and of reading a machine, NO_MEMORY.
 */
coll_status topo_cluster_gather(coll_comm *comm, const topo_ranks *from, cluster *out,
                                coll_error *error);

/* The same without machines, on each rank by itself, for what a run tells of itself. Freed with
 * cluster_free(). False: out of memory. */
bool topo_cluster_outline(const topo_ranks *from, cluster *out);

/* cluster_print.c: prints a cluster from a file of that name; the exit status. */
int topo_cluster_print(const cluster *c, const char *path);

#endif
