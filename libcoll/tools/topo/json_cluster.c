/* json_cluster.c: a cluster and the links of a run as JSON. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/tools/topo/json.h"

/* The machines, each as its file would be shown. */
static bool put_machines(const cluster *c, const char *path, colli_json *json, coll_error *error) {
  coll_error why = COLL_ERROR_INIT;
  bool made = true;
  colli_json_open(json, "machines", '[');
  for (int i = 0; i < c->nmachines && made; i++) {
    colli_topo *topo = NULL;
    coll_status status = colli_topo_load(c->machines[i].xml, &topo, &why);
    made = status == COLL_OK;
    if (!made) {
      (void)colli_error_set(error, status, "topology", "machine %d of %s: %s", i, path,
                            why.message);
    } else {
      snprintf(topo->source, sizeof(topo->source), "machine %d", i);
      topo_json_machine(topo, NULL, json);
    }
    colli_topo_free(topo);
  }
  colli_json_close(json, ']');
  return made;
}

/* The names of a host's levels, the widest first. */
static void put_names(const char *levels, colli_json *json) {
  char name[COLLI_LEVELS_BYTES];
  colli_json_open(json, "level_names", '[');
  for (size_t length; *levels; levels += length + (levels[length] == '/')) {
    length = strcspn(levels, "/");
    snprintf(name, sizeof(name), "%.*s", (int)length, levels);
    colli_json_text(json, NULL, name);
  }
  colli_json_close(json, ']');
}

/* The ranks of hosts or groups: the first of each, and the next behind each rank, or -1. */
typedef struct members {
  int *first, *next;
} members;

/* Finds them, in memory for as many as there are ranks. */
static void find_members(const int32_t *group, int nranks, members *m) {
  for (int i = 0; i < nranks; i++)
    m->first[i] = -1;
  for (int rank = nranks - 1; rank >= 0; rank--) {
    m->next[rank] = m->first[group[rank]];
    m->first[group[rank]] = rank;
  }
}

/* The ranks of a host or group. */
static void put_members(const members *m, int number, const char *name, colli_json *json) {
  colli_json_open(json, name, '[');
  for (int rank = m->first[number]; rank >= 0; rank = m->next[rank])
    colli_json_int(json, NULL, rank);
  colli_json_close(json, ']');
}

static void put_hosts(const cluster *c, const topo_ranks *from, members *m, colli_json *json) {
  find_members(c->host, c->nranks, m);
  colli_json_open(json, "hosts", '[');
  for (int i = 0; i < c->nhosts; i++) {
    const cluster_host *host = &c->hosts[i];
    colli_json_open(json, NULL, '{');
    colli_json_int(json, "host", i);
    colli_json_text(json, "name", host->name);
    if (!from)
      colli_json_int(json, "machine", host->machine);
    put_names(host->levels, json);
    colli_json_number(json, "link_mbit", host->link_mbit > 0 ? host->link_mbit : NAN);
    if (from)
      colli_json_text(
          json, "link_source",
          host->link_mbit > 0
              ? topo_ranks_speed_source(colli_comm_info(from->comm, m->first[i]).link_source)
              : NULL);
    put_members(m, i, "ranks", json);
    colli_json_close(json, '}');
  }
  colli_json_close(json, ']');
}

/* Groups, the nearest first, and what messages inside one are assumed to cost; and between those of
 * the widest level. */
static void put_levels(const cluster *c, members *m, colli_json *json) {
  colli_json_open(json, "levels", '[');
  for (int i = 0; i < c->nlevels; i++) {
    const cluster_level *level = &c->level[i];
    const bool given = level->cost.beta_ns_per_byte > 0;
    colli_json_open(json, NULL, '{');
    colli_json_int(json, "level_name_count", level->names);
    colli_json_number(json, "alpha_ns", given ? level->cost.alpha_ns : c->model.near_alpha_ns);
    colli_json_number(json, "beta_ns_per_byte",
                      given ? level->cost.beta_ns_per_byte : c->model.near_beta_ns_per_byte);
    find_members(level->group, c->nranks, m);
    colli_json_open(json, "groups", '[');
    for (int group = 0; group < level->ngroups; group++)
      put_members(m, group, NULL, json);
    colli_json_close(json, ']');
    colli_json_close(json, '}');
  }
  colli_json_close(json, ']');
  colli_json_open(json, "beyond_levels", '{');
  colli_json_number(json, "alpha_ns", c->model.alpha_ns);
  colli_json_number(json, "beta_ns_per_byte", c->model.beta_ns_per_byte);
  colli_json_close(json, '}');
}

