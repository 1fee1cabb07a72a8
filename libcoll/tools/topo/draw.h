/* draw.h: what coll_topo does with a network: pictures, and why two ranks of one that does not run
 * would talk as they do. */
#ifndef COLLI_TOOLS_TOPO_DRAW_H
#define COLLI_TOOLS_TOPO_DRAW_H

#include "libcoll/tools/topo/network.h"
#include "libcoll/tools/topo/ranks.h"
#include "libcoll/tools/topo/request.h"

/* Draws the network of a run, or a described one, or writes JSON that has what is drawn; the exit
 * status. */
int topo_draw_run(const request *asked, coll_comm *comm, const colli_topo *topo,
                  const topo_ranks *from, const topo_paths *paths);
int topo_draw_described(const request *asked);

/* predict.c: prints why two ranks of a described network would talk as they do; the exit status. */
int topo_predict(const request *asked);

#endif
