/*
 * cluster.h: a file that describes a cluster, which coll_topo --save writes in a run, and coll_topo
 * and coll_explain read elsewhere: the ranks, their hosts and groups, what messages cost, and each
 * different machine once. Lines of words, and behind each line "machine" the XML of hwloc:
 *
 *   libcoll cluster 1
 *   ranks 4 hosts 2 levels 1 machines 1 links 0
 *   model 15000 0.85 0.1 300 1 200 0.05 1 300 8 40 1000 0 0 0 0
 *   slots 8 65536 262144 0
 *   level 0 0 0                    names of hosts.levels that its groups have; cost in a group
 *   host 0 1000 node1 paris/rack7  machine, Mbit/s of its link (0: not known), name, levels
 *   host 0 0 node2 -
 *   rank 0 -1 0                    host, core (-1: any), its group of each level
 *   ...
 *   machine 5839                   so many bytes follow
 */
#ifndef COLLI_TOOLS_DESCRIBED_CLUSTER_H
#define COLLI_TOOLS_DESCRIBED_CLUSTER_H

#include <stdio.h>

#include "libcoll/comm/inspect.h"
#include "libcoll/cost/weights.h"
#include "libcoll/tuning/select.h"

#define CLUSTER_LEVELS        (COLLI_INNER_LEVELS + 1)
#define CLUSTER_MACHINES      4096
#define CLUSTER_MACHINE_BYTES (16 << 20) /* of the XML of one */

typedef struct cluster_level {
  int names;            /* how many names of a host's levels its groups have; 0: they are hosts */
  colli_pair_cost cost; /* inside; beta 0: as near */
  int32_t *group;       /* of each rank, from 0 on in the order of their first ranks */
  int ngroups;
} cluster_level;

typedef struct cluster_host {
  int machine;
  double link_mbit; /* 0: not known */
  char name[64];
  char levels[COLLI_LEVELS_BYTES]; /* "": none */
} cluster_host;

typedef struct cluster_machine {
  char *xml; /* of a cluster that was read: ends with a 0 as well */
  size_t bytes;
} cluster_machine;

typedef struct cluster {
  int nranks, nhosts, nlevels, nmachines;
  int nlinks; /* 0, or groups of the first level, hosts whose links differ: */
  double *link_ns_per_byte;
  colli_model model; /* its pointers are NULL */
  colli_limits limits;
  cluster_level level[CLUSTER_LEVELS]; /* nearest first */
  int *host;                           /* of each rank */
  int *core;
  cluster_host *hosts;
  cluster_machine *machines;
} cluster;

/* What a file has of a model, in its order. */
typedef struct cluster_model {
  double *number[14];
  bool *flag[6];
} cluster_model;

cluster_model cluster_model_of(colli_model *model);

/* Makes room for the numbers of things that it has. False: out of memory. */
bool cluster_allocate(cluster *c);
void cluster_free(cluster *c);

/* Whether a file begins as one of these. */
bool cluster_is_file(const char *path);

/* Reads a file. Errors: INVALID_ARGUMENT, in one line with the number of the bad one; NO_MEMORY. */
coll_status cluster_read(const char *path, cluster *out, coll_error *error);

/* Writes one; the caller looks whether the file took it. */
void cluster_write(const cluster *c, FILE *out);

#endif
