/* json.h: what coll_topo shows, as JSON; docs/topology.md describes it. */
#ifndef COLLI_TOOLS_TOPO_JSON_H
#define COLLI_TOOLS_TOPO_JSON_H

#include "libcoll/tools/described/cluster.h"
#include "libcoll/tools/json/json.h"
#include "libcoll/tools/topo/gpus.h"
#include "libcoll/tools/topo/network.h"
#include "libcoll/tools/topo/ranks.h"

/* ---- json_machine.c -------------------------------------------------------------------------- */

/* A machine, as a value of that name. */
void topo_json_machine(const colli_topo *topo, const char *name, colli_json *json);

/* The ranks on it. */
void topo_json_machine_ranks(const colli_topo *topo, const int *cores, int nranks,
                             colli_json *json);

/* Lines of text, as a list. */
void topo_json_lines(const char *text, const char *name, colli_json *json);

/* The GPUs that CUDA's driver knows. */
void topo_json_gpus(const topo_gpus *gpus, colli_json *json);

/* ---- json_cluster.c -------------------------------------------------------------------------- */

/* The machines, hosts, levels and ranks of a cluster. `from` is NULL unless they run, `path` if
 * they do. False: a machine could not be read, as *error says, or there is no memory. */
bool topo_json_cluster(const cluster *c, const char *path, const topo_ranks *from, colli_json *json,
                       coll_error *error);

/* The links of a run, of each kind, and between each pair if that is a table. */
void topo_json_links(const topo_ranks *from, const topo_paths *paths, colli_json *json);

/* ---- json_network.c -------------------------------------------------------------------------- */

/* What ranks send each other in an operation, or groups of ranks that are drawn whole. */
void topo_json_messages(const topo_network *network, colli_json *json);

#endif
