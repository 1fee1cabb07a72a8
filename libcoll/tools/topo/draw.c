/* draw.c: draws networks, of runs and described ones. */
#include "libcoll/tools/topo/draw.h"

#include "libcoll/tools/topo/files.h"
#include "libcoll/tools/topo/json_show.h"

/* Writes the picture of a network; returns the exit status. */
static int write_network(const request *asked, const topo_network *network) {
  topo_file file;
  if (!topo_file_open(&file, asked->network))
    return 1;
  const bool drawn = topo_network_svg(network, file.out);
  if (!drawn)
    fputs("coll_topo: out of memory\n", stderr);
  return topo_file_close(&file, drawn);
}

/* Adds the rails between units, as their first ranks tell. Each rank tells of its own ends. */
static void add_rails(const topo_ranks *from, const topo_paths *paths, topo_network *network) {
  for (int a = 0; a < network->nunits; a++)
    for (int b = 0; b < network->nunits; b++) {
      topo_flow *flow = topo_network_flow(network, a, b);
      topo_ranks_rails(from, paths, network->units[a].first, network->units[b].first, &flow->rails,
                       &flow->lost);
    }
}

int topo_draw_run(const request *asked, coll_comm *comm, const colli_topo *topo,
                  const topo_ranks *from, const topo_paths *paths) {
  topo_network network = topo_network_of_run(comm);
  coll_error error = COLL_ERROR_INIT;
  int status = 1;
  if (topo_network_fill_run(&network, comm, asked->coll, asked->bytes, &error) == COLL_OK) {
    add_rails(from, paths, &network);
    status = asked->json != NULL ? topo_json_show_run(asked->json, topo, from, paths, &network)
                                 : write_network(asked, &network);
  } else {
    fprintf(stderr, "coll_topo: %s\n", error.message);
  }
  topo_network_free(&network);
  return status;
}

/* Writes a described network as JSON or as a picture. */
static int write_described(const request *asked, const topo_network *network) {
  if (asked->json == NULL)
    return write_network(asked, network);
  if (asked->net.cluster != NULL)
    return topo_json_show_cluster(asked->json, asked->net.cluster, asked->source, network);
  return topo_json_show_network(asked->json, network);
}

int topo_draw_described(const request *asked) {
  static answer a;
  coll_error error = COLL_ERROR_INIT;
  int status = 1;
  a.shape = (colli_shape){.coll = asked->coll,
                          .order = colli_order_of_sums(COLL_DETERMINISTIC_OFF, asked->coll)};
  described_set_up(&asked->net, NULL, &a);
  topo_network network = topo_network_of(&asked->net, &a);
  if (topo_network_fill(&network, &a, asked->bytes, &error) == COLL_OK)
    status = write_described(asked, &network);
  else
    fprintf(stderr, "coll_topo: %s\n", error.message);
  topo_network_free(&network);
  described_free(&a);
  return status;
}
