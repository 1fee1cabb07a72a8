/* gather.c: gathers the cluster of a run: its shape and costs, and each different machine once. */
#include "libcoll/tools/topo/gather.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/base/param.h"
#include "libcoll/cost/host_links.h"
#include "topology/topology.h"

#define MEMORY_SHARE 0.95 /* of another one's: kernels leave different amounts of equal memory */

/* What the first rank of a host says of its machine; the others: nothing. */
typedef struct brief {
  uint64_t hash;   /* of the lines, without sizes of memory */
  uint64_t memory; /* of all nodes */
  uint64_t bytes;
  coll_status status; /* whether it could read its machine */
} brief;

/* ---- one machine ----------------------------------------------------------------------------- */

/* Whether a line of XML names this one machine among equal ones. */
static bool is_identity(const char *line) {
  static const char *const names[] = {"HostName", "LinuxCgroup", "ProcessName", "Address",
                                      "UUID",     "Serial",      "GUID",        "GID"};
  const char *name = strstr(line, "<info name=\"");
  const char *end = name ? strstr(name, "\" value=") : NULL;
  for (size_t i = 0; end && i < sizeof(names) / sizeof(*names); i++) {
    const char *found = strstr(name, names[i]);
    if (found && found < end)
      return true;
  }
  return false;
}

/* Adds a line to a hash (FNV-1a), or what it says of memory to the size of that. Pages, of which
 * that consists, do not count. */
static void add_line(brief *about, const char *line) {
  static const char memory[] = "local_memory=\"";
  if (strstr(line, "<page_type"))
    return;
  const char *size = strstr(line, memory);
  const char *rest = size ? strchr(size + sizeof(memory) - 1, '"') : NULL;
  if (rest)
    about->memory += strtoull(size + sizeof(memory) - 1, NULL, 10);
  for (const char *at = line; *at; at++) {
    at = rest && at == size ? rest : at;
    about->hash = (about->hash ^ (unsigned char)*at) * 0x100000001b3ull;
  }
}

/* Takes the lines of a machine that any equal one has. NULL: out of memory. */
static char *anonymous(char *xml, brief *about) {
  char *text = NULL, *rest = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  about->hash = 0xcbf29ce484222325ull;
  for (char *line = strtok_r(xml, "\n", &rest); out && line; line = strtok_r(NULL, "\n", &rest)) {
    if (is_identity(line))
      continue;
    add_line(about, line);
    fprintf(out, "%s\n", line);
  }
  if (out == NULL || fclose(out) != 0) {
    free(text);
    return NULL;
  }
  about->bytes = bytes;
  return text;
}

/* Describes this rank's machine. NULL: see about->status and *error. */
static char *look(brief *about, coll_error *error) {
  colli_params params;
  char *xml = NULL, *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&xml, &bytes);
  about->status = out ? colli_params_load(&params, error) : COLL_ERR_NO_MEMORY;
  if (about->status == COLL_OK)
    about->status = colli_topo_export(params.text[COLLI_PARAM_TOPO_FILE], out, error);
  if (out && fclose(out) != 0 && about->status == COLL_OK)
    about->status = COLL_ERR_NO_MEMORY;
  if (about->status == COLL_OK && (text = anonymous(xml, about)) == NULL)
    about->status = COLL_ERR_NO_MEMORY;
  if (about->status == COLL_OK && about->bytes > CLUSTER_MACHINE_BYTES)
    about->status = colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, "topology",
                                    "the description of the machine is longer than %d bytes",
                                    CLUSTER_MACHINE_BYTES);
  free(xml);
  return text;
}

/* ---- all machines ---------------------------------------------------------------------------- */

/* Whether two ranks' machines count as one: they differ in nothing but a little memory. */
static bool are_alike(const brief *a, const brief *b) {
  const double x = (double)a->memory, y = (double)b->memory;
  return a->bytes > 0 && a->hash == b->hash && x >= MEMORY_SHARE * y && y >= MEMORY_SHARE * x;
}

/* The first rank with the same machine as a rank. Texts of equal machines may differ in length, by
 * what the hash leaves out. */
static int first_with(const brief *briefs, int rank) {
  int first = 0;
  while (!are_alike(&briefs[first], &briefs[rank]))
    first++;
  return first;
}

/* Numbers the machines of hosts; returns how many there are. `number` receives that of each rank
 * that is the first one with it, and the same of the hosts' first ranks. */
static int number_machines(const brief *briefs, int nranks, int *number) {
  int count = 0;
  for (int rank = 0; rank < nranks; rank++) {
    if (briefs[rank].bytes == 0)
      continue;
    const int first = first_with(briefs, rank);
    number[rank] = first == rank ? count++ : number[first];
  }
  return count;
}

