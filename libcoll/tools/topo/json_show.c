/* json_show.c: writes files of JSON. */
#include "libcoll/tools/topo/json_show.h"

#include <stdlib.h>

#include "libcoll/tools/topo/files.h"
#include "libcoll/tools/topo/gather.h"

/* Begins a file. */
static bool begin(const char *path, topo_file *file, colli_json *json) {
  if (!topo_file_open(file, path))
    return false;
  *json = (colli_json){.out = file->out};
  colli_json_open(json, NULL, '{');
  colli_json_int(json, "version", 1);
  return true;
}

/* Ends a file. If not `made`, says why not: `why`, or that there is no memory. */
static int end(topo_file *file, colli_json *json, bool made, const char *why) {
  colli_json_close(json, '}');
  if (!made)
    fprintf(stderr, "coll_topo: %s\n", why && *why ? why : "out of memory");
  return topo_file_close(file, made);
}

int topo_json_show_machine(const char *path, const colli_topo *topo, int nranks, bool here) {
  topo_file file;
  colli_json json;
  int *cores = calloc((size_t)nranks + 1, sizeof(*cores));
  if (!begin(path, &file, &json)) {
    free(cores);
    return 1;
  }
  topo_json_machine(topo, "machine", &json);
  const bool made = cores && (!here || topo_here_json(topo, &json));
  if (cores) {
    colli_topo_place(topo, nranks, cores);
    topo_json_machine_ranks(topo, cores, nranks, &json);
  }
  free(cores);
  return end(&file, &json, made, NULL);
}

int topo_json_show_run(const char *path, const colli_topo *topo, const topo_ranks *from,
                       const topo_paths *paths, const topo_network *network) {
  topo_file file;
  colli_json json;
  cluster all;
  bool made = topo_cluster_outline(from, &all);
  coll_error error = COLL_ERROR_INIT;
  if (!begin(path, &file, &json)) {
    cluster_free(&all);
    return 1;
  }
  topo_json_machine(topo, "machine", &json);
  made = made && topo_here_json(topo, &json) && topo_json_cluster(&all, NULL, from, &json, &error);
  if (made)
    topo_json_links(from, paths, &json);
  if (made && network)
    topo_json_messages(network, &json);
  cluster_free(&all);
  return end(&file, &json, made, NULL);
}

int topo_json_show_cluster(const char *path, const cluster *c, const char *source,
                           const topo_network *network) {
  topo_file file;
  colli_json json;
  coll_error error = COLL_ERROR_INIT;
  if (!begin(path, &file, &json))
    return 1;
  colli_json_text(&json, "source", source);
  const bool made = topo_json_cluster(c, source, NULL, &json, &error);
  if (made && network)
    topo_json_messages(network, &json);
  return end(&file, &json, made, error.message);
}

int topo_json_show_network(const char *path, const topo_network *network) {
  topo_file file;
  colli_json json;
  if (!begin(path, &file, &json))
    return 1;
  topo_json_messages(network, &json);
  return end(&file, &json, true, NULL);
}
