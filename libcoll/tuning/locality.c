/* locality.c: where the ranks sit, and what this means for the cost model. */
#include "libcoll/tuning/locality.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "libcoll/base/libc.h"
#include "libcoll/cost/links.h"
#include "libcoll/tuning/hierarchy.h"
#include "libcoll/tuning/link_speed.h"
#include "libcoll/tuning/numbering.h"
#include "libcoll/tuning/quota.h"

#define CPU_BITS (64 * COLLI_CPU_WORDS)

/* Fills in the processors that this process may use, and the one to which it is bound. */
void colli_locality_describe(colli_rank_info *info) {
  cpu_set_t set;
  CPU_ZERO(&set);
  info->core = info->numa_node = -1;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    for (long cpu = 0; cpu < online && cpu < CPU_SETSIZE; cpu++)
      CPU_SET(cpu, &set);
  }
  for (int cpu = 0; cpu < CPU_BITS && cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &set))
      info->cpus[cpu / 64] |= 1ull << cpu % 64;
  colli_quota quota = colli_quota_read("/proc/self/cgroup", "/sys/fs/cgroup");
  info->quota_group = quota.group;
  info->quota_millicores = quota.millicores;
  unsigned cpu, node;
  if (CPU_COUNT(&set) == 1 && getcpu(&cpu, &node) == 0) {
    info->core = (int32_t)cpu;
    info->numa_node = (int32_t)node;
  }
}

/* Sorts by host, and on a host by rank: entries point into the table. */
static int compare_hosts(const void *a, const void *b) {
  const colli_rank_info *left = *(const colli_rank_info *const *)a;
  const colli_rank_info *right = *(const colli_rank_info *const *)b;
  if (left->host_id != right->host_id)
    return left->host_id < right->host_id ? -1 : 1;
  return left < right ? -1 : left > right;
}

/* The number of processors that are in the masks of some ranks: all, or those of one group. */
static int count_masks(const colli_rank_info *const *ranks, int count, const uint64_t *group) {
  int cpus = 0;
  for (int w = 0; w < COLLI_CPU_WORDS; w++) {
    uint64_t word = 0;
    for (int i = 0; i < count; i++)
      word |= !group || ranks[i]->quota_group == *group ? ranks[i]->cpus[w] : 0;
    cpus += __builtin_popcountll(word);
  }
  return cpus;
}

/*
 * The number of processors that some ranks on one host may use together. Ranks in a control group
 * with a limit (a container) have no more than its whole processors: they would be stopped for the
 * rest of each period once their spinning has used it up.
 */
static int count_cpus(const colli_rank_info *const *ranks, int count) {
  long long sum = 0;
  for (int i = 0; i < count; i++) {
    int earlier = 0;
    while (earlier < i && ranks[earlier]->quota_group != ranks[i]->quota_group)
      earlier++;
    if (earlier < i)
      continue;
    long long cpus = count_masks(ranks, count, &ranks[i]->quota_group);
    long long most = (long long)(ranks[i]->quota_millicores / 1000);
    most = most > 0 ? most : 1;
    sum += ranks[i]->quota_millicores && most < cpus ? most : cpus;
  }
  int all = count_masks(ranks, count, NULL);
  int cpus = sum < all ? (int)sum : all;
  return cpus > 0 ? cpus : 1;
}

/*
 * The slowest transport that some pair needs, or NULL: shared memory helps only if all ranks share
 * it. *near: the transport of ranks on one host. *index: its number in the list.
 */
