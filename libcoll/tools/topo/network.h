/*
 * network.h: a network for coll_topo, that of a run or a described one: which ranks are on which
 * host, in which rack and so on, and what they send each other in a collective, in a picture of
 * ranks or, if these are many, of whole hosts or racks.
 */
#ifndef COLLI_TOOLS_TOPO_NETWORK_H
#define COLLI_TOOLS_TOPO_NETWORK_H

#include <stdio.h>

#include "libcoll/comm/inspect.h"
#include "libcoll/tools/described/described.h"

#define TOPO_NETWORK_LEVELS (COLLI_INNER_LEVELS + 1)
#define TOPO_NETWORK_RANKS  256 /* of more, groups are drawn whole */
#define TOPO_NETWORK_UNITS  512

/* What one unit of the picture sends another one, and over what, as far as that is known. */
typedef struct topo_flow {
  double bytes;
  int rails; /* of a pair of ranks, together in both ways; 0: not known */
  int lost;  /* those of them that do not work */
} topo_flow;

/* What is drawn whole: each rank, or each group of the narrowest level that has few enough. */
typedef struct topo_unit {
  int first; /* rank */
  int nranks;
} topo_unit;

typedef struct topo_network {
  const coll_comm *comm;  /* NULL: a described one */
  const cluster *cluster; /* that of --input, or NULL */
  int nranks;
  int nlevels;                               /* of groups of several ranks: hosts first */
  const int32_t *group[TOPO_NETWORK_LEVELS]; /* of each rank, at each level */
  int unit_level;                            /* -1: units are ranks */
  int nunits;
  topo_unit *units;
  topo_flow *flows;                       /* [from * nunits + to] */
  double across[TOPO_NETWORK_LEVELS + 1]; /* bytes between ranks that meet at a level */
  colli_coll coll;                        /* what is sent */
  size_t bytes;                           /* of its vector or blocks */
  const char *algo;                       /* that is chosen */
  char title[128];                        /* "allreduce of 1048576 bytes: hier_ring" */
} topo_network;

/* Finds the ranks and groups of a communicator, or of a described network. */
topo_network topo_network_of_run(coll_comm *comm);
topo_network topo_network_of(const described_network *net, const answer *a);

/*
 * Finds what a collective of so many bytes (of the whole vector or a block, float32) sends, with
 * root 0. Freed with topo_network_free(). Errors: NO_MEMORY, INVALID_ARGUMENT (too many ranks),
 * those of the choice.
 */
coll_status topo_network_fill_run(topo_network *network, coll_comm *comm, colli_coll coll,
                                  size_t bytes, coll_error *error);

/* The same for a described network, for the collective in answer->shape. */
coll_status topo_network_fill(topo_network *network, answer *a, size_t bytes, coll_error *error);
void topo_network_free(topo_network *network);

static inline topo_flow *topo_network_flow(const topo_network *network, int from, int to) {
  return &network->flows[(size_t)from * (size_t)network->nunits + (size_t)to];
}

/* The unit of a rank. */
static inline int topo_network_unit(const topo_network *network, int rank) {
  return network->unit_level < 0 ? rank : network->group[network->unit_level][rank];
}

/* The level at which two ranks meet: 0 on one host; nlevels: in no group. */
int topo_network_meet(const topo_network *network, int a, int b);

/* What the group of a rank is called at a level. */
void topo_network_name(const topo_network *network, int level, int rank, char *text, size_t room);

/* Draws it as SVG (network_svg.c). False: out of memory. */
bool topo_network_svg(const topo_network *network, FILE *out);

#endif