/* The first ranks that have each machine, and what this rank holds of them. They form a binomial
 * tree, in which each has its own machine and those behind it up to the next one as high. */
typedef struct branch {
  int *owners;   /* one for each machine */
  size_t *begin; /* of each machine's lines, if all follow each other, and their end */
  int self, end; /* the machines that pass this rank: from its own on; none: self is -1 */
  char *lines;   /* of these */
} branch;

/* Plans the tree, and makes room for what passes this rank; false: out of memory. */
static bool plan_branch(const brief *briefs, int rank, const char *mine, cluster *out, branch *b) {
  const size_t n = (size_t)out->nmachines;
  *b = (branch){.owners = calloc(n, sizeof(*b->owners)),
                .begin = calloc(n + 1, sizeof(*b->begin)),
                .self = -1};
  if (b->owners == NULL || b->begin == NULL)
    return false;
  for (int at = 0, next = 0; at < out->nranks && next < out->nmachines; at++) {
    if (briefs[at].bytes == 0 || first_with(briefs, at) != at)
      continue;
    b->self = at == rank ? next : b->self;
    b->owners[next] = at;
    b->begin[next + 1] = b->begin[next] + briefs[at].bytes;
    out->machines[next++].bytes = briefs[at].bytes;
  }
  if (b->self < 0)
    return true;
  const int most = b->self == 0 ? out->nmachines : b->self + (b->self & -b->self);
  b->end = most < out->nmachines ? most : out->nmachines;
  b->lines = malloc(b->begin[b->end] - b->begin[b->self]);
  if (b->lines != NULL)
    memcpy(b->lines, mine, briefs[rank].bytes);
  bool has_room = b->lines != NULL;
  for (int i = 0; rank == 0 && i < out->nmachines; i++)
    has_room &= (out->machines[i].xml = malloc(out->machines[i].bytes)) != NULL;
  return has_room;
}

/* Sends each machine, once, up the tree: no rank receives more messages than the tree has levels.
 */
static coll_status climb(coll_comm *comm, const branch *b, int nmachines) {
  coll_status status = COLL_OK;
  int step = 1;
  for (; b->self + step < b->end && status == COLL_OK; step *= 2) {
    const int child = b->self + step, end = child + step < nmachines ? child + step : nmachines;
    status =
        coll_recv(b->lines + (b->begin[child] - b->begin[b->self]), b->begin[end] - b->begin[child],
                  COLL_UINT8, b->owners[child], 0, NULL, comm);
  }
  if (b->self > 0 && status == COLL_OK)
    status = coll_send(b->lines, b->begin[b->end] - b->begin[b->self], COLL_UINT8,
                       b->owners[b->self & (b->self - 1)], 0, comm);
  return status;
}

/* All ranks learn whether one of them lacks memory, before any waits for it. */
static coll_status agree(coll_comm *comm, int rank, bool has_memory, coll_error *error) {
  int32_t lacks = has_memory ? 0 : rank + 1;
  const coll_status status = coll_allreduce(&lacks, &lacks, 1, COLL_INT32, COLL_MAX, comm);
  if (status != COLL_OK || lacks == 0)
    return status;
  return colli_error_set(error, COLL_ERR_NO_MEMORY, "topology",
                         "rank %d (host %s) is out of memory for the machines of the cluster",
                         lacks - 1, colli_comm_info(comm, lacks - 1).host);
}

