/* paths.h: which ways through the network the messages of a run take, for coll_topo. */
#ifndef COLLI_TOOLS_TOPO_PATHS_H
#define COLLI_TOOLS_TOPO_PATHS_H

#include <stdio.h>

#include "libcoll/comm/inspect.h"

#define TOPO_PATHS_RANKS 32 /* of more, only one pair is asked: all would have to connect */
#define TOPO_PATHS_LOST  "(not connected)" /* behind a way that could be and is not there */
#define TOPO_PATHS_BYTES 640               /* of the ways between two ranks, in words */

/* What each rank says of its ways to others. */
typedef struct topo_paths {
  const coll_comm *comm;
  int nranks;
  int pair[2]; /* the only two that say something; or -1 */
  int slots;   /* texts of each rank: one, or one for each peer; 0: nobody says anything */
  char (*all)[TOPO_PATHS_BYTES];
} topo_paths;

/*
 * Asks all ranks, or two, and gathers what they say on all ranks. Connects those that are asked,
 * and waits up to three seconds until they have all the ways that there could be. Errors:
 * NO_MEMORY, those of collectives.
 */
coll_status topo_paths_gather(coll_comm *comm, const int pair[2], topo_paths *out);
void topo_paths_free(topo_paths *paths);

/* The ways from one rank to another, of a single pair also the network's shortest round trip; "":
 * nothing is known. */
const char *topo_paths_of(const topo_paths *paths, int rank, int peer);

/* Prints the ways between all pairs, those of the same addresses once. */
void topo_paths_print(const topo_paths *paths, FILE *out);

#endif
