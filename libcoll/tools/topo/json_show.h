/* json_show.h: files of JSON; and what only this machine tells. */
#ifndef COLLI_TOOLS_TOPO_JSON_SHOW_H
#define COLLI_TOOLS_TOPO_JSON_SHOW_H

#include "libcoll/tools/topo/json.h"

/* ---- here.c ---------------------------------------------------------------------------------- */

/* Prints the network devices that a rank would use here, and the GPUs. */
void topo_here_print(const colli_topo *topo);

/* The same as JSON. False: out of memory. */
bool topo_here_json(const colli_topo *topo, colli_json *json);

/* ---- json_show.c: each writes a file, and returns the exit status ---------------------------- */

/* `network`: what ranks send each other; NULL: was not asked. */

/* A machine, and the places of ranks on it; `here`: it is this one. */
int topo_json_show_machine(const char *path, const colli_topo *topo, int nranks, bool here);

/* This machine, and the ranks of a run. */
int topo_json_show_run(const char *path, const colli_topo *topo, const topo_ranks *from,
                       const topo_paths *paths, const topo_network *network);

/* A cluster from a file of a name. */
int topo_json_show_cluster(const char *path, const cluster *c, const char *source,
                           const topo_network *network);

/* What ranks of a described network send each other, and no more. */
int topo_json_show_network(const char *path, const topo_network *network);

#endif