/* Gathers the machines on rank 0. `made`: what went wrong on this rank before. */
static coll_status collect(coll_comm *comm, int rank, coll_status made, const char *mine,
                           const brief *briefs, cluster *out, coll_error *error) {
  branch b = {.self = -1};
  if (made == COLL_OK && !plan_branch(briefs, rank, mine, out, &b))
    made = COLL_ERR_NO_MEMORY;
  coll_status status = agree(comm, rank, made == COLL_OK, error);
  if (status == COLL_OK && b.self >= 0)
    status = climb(comm, &b, out->nmachines);
  for (int i = 0; rank == 0 && i < out->nmachines && status == COLL_OK; i++)
    memcpy(out->machines[i].xml, b.lines + b.begin[i], out->machines[i].bytes);
  free(b.owners);
  free(b.begin);
  free(b.lines);
  return status;
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* Numbers the hosts by their first ranks; returns how many there are. */
static int number_hosts(const coll_comm *comm, int nranks, int *host) {
  int count = 0;
  for (int rank = 0; rank < nranks; rank++) {
    const int first = colli_comm_host(comm, rank);
    host[rank] = first == rank ? count++ : host[first];
  }
  return count;
}

/* Takes groups and costs, as the choice of algorithms knows them. */
static void take_costs(coll_comm *comm, const colli_shape *shape, cluster *out) {
  const colli_model *model = colli_comm_chooser(comm)->model;
  const double *links = model->link_beta_ns_per_byte;
  out->model = *model;
  out->limits = *colli_comm_chooser(comm)->limits;
  for (int i = 0; i < out->nlevels; i++) {
    const bool last = i + 1 == out->nlevels;
    const int32_t *group = last ? shape->group : shape->inner[i];
    out->level[i].names = colli_comm_level_names(comm, i);
    out->level[i].cost = last
                             ? (colli_pair_cost){model->near_alpha_ns, model->near_beta_ns_per_byte}
                             : model->inner[i];
    memcpy(out->level[i].group, group, (size_t)out->nranks * sizeof(*group));
    for (int rank = 0; rank < out->nranks; rank++)
      if (group[rank] >= out->level[i].ngroups)
        out->level[i].ngroups = group[rank] + 1;
  }
  for (int i = 0; i < out->nlinks; i++)
    out->link_ns_per_byte[i] = links[i];
}

/* Takes hosts and ranks. */
static void take_hosts(const topo_ranks *from, const int *host, const int *machine, cluster *out) {
  for (int rank = out->nranks - 1; rank >= 0; rank--) { /* the first rank of a host comes last */
    const colli_rank_info info = colli_comm_info(from->comm, rank);
    cluster_host *of = &out->hosts[host[rank]];
    out->host[rank] = host[rank];
    out->core[rank] = topo_ranks_core(from, rank);
    of->machine = machine[rank];
    of->link_mbit = info.link_mbit;
    snprintf(of->name, sizeof(of->name), "%s", info.host);
    snprintf(of->levels, sizeof(of->levels), "%s", info.levels);
  }
}

/* Fills in the cluster: `machine` has the number of each first rank's machine, of nmachines. */
static coll_status fill(const topo_ranks *from, int nmachines, int *host, const int *machine,
                        cluster *out) {
  coll_comm *comm = from->comm;
  const colli_shape shape = colli_comm_shape(comm, COLLI_ALLREDUCE);
  out->nranks = from->nranks;
  out->nlevels = shape.ngroups > 1 ? shape.ninner + 1 : 0;
  out->nlinks =
      colli_comm_chooser(comm)->model->link_beta_ns_per_byte ? colli_host_links_count(&shape) : 0;
  out->nhosts = number_hosts(comm, from->nranks, host);
  out->nmachines = nmachines;
  if (!cluster_allocate(out))
    return COLL_ERR_NO_MEMORY;
  take_costs(comm, &shape, out);
  take_hosts(from, host, machine, out);
  return COLL_OK;
}

bool topo_cluster_outline(const topo_ranks *from, cluster *out) {
  int *scratch = calloc(2 * (size_t)from->nranks, sizeof(*scratch));
  *out = (cluster){0};
  const bool made = scratch && fill(from, 0, scratch, scratch + from->nranks, out) == COLL_OK;
  free(scratch);
  return made;
}

/* Says on which rank a machine could not be read; the error is that rank's own on that rank. */
static coll_status check_briefs(const coll_comm *comm, const brief *briefs, int nranks, int rank,
                                coll_error *error) {
  for (int at = 0; at < nranks; at++)
    if (briefs[at].status != COLL_OK && (at != rank || error->message[0] == '\0'))
      return colli_error_set(error, briefs[at].status, "topology",
                             "rank %d (host %s) could not describe its machine: %s", at,
                             colli_comm_info(comm, at).host, coll_status_name(briefs[at].status));
    else if (briefs[at].status != COLL_OK)
      return briefs[at].status;
  return COLL_OK;
}

coll_status topo_cluster_gather(coll_comm *comm, const topo_ranks *from, cluster *out,
                                coll_error *error) {
  const size_t n = (size_t)from->nranks;
  int rank = 0;
  (void)coll_comm_rank(comm, &rank);
  brief mine = {0}, *briefs = calloc(n, sizeof(*briefs));
  int *scratch = calloc(2 * n, sizeof(*scratch));
  char *xml = colli_comm_host(comm, rank) == rank ? look(&mine, error) : NULL;
  *out = (cluster){0};
  coll_status status = agree(comm, rank, briefs && scratch, error);
  if (status == COLL_OK)
    status = coll_allgather(&mine, briefs, sizeof(mine), COLL_UINT8, comm);
  if (status == COLL_OK)
    status = check_briefs(comm, briefs, from->nranks, rank, error);
  if (status == COLL_OK) {
    const coll_status made =
        fill(from, number_machines(briefs, from->nranks, scratch + n), scratch, scratch + n, out);
    status = collect(comm, rank, made, xml, briefs, out, error);
  }
  if (status != COLL_OK && error->message[0] == '\0')
    (void)colli_error_set(error, status, "topology", "rank %d cannot gather the cluster: %s", rank,
                          coll_status_name(status));
  free(xml);
  free(scratch);
  free(briefs);
  return status;
}