static const coll_transport_ops *find_slowest(const colli_rank_info *table, int nranks,
                                              const colli_transport_list *transports,
                                              colli_link_kind *near, int *index) {
  uint32_t common = ~0u;
  bool one_host = true;
  const coll_transport_ops *slowest = NULL;
  for (int rank = 0; rank < nranks; rank++) {
    common &= table[rank].transports;
    one_host &= table[rank].host_id == table[0].host_id;
  }
  *near = COLLI_LINK_TCP;
  for (int i = 0; i < transports->count; i++) {
    const coll_transport_ops *ops = transports->ops[i];
    if (!ops || !(common & 1u << i))
      continue;
    bool memory = ops->caps & COLL_CAP_SHARED_MEMORY;
    if (memory)
      *near = COLLI_LINK_SHM;
    if (!slowest && (one_host || !memory)) {
      slowest = ops;
      *index = i;
    }
  }
  return slowest;
}

/* Sets the costs of links over a device and the slots for which they have memory. Uses the slowest
 * link and the smallest memory that transport number `index` reports between neighbours. */
static void set_device_costs(const colli_rank_info *table, int nranks,
                             const coll_transport_ops *ops, int index,
                             const colli_calibration *calibration, colli_locality *out) {
  double alpha_ns = 0, beta_ns_per_byte = 0;
  for (int rank = 0; rank < nranks; rank++) {
    coll_link link = {0};
    const colli_rank_info *next = &table[(rank + 1) % nranks];
    if (!ops->reach(table[rank].blob[index], next->blob[index], &link))
      continue;
    if (link.slot_bytes && link.slot_bytes < out->limits.slot_bytes)
      out->limits.slot_bytes = link.slot_bytes;
    alpha_ns = link.alpha_ns > alpha_ns ? link.alpha_ns : alpha_ns;
    beta_ns_per_byte = link.ns_per_byte > beta_ns_per_byte ? link.ns_per_byte : beta_ns_per_byte;
  }
  if (beta_ns_per_byte > 0)
    colli_model_device(&out->model, calibration, alpha_ns, beta_ns_per_byte);
}

/* Takes the largest measurement of any rank for each number. */
static void combine_calibrations(const colli_rank_info *table, int nranks, colli_calibration *out) {
  *out = table[0].calibration;
  for (int rank = 1; rank < nranks; rank++)
    for (int i = 0; i < COLLI_CALIBRATION_NUMBERS; i++) {
      colli_calibration other = table[rank].calibration;
      double *mine = colli_calibration_number(out, i);
      double theirs = *colli_calibration_number(&other, i);
      *mine = theirs > *mine ? theirs : *mine;
    }
}

/* Whether all ranks have read the same corrections of the model. */
static bool has_same_corrections(const colli_rank_info *table, int nranks) {
  int rank = 1;
  while (rank < nranks && table[rank].corrections == table[0].corrections)
    rank++;
  return rank == nranks && table[0].corrections != 0;
}

/* Numbers the hosts in the order of their first ranks; false if out of memory. */
static bool number_hosts(const colli_rank_info *table, int nranks,
                         const colli_rank_info *const *sorted, colli_locality *out) {
  out->ngroups = 0;
  out->group = malloc((size_t)nranks * sizeof(*out->group));
  if (!out->group)
    return false;
  for (int i = 0, first = 0; i < nranks; i++) {
    if (sorted[i]->host_id != sorted[first]->host_id)
      first = i;
    out->group[sorted[i] - table] = (int32_t)(sorted[first] - table);
  }
  out->ngroups = colli_number_groups(out->group, nranks);
  if (out->ngroups == 1) {
    free(out->group);
    out->group = NULL;
  }
  return true;
}

/* Finds the host with the most ranks per processor, and the facts about this rank's own host. */
static void find_fullest(const colli_rank_info *const *sorted, int nranks, uint64_t own_host,
                         int *ranks_fullest, int *cpus_fullest, colli_locality *out) {
  *ranks_fullest = *cpus_fullest = 1;
  for (int begin = 0, end; begin < nranks; begin = end) {
    for (end = begin; end < nranks && sorted[end]->host_id == sorted[begin]->host_id;)
      end++;
    int cpus = count_cpus(sorted + begin, end - begin);
    if ((long long)(end - begin) * *cpus_fullest > (long long)*ranks_fullest * cpus) {
      *ranks_fullest = end - begin;
      *cpus_fullest = cpus;
    }
    if (sorted[begin]->host_id == own_host) {
      out->neighbours = end - begin;
      out->crowded = end - begin > cpus;
    }
  }
}

