/* network.c: what the ranks of a run send each other, by their schedules. */
#include "libcoll/tools/topo/network.h"

#include <stdlib.h>

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

coll_status topo_network_make(coll_comm *comm, colli_coll coll, size_t bytes, topo_network *out,
                              coll_error *error) {
  const colli_shape shape = colli_comm_shape(comm, coll);
  const size_t n = (size_t)shape.nranks;
  *out = (topo_network){.comm = comm, .nranks = shape.nranks};
  if (shape.nranks > TOPO_NETWORK_RANKS)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, "network",
                           "a network of %d ranks cannot be shown: the most are %d", shape.nranks,
                           TOPO_NETWORK_RANKS);
  list_levels(&shape, out);
  colli_choice choice;
  const size_t count = bytes / coll_type_bytes(COLL_FLOAT32);
  coll_status status = colli_comm_choice(comm, &shape, count, &choice, error);
  if (status != COLL_OK)
    return status;
  out->bytes = calloc(n * n, sizeof(*out->bytes));
  status = out->bytes ? add_all(&choice, &shape, out->bytes) : COLL_ERR_NO_MEMORY;
  if (status != COLL_OK)
    return colli_error_set(error, status, "network", "cannot make the schedules of %zu ranks: %s",
                           n, coll_status_name(status));
  snprintf(out->title, sizeof(out->title), "%s of %zu bytes%s: %s", colli_coll_name(coll), bytes,
           colli_exact(coll) ? " a block" : "", choice.algo->name);
  for (size_t i = 0; i < n * n; i++)
    out->bytes[i] *= (double)coll_type_bytes(COLL_FLOAT32);
  for (size_t a = 0; a < n; a++)
    for (size_t b = 0; b < n; b++)
      out->across[topo_network_meet(out, (int)a, (int)b)] += out->bytes[a * n + b];
  return COLL_OK;
}

void topo_network_free(topo_network *network) {
  free(network->bytes);
  network->bytes = NULL;
}
