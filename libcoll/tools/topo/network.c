/* network.c: what the ranks of a network send each other, by their schedules. */
#include "libcoll/tools/topo/network.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/algo/algo.h"
#include "libcoll/algo/hier_layout.h"
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

/* ---- what is drawn --------------------------------------------------------------------------- */

/* The number of groups of a level. */
static int count_groups(const topo_network *network, int level) {
  int count = 0;
  for (int rank = 0; rank < network->nranks; rank++)
    if (network->group[level][rank] >= count)
      count = network->group[level][rank] + 1;
  return count;
}

/* Chooses what is drawn whole. */
static coll_status choose_units(topo_network *out, coll_error *error) {
  out->unit_level = -1;
  out->nunits = out->nranks;
  if (out->nranks <= TOPO_NETWORK_RANKS)
    return COLL_OK;
  while (++out->unit_level < out->nlevels) {
    out->nunits = count_groups(out, out->unit_level);
    if (out->nunits <= TOPO_NETWORK_UNITS)
      return COLL_OK;
  }
  if (out->nlevels == 0)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, "network",
                           "a network of %d ranks that are in no groups cannot be shown: the most "
                           "are %d; say which are on one host",
                           out->nranks, TOPO_NETWORK_RANKS);
  return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, "network",
                         "a network of %d ranks in %d groups cannot be shown: the most are %d; say "
                         "which groups are in one rack or at one site",
                         out->nranks, out->nunits, TOPO_NETWORK_UNITS);
}

/* Makes room for units and what they send, and finds their ranks. False: out of memory. */
static bool make_units(topo_network *out) {
  const size_t n = (size_t)out->nunits;
  out->units = calloc(n, sizeof(*out->units));
  out->flows = calloc(n * n, sizeof(*out->flows));
  if (!out->units || !out->flows)
    return false;
  for (int rank = out->nranks - 1; rank >= 0; rank--) {
    topo_unit *unit = &out->units[topo_network_unit(out, rank)];
    unit->first = rank;
    unit->nranks++;
  }
  return true;
}

/* ---- what is sent ---------------------------------------------------------------------------- */

/* Adds what a rank sends; `sent` is a row of zeros, and is left as one. */
static coll_status add_rank(const colli_choice *choice, const colli_shape *shape, double *sent,
                            topo_network *out) {
  const double elem = (double)coll_type_bytes(COLL_FLOAT32);
  const int unit = topo_network_unit(out, shape->rank);
  colli_sched *sched;
  const coll_status status = colli_algo_emit(choice->algo, shape, &sched);
  if (status != COLL_OK)
    return status;
  colli_partition_sent(&choice->partition, sched, sent);
  for (int i = 0; i < sched->nsteps; i++) {
    const int to = sched->steps[i].peer_send;
    if (!(sched->steps[i].bits & COLLI_SEND) || sent[to] == 0)
      continue;
    topo_network_flow(out, unit, topo_network_unit(out, to))->bytes += sent[to] * elem;
    out->across[topo_network_meet(out, shape->rank, to)] += sent[to] * elem;
    sent[to] = 0;
  }
  colli_sched_free(sched);
  return COLL_OK;
}

/* Adds up what a choice sends, and says what it is. */
static coll_status add_up(const colli_choice *choice, const colli_shape *shape, size_t bytes,
                          topo_network *out) {
  double *sent = calloc((size_t)shape->nranks, sizeof(*sent));
  coll_status status = sent && make_units(out) ? COLL_OK : COLL_ERR_NO_MEMORY;
  colli_layouts layouts = {0};
  colli_shape mine = *shape;
  mine.layouts = &layouts;
  for (mine.rank = 0; mine.rank < mine.nranks && status == COLL_OK; mine.rank++)
    status = add_rank(choice, &mine, sent, out);
  colli_layouts_free(&layouts);
  free(sent);
  out->coll = shape->coll;
  out->bytes = bytes;
  out->algo = choice->algo->name;
  snprintf(out->title, sizeof(out->title), "%s of %zu bytes%s: %s", colli_coll_name(shape->coll),
           bytes, colli_exact(shape->coll) ? " a block" : "", choice->algo->name);
  return status;
}

/* Finds what is sent with the algorithm that is chosen. */
static coll_status fill(const colli_shape *shape, colli_chooser *chooser, size_t bytes,
                        topo_network *out, coll_error *error) {
  const size_t elem = coll_type_bytes(COLL_FLOAT32), count = bytes / elem;
  colli_choice choice;
  coll_status status = choose_units(out, error);
  if (status == COLL_OK)
    status = colli_choose(chooser, shape, count, elem, count * elem, &choice, error);
  if (status != COLL_OK)
    return status;
  status = add_up(&choice, shape, bytes, out);
  if (status != COLL_OK)
    return colli_error_set(error, status, "network", "cannot make the schedules of %d ranks: %s",
                           shape->nranks, coll_status_name(status));
  return COLL_OK;
}

topo_network topo_network_of_run(coll_comm *comm) {
  const colli_shape shape = colli_comm_shape(comm, COLLI_ALLREDUCE);
  topo_network made = {.comm = comm, .nranks = shape.nranks};
  list_levels(&shape, &made);
  return made;
}

topo_network topo_network_of(const described_network *net, const answer *a) {
  topo_network made = {.cluster = net->cluster, .nranks = a->shape.nranks};
  list_levels(&a->shape, &made);
  return made;
}

coll_status topo_network_fill_run(topo_network *network, coll_comm *comm, colli_coll coll,
                                  size_t bytes, coll_error *error) {
  const colli_shape shape = colli_comm_shape(comm, coll);
  return fill(&shape, colli_comm_chooser(comm), bytes, network, error);
}

coll_status topo_network_fill(topo_network *network, answer *a, size_t bytes, coll_error *error) {
  return fill(&a->shape, &a->chooser, bytes, network, error);
}

/* ---- names ----------------------------------------------------------------------------------- */

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
  free(network->units);
  free(network->flows);
  network->units = NULL;
  network->flows = NULL;
}
