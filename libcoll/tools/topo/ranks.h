/* ranks.h: the ranks of a run as they describe themselves, for coll_topo. */
#ifndef COLLI_TOOLS_TOPO_RANKS_H
#define COLLI_TOOLS_TOPO_RANKS_H

#include <stdio.h>

#include "libcoll/comm/inspect.h"
#include "libcoll/tools/topo/paths.h"
#include "topology/topology.h"

#define TOPO_TABLE                                                                                 \
  32                 /* ranks of which each pair is shown; a larger table would not be readable    \
                      */
#define TOPO_KINDS 8 /* kinds of links that one rank can report */

/* A kind of link: transport, and why it was chosen. */
typedef struct topo_kind {
  char transport[16];
  char reason[COLLI_LINK_REASON];
} topo_kind;

/* A rank's report about itself, followed by nranks bytes: the kind of its link to each rank. */
typedef struct topo_report {
  int32_t core;
  int32_t numa_node;
  int32_t nkinds;
  topo_kind kinds[TOPO_KINDS];
} topo_report;

/* All ranks' reports, as the all-gather leaves them. */
typedef struct topo_ranks {
  coll_comm *comm;
  int nranks;
  size_t bytes; /* of one report with its links */
  unsigned char *all;
} topo_ranks;

/* Gathers all ranks' reports, on all ranks. Errors: NO_MEMORY, those of an all-gather. */
coll_status topo_ranks_gather(coll_comm *comm, const colli_topo *topo, topo_ranks *out);
void topo_ranks_free(topo_ranks *ranks);

/* Prints where each rank is, the transport of each pair, why, and by which ways. */
void topo_ranks_print(const topo_ranks *from, const topo_paths *paths, FILE *out);

/* Prints the reasons for the links, each once. */
void topo_ranks_print_reasons(const topo_ranks *from, const char *indent, FILE *out);

/* The kind of the link from one rank to another. */
const topo_kind *topo_ranks_link(const topo_ranks *from, int rank, int peer);

/* Over how many rails two ranks talk, as far as they tell (0: not known), and how many of these do
 * not work. */
void topo_ranks_rails(const topo_ranks *from, const topo_paths *paths, int rank, int peer,
                      int *rails, int *lost);

/* Prints ranks that have no core in the picture of rank 0's host. */
void topo_ranks_print_elsewhere(const topo_ranks *from, FILE *out);

/* The core of a rank on its own host, or -1, and its NUMA node. */
int topo_ranks_core(const topo_ranks *from, int rank);
int topo_ranks_numa_node(const topo_ranks *from, int rank);

/* Where the speed of a host's link comes from. */
const char *topo_ranks_speed_source(uint64_t source);

/* Whether a pair is the first one with its kind of link; *count receives their number. */
bool topo_ranks_is_first(const topo_ranks *from, int rank, int peer, int *count);

/* The core of each rank in that picture, or -1. */
void topo_ranks_cores(const topo_ranks *from, int *cores);

/* Prints in which group both of two ranks are, by the levels of their hosts. */
void topo_print_nearest(bool one_host, const char *left, const char *right, FILE *out);

/* Prints what a message between two ranks is assumed to cost. */
void topo_print_cost(colli_pair_cost cost, FILE *out);

/* Prints why the two ranks that were asked for their ways talk as they do. */
void topo_ranks_explain(const topo_ranks *from, const topo_paths *paths, FILE *out);

#endif