/* The only other rank that is bound to this rank's core, or -1. */
static int find_mate(const colli_rank_info *table, int nranks, int rank) {
  int mate = -1;
  for (int other = 0; other < nranks; other++) {
    if (other == rank || table[rank].core < 0 || table[other].core != table[rank].core ||
        table[other].host_id != table[rank].host_id)
      continue;
    if (mate >= 0)
      return -1;
    mate = other;
  }
  return mate;
}

/* Whether all ranks are on one host and every two neighbours have a core to themselves. */
static bool is_paired(const colli_rank_info *table, int nranks) {
  bool all = nranks % 2 == 0;
  for (int rank = 0; all && rank < nranks; rank += 2)
    all = find_mate(table, nranks, rank) == rank + 1 && table[rank].host_id == table[0].host_id;
  return all;
}

/* Sets the model and limits of the slowest links, on a host with that many ranks and processors. */
static void set_model(const colli_rank_info *table, int nranks,
                      const colli_transport_list *transports, int ranks_fullest, int cpus_fullest,
                      const colli_corrections *corrections, colli_locality *out) {
  int index = 0;
  bool shared = ranks_fullest > cpus_fullest;
  colli_link_kind near;
  colli_calibration calibration;
  const coll_transport_ops *slowest = find_slowest(table, nranks, transports, &near, &index);
  bool device = slowest && slowest->caps & COLL_CAP_DEVICE;
  colli_link_kind link = colli_link_kind_of(slowest ? slowest->caps : 0);
  colli_limits_default(link, &out->limits);
  combine_calibrations(table, nranks, &calibration);
  colli_model_make(&calibration, link, near, ranks_fullest, cpus_fullest, &out->model);
  out->model.paired = link == COLLI_LINK_SHM && shared && is_paired(table, nranks);
  if (device)
    set_device_costs(table, nranks, slowest, index, &calibration, out);
  else if (out->ngroups == 1 && has_same_corrections(table, nranks)) /* devices are not measured */
    out->model.corrections =
        colli_corrections_find(corrections, link, nranks, shared ? cpus_fullest : nranks);
}

/* Finds where the ranks sit. */
coll_status colli_locality_find(const colli_rank_info *table, int nranks, int rank,
                                const colli_transport_list *transports,
                                const colli_corrections *corrections, colli_locality *out,
                                coll_error *error) {
  *out = (colli_locality){0};
  const colli_rank_info **sorted = malloc((size_t)nranks * sizeof(*sorted));
  for (int i = 0; sorted && i < nranks; i++)
    sorted[i] = &table[i];
  if (sorted)
    qsort(sorted, (size_t)nranks, sizeof(*sorted), compare_hosts);
  if (!sorted || !number_hosts(table, nranks, sorted, out)) {
    free(sorted);
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "out of memory for %d ranks",
                           nranks);
  }
  int ranks_fullest, cpus_fullest;
  find_fullest(sorted, nranks, table[rank].host_id, &ranks_fullest, &cpus_fullest, out);
  free(sorted);
  out->mate = find_mate(table, nranks, rank);
  set_model(table, nranks, transports, ranks_fullest, cpus_fullest, corrections, out);
  coll_status status;
  if (colli_link_speed_apply(table, nranks, out))
    status = colli_hierarchy_apply(table, nranks, out, error);
  else
    status =
        colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "out of memory for %d ranks", nranks);
  if (status != COLL_OK)
    colli_locality_free(out);
  return status;
}

void colli_locality_free(colli_locality *locality) {
  for (int level = 0; level < locality->ninner; level++)
    free(locality->inner[level]);
  free(locality->group);
  free(locality->weights);
}
