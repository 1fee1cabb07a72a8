/*
 * network.h: a network for coll_topo, that of a run or a described one: which ranks are on which
 * host, in which rack and so on, and what they send each other in a collective.
 */
#ifndef COLLI_TOOLS_TOPO_NETWORK_H
#define COLLI_TOOLS_TOPO_NETWORK_H

#include <stdio.h>

#include "libcoll/comm/inspect.h"
#include "libcoll/tools/described/described.h"

#define TOPO_NETWORK_LEVELS (COLLI_INNER_LEVELS + 1)
#define TOPO_NETWORK_RANKS  256 /* with more, a picture of what each sends would be all lines */

typedef struct topo_network {
  const coll_comm *comm;  /* NULL: a described one */
  const cluster *cluster; /* that of --input, or NULL */
  int nranks;
  int nlevels;                               /* of groups of several ranks: hosts first */
  const int32_t *group[TOPO_NETWORK_LEVELS]; /* of each rank, at each level */
  double *bytes;                             /* [from * nranks + to] what ranks send */
  double across[TOPO_NETWORK_LEVELS + 1];    /* bytes between ranks that meet at a level */
  char title[128];                           /* "allreduce of 1048576 bytes: hier_ring" */
} topo_network;

/*
 * Finds the network of a communicator, and what a collective of so many bytes (of the whole vector
 * or a block, float32) sends, with root 0. Freed with topo_network_free(). Errors: NO_MEMORY,
 * INVALID_ARGUMENT (too many ranks), those of the choice.
 */
coll_status topo_network_make(coll_comm *comm, colli_coll coll, size_t bytes, topo_network *out,
                              coll_error *error);

/* The same for a described network, for the collective in answer->shape. */
coll_status topo_network_describe(const described_network *net, answer *a, size_t bytes,
                                  topo_network *out, coll_error *error);
void topo_network_free(topo_network *network);

/* The level at which two ranks meet: 0 on one host; nlevels: in no group. */
int topo_network_meet(const topo_network *network, int a, int b);

/* What the group of a rank is called at a level. */
void topo_network_name(const topo_network *network, int level, int rank, char *text, size_t room);

/* Draws it as SVG (network_svg.c). False: out of memory. */
bool topo_network_svg(const topo_network *network, FILE *out);

#endif
