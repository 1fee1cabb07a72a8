/* network.c: what the ranks of a network send each other, by their schedules. */
#include "libcoll/tools/topo/network.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/algo/algo.h"
#include "libcoll/base/error.h"

/* Lists the levels of a shape, hosts first. */
static void list_levels(const colli_shape *shape, topo_network *out) {
  for (int level = 0; level < shape->ninner; level++)
    out->group[out->nlevels++] = shape->inner[level];
  if (shape->ngroups > 1)
    out->group[out->nlevels++] = shape->group;
}

int topo_network_meet(const topo_network *network, int a, int b) {
  int level = 0;
  while (level < network->nlevels && network->group[level][a] != network->group[level][b])
    level++;
  return level;
}

/* Adds what all ranks send, in elements. */
static coll_status add_all(const colli_choice *choice, const colli_shape *shape, double *sent) {
  colli_shape mine = *shape;
  for (mine.rank = 0; mine.rank < mine.nranks; mine.rank++) {
    colli_sched *sched;
    const coll_status status = colli_algo_emit(choice->algo, &mine, &sched);
    if (status != COLL_OK)
      return status;
    colli_partition_sent(&choice->partition, sched, sent + (size_t)mine.rank * (size_t)mine.nranks);
    colli_sched_free(sched);
  }
  return COLL_OK;
}

/* Adds up what a choice sends, and says what it is. */
static coll_status add_up(const colli_choice *choice, const colli_shape *shape, size_t bytes,
                          topo_network *out) {
  const size_t n = (size_t)shape->nranks;
  out->bytes = calloc(n * n, sizeof(*out->bytes));
  const coll_status status = out->bytes ? add_all(choice, shape, out->bytes) : COLL_ERR_NO_MEMORY;
  if (status != COLL_OK)
    return status;
  snprintf(out->title, sizeof(out->title), "%s of %zu bytes%s: %s", colli_coll_name(shape->coll),
           bytes, colli_exact(shape->coll) ? " a block" : "", choice->algo->name);
  for (size_t i = 0; i < n * n; i++)
    out->bytes[i] *= (double)coll_type_bytes(COLL_FLOAT32);
  for (size_t a = 0; a < n; a++)
    for (size_t b = 0; b < n; b++)
      out->across[topo_network_meet(out, (int)a, (int)b)] += out->bytes[a * n + b];
  return COLL_OK;
}

/* Finds what is sent with the algorithm that is chosen. */
static coll_status make(const colli_shape *shape, colli_chooser *chooser, size_t bytes,
                        topo_network *out, coll_error *error) {
  const size_t elem = coll_type_bytes(COLL_FLOAT32), count = bytes / elem;
  if (shape->nranks > TOPO_NETWORK_RANKS)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, "network",
                           "a network of %d ranks cannot be shown: the most are %d", shape->nranks,
                           TOPO_NETWORK_RANKS);
  list_levels(shape, out);
  colli_choice choice;
  coll_status status = colli_choose(chooser, shape, count, elem, count * elem, &choice, error);
  if (status != COLL_OK)
    return status;
  status = add_up(&choice, shape, bytes, out);
  if (status != COLL_OK)
    return colli_error_set(error, status, "network", "cannot make the schedules of %d ranks: %s",
                           shape->nranks, coll_status_name(status));
  return COLL_OK;
}

coll_status topo_network_make(coll_comm *comm, colli_coll coll, size_t bytes, topo_network *out,
                              coll_error *error) {
  const colli_shape shape = colli_comm_shape(comm, coll);
  *out = (topo_network){.comm = comm, .nranks = shape.nranks};
  return make(&shape, colli_comm_chooser(comm), bytes, out, error);
}

coll_status topo_network_describe(const described_network *net, answer *a, size_t bytes,
                                  topo_network *out, coll_error *error) {
  *out = (topo_network){.cluster = net->cluster, .nranks = a->shape.nranks};
  return make(&a->shape, &a->chooser, bytes, out, error);
}

/* What a group of a described network is called, which has no names: hosts are numbered, and wider
 * groups have those of their ranks, which follow each other. */
static void name_described(const topo_network *network, int level, int rank, char *text,
                           size_t room) {
  const int32_t *group = network->group[level];
  int first = rank, last = rank;
  while (first > 0 && group[first - 1] == group[rank])
    first--;
  while (last + 1 < network->nranks && group[last + 1] == group[rank])
    last++;
  if (level == 0)
    snprintf(text, room, "host %d", (int)group[rank]);
  else
    snprintf(text, room, "ranks %d to %d", first, last);
}

/* The name of that number, from 1 on, of a host's levels. */
static void name_level(const char *levels, int number, char *text, size_t room) {
  for (; number > 1; number--) {
    const char *slash = strchr(levels, '/');
    levels = slash ? slash + 1 : levels;
  }
  snprintf(text, room, "%.*s", (int)strcspn(levels, "/"), levels);
}

void topo_network_name(const topo_network *network, int level, int rank, char *text, size_t room) {
  colli_rank_info info;
  if (network->comm)
    info = colli_comm_info(network->comm, rank);
  const cluster *c = network->cluster;
  const cluster_host *host = c ? &c->hosts[c->host[rank]] : NULL;
  if (network->comm == NULL && host == NULL)
    name_described(network, level, rank, text, room);
  else if (level == 0)
    snprintf(text, room, "host %s", network->comm ? info.host : host->name);
  else
    name_level(network->comm ? info.levels : host->levels,
               network->comm ? colli_comm_level_names(network->comm, level) : c->level[level].names,
               text, room);
}

void topo_network_free(topo_network *network) {
  free(network->bytes);
  network->bytes = NULL;
}