static void put_ranks(const cluster *c, const topo_ranks *from, colli_json *json) {
  colli_json_open(json, "ranks", '[');
  for (int rank = 0; rank < c->nranks; rank++) {
    colli_json_open(json, NULL, '{');
    colli_json_int(json, "rank", rank);
    colli_json_int(json, "host", c->host[rank]);
    colli_json_int(json, "core", c->core[rank]);
    if (from) {
      colli_json_int(json, "pid", colli_comm_info(from->comm, rank).pid);
      colli_json_int(json, "numa_node", topo_ranks_numa_node(from, rank));
    }
    colli_json_close(json, '}');
  }
  colli_json_close(json, ']');
}

bool topo_json_cluster(const cluster *c, const char *path, const topo_ranks *from, colli_json *json,
                       coll_error *error) {
  const size_t bytes = (size_t)c->nranks * sizeof(int);
  members m = {malloc(bytes), malloc(bytes)};
  const bool made = m.first && m.next && (from || put_machines(c, path, json, error));
  if (made) {
    put_hosts(c, from, &m, json);
    put_levels(c, &m, json);
    put_ranks(c, from, json);
  }
  free(m.first);
  free(m.next);
  return made;
}

/* ---- links of a run -------------------------------------------------------------------------- */

/* The ways of a pair, which are words with commas between them. */
static void put_ways(const char *ways, colli_json *json) {
  char way[TOPO_PATHS_BYTES];
  colli_json_open(json, "ways", '[');
  while (*ways) {
    const char *end = strstr(ways, ", ");
    const size_t length = end ? (size_t)(end - ways) : strlen(ways);
    snprintf(way, sizeof(way), "%.*s", (int)length, ways);
    colli_json_text(json, NULL, way);
    ways += length + (end ? 2 : 0);
  }
  colli_json_close(json, ']');
}

/* The link from one rank to another. */
static void put_link(const topo_ranks *from, const topo_paths *paths, int rank, int peer,
                     colli_json *json) {
  const topo_kind *link = topo_ranks_link(from, rank, peer);
  const colli_pair_cost cost = colli_comm_pair_cost(from->comm, rank, peer);
  int rails, lost;
  topo_ranks_rails(from, paths, rank, peer, &rails, &lost);
  colli_json_open(json, NULL, '{');
  colli_json_int(json, "from", rank);
  colli_json_int(json, "to", peer);
  colli_json_text(json, "transport", link->transport);
  colli_json_text(json, "why", link->reason);
  colli_json_int(json, "rail_count", rails > 0 ? rails : -1);
  colli_json_int(json, "unconnected_rail_count", rails > 0 ? lost : -1);
  put_ways(topo_paths_of(paths, rank, peer), json);
  colli_json_number(json, "alpha_ns", cost.alpha_ns);
  colli_json_number(json, "beta_ns_per_byte", cost.beta_ns_per_byte);
  colli_json_close(json, '}');
}

void topo_json_links(const topo_ranks *from, const topo_paths *paths, colli_json *json) {
  colli_json_open(json, "link_kinds", '[');
  for (int rank = 0; rank < from->nranks; rank++)
    for (int peer = 0; peer < from->nranks; peer++) {
      int count;
      if (rank == peer || !topo_ranks_is_first(from, rank, peer, &count))
        continue;
      colli_json_open(json, NULL, '{');
      colli_json_text(json, "transport", topo_ranks_link(from, rank, peer)->transport);
      colli_json_text(json, "why", topo_ranks_link(from, rank, peer)->reason);
      colli_json_int(json, "link_count", count);
      colli_json_int(json, "first_from", rank);
      colli_json_int(json, "first_to", peer);
      colli_json_close(json, '}');
    }
  colli_json_close(json, ']');
  colli_json_open(json, "links", '[');
  for (int rank = 0; rank < from->nranks && from->nranks <= TOPO_TABLE; rank++)
    for (int peer = 0; peer < from->nranks; peer++)
      if (rank != peer)
        put_link(from, paths, rank, peer, json);
  colli_json_close(json, ']');
}
