/* locality.c: where the ranks sit, and what this means for the cost model. */
#include "libcoll/tuning/locality.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "libcoll/base/libc.h"
#include "libcoll/cost/host_links.h"
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

/* The first rank of a host, and its machine, which several hosts (containers) may share. One host
 * is taken to be on one machine. */
typedef struct resident {
  uint64_t machine;
  int first;
} resident;

/* Sorts hosts by machine, and on a machine by their first ranks. */
static int compare_machines(const void *a, const void *b) {
  const resident *left = a, *right = b;
  if (left->machine != right->machine)
    return left->machine < right->machine ? -1 : 1;
  return left->first < right->first ? -1 : left->first > right->first;
}

/* All hosts, by their machines. */
typedef struct residents {
  resident *hosts;
  int count;
  int *next; /* of each rank, the next one on its host; -1: none */
} residents;

/* The processors of a rank. */
typedef struct allowance {
  uint64_t cpus[COLLI_CPU_WORDS];
  uint64_t quota_group, quota_millicores;
} allowance;

/* The number of processors that are in the masks of some ranks: all, or those of one group. */
static int count_masks(const allowance *ranks, int count, const uint64_t *group) {
  int cpus = 0;
  for (int w = 0; w < COLLI_CPU_WORDS; w++) {
    uint64_t word = 0;
    for (int i = 0; i < count; i++)
      word |= !group || ranks[i].quota_group == *group ? ranks[i].cpus[w] : 0;
    cpus += __builtin_popcountll(word);
  }
  return cpus;
}

/*
 * The number of processors that some ranks on one machine may use together. Ranks in a control
 * group with a limit (a container) have no more than its whole processors: they would be stopped
 * for the rest of each period once their spinning has used it up.
 */
static int count_cpus(const allowance *ranks, int count) {
  long long sum = 0;
  for (int i = 0; i < count; i++) {
    int earlier = 0;
    while (earlier < i && ranks[earlier].quota_group != ranks[i].quota_group)
      earlier++;
    if (earlier < i)
      continue;
    long long cpus = count_masks(ranks, count, &ranks[i].quota_group);
    long long most = (long long)(ranks[i].quota_millicores / 1000);
    most = most > 0 ? most : 1;
    sum += ranks[i].quota_millicores && most < cpus ? most : cpus;
  }
  int all = count_masks(ranks, count, NULL);
  int cpus = sum < all ? (int)sum : all;
  return cpus > 0 ? cpus : 1;
}

/*
 * The slowest transport that some pair needs, or NULL: shared memory helps only if all ranks share
 * it. *near: the transport of ranks on one host. *index: its number in the list.
 */
static const coll_transport_ops *find_slowest(const colli_rank_table *table,
                                              const colli_transport_list *transports,
                                              colli_link_kind *near, int *index) {
  uint32_t common = ~0u;
  bool one_host = true;
  const coll_transport_ops *slowest = NULL;
  colli_rank_walk walk = colli_rank_walk_over(table, COLLI_RANK_FIELD(transports));
  for (int rank = 0; rank < table->nranks; rank++) {
    common &= colli_rank_walk_to(&walk, rank)->transports;
    one_host &= colli_rank_host(table, rank) == 0;
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
static void set_device_costs(const colli_rank_table *table, const coll_transport_ops *ops,
                             int index, const colli_calibration *calibration, colli_locality *out) {
  double alpha_ns = 0, beta_ns_per_byte = 0;
  colli_rank_walk walk = colli_rank_walk_begin(table), next = walk;
  for (int rank = 0; rank < table->nranks; rank++) {
    coll_link link = {0};
    if (!ops->reach(colli_rank_walk_to(&walk, rank)->blob[index],
                    colli_rank_walk_to(&next, (rank + 1) % table->nranks)->blob[index], &link))
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
static void combine_calibrations(const colli_rank_table *table, colli_calibration *out) {
  colli_rank_walk walk = colli_rank_walk_over(table, COLLI_RANK_FIELD(calibration));
  *out = walk.first.calibration;
  for (int rank = 1; rank < table->nranks; rank++) {
    colli_calibration other = colli_rank_walk_to(&walk, rank)->calibration;
    if (memcmp(&other, out, sizeof(*out)) == 0)
      continue;
    for (int i = 0; i < COLLI_CALIBRATION_NUMBERS; i++) {
      double *mine = colli_calibration_number(out, i);
      const double theirs = *colli_calibration_number(&other, i);
      *mine = theirs > *mine ? theirs : *mine;
    }
  }
}

/* Whether all ranks have read the same corrections of the model. */
static bool has_same_corrections(const colli_rank_table *table) {
  colli_rank_walk walk = colli_rank_walk_over(table, COLLI_RANK_FIELD(corrections));
  int rank = 1;
  while (rank < table->nranks &&
         colli_rank_walk_to(&walk, rank)->corrections == walk.first.corrections)
    rank++;
  return rank == table->nranks && walk.first.corrections != 0;
}

/* Numbers the hosts in the order of their first ranks; false if out of memory. */
static bool number_hosts(const colli_rank_table *table, colli_locality *out) {
  const int nranks = table->nranks;
  out->ngroups = 0;
  out->group = malloc((size_t)nranks * sizeof(*out->group));
  if (!out->group)
    return false;
  for (int rank = 0; rank < nranks; rank++)
    out->group[rank] = colli_rank_host(table, rank);
  out->ngroups = colli_number_groups(out->group, nranks);
  if (out->ngroups == 1) {
    free(out->group);
    out->group = NULL;
  }
  return true;
}

/* A machine with many ranks. */
typedef struct full_machine {
  int ranks, cpus;
} full_machine;

/* How many ranks a machine has, whose first host is number `begin`. *end: of the hosts after it. */
static int count_residents(const residents *all, int begin, int *end) {
  int ranks = 0;
  for (*end = begin; *end < all->count && all->hosts[*end].machine == all->hosts[begin].machine;
       ++*end)
    for (int r = all->hosts[*end].first; r >= 0; r = all->next[r])
      ranks++;
  return ranks;
}

/* Finds the machine with the most ranks per processor, and the facts about the own one of `rank`.
 * There is `room` for those of one machine. *containers: whether some machine has more ranks than
 * processors, and several hosts. */
static full_machine find_fullest(const colli_rank_table *table, const residents *all, int rank,
                                 allowance *room, bool *containers, colli_locality *out) {
  full_machine fullest = {1, 1};
  colli_rank_walk walk = colli_rank_walk_over(table, COLLI_RANK_FIELDS(cpus, quota_millicores));
  for (int begin = 0, end; begin < all->count; begin = end) {
    const int ranks = count_residents(all, begin, &end);
    bool here = false;
    allowance *at = room;
    for (int host = begin; host < end; host++)
      for (int r = all->hosts[host].first; r >= 0; r = all->next[r], at++) {
        const colli_rank_info *info = colli_rank_walk_to(&walk, r);
        memcpy(at->cpus, info->cpus, sizeof(info->cpus));
        at->quota_group = info->quota_group;
        at->quota_millicores = info->quota_millicores;
        here |= r == rank;
      }
    const int cpus = count_cpus(room, ranks);
    if ((long long)ranks * fullest.cpus > (long long)fullest.ranks * cpus)
      fullest = (full_machine){ranks, cpus};
    *containers |= ranks > cpus && end - begin > 1;
    if (here) {
      out->neighbours = ranks;
      out->crowded = ranks > cpus;
    }
  }
  return fullest;
}

/* Whether there is a network between hosts, and not only memory between containers. */
static bool has_several_machines(const colli_rank_table *table) {
  colli_rank_walk walk = colli_rank_walk_over(table, COLLI_RANK_FIELD(machine_id));
  int rank = 1;
  while (rank < table->nranks &&
         colli_rank_walk_to(&walk, rank)->machine_id == walk.first.machine_id)
    rank++;
  return rank < table->nranks;
}

/* Sorts the hosts; false if out of memory. What was allocated is the caller's in any case. */
static bool sort_hosts(const colli_rank_table *table, int nhosts, residents *all) {
  const int nranks = table->nranks;
  all->hosts = malloc((size_t)nhosts * sizeof(*all->hosts));
  all->next = malloc((size_t)nranks * sizeof(*all->next));
  if (!all->hosts || !all->next)
    return false;
  memset(all->next, -1, (size_t)nranks * sizeof(*all->next));
  colli_rank_walk walk = colli_rank_walk_over(table, COLLI_RANK_FIELD(machine_id));
  for (int rank = nranks - 1; rank >= 0; rank--) {
    const int first = colli_rank_host(table, rank);
    if (rank == first) {
      all->hosts[all->count++] = (resident){colli_rank_walk_to(&walk, rank)->machine_id, rank};
      continue;
    }
    all->next[rank] = all->next[first];
    all->next[first] = rank;
  }
  qsort(all->hosts, (size_t)nhosts, sizeof(*all->hosts), compare_machines);
  return true;
}

/* What the machines of all ranks are like; false if out of memory. */
static bool ask_machines(const colli_rank_table *table, int rank, full_machine *fullest,
                         bool *containers, colli_locality *out) {
  residents all = {0};
  allowance *room = NULL;
  if (sort_hosts(table, out->ngroups, &all)) {
    int most = 0; /* ranks on one machine */
    for (int begin = 0, end; begin < all.count; begin = end) {
      const int ranks = count_residents(&all, begin, &end);
      most = ranks > most ? ranks : most;
    }
    room = malloc((size_t)most * sizeof(*room));
  }
  if (room)
    *fullest = find_fullest(table, &all, rank, room, containers, out);
  const bool made = room != NULL;
  free(all.hosts);
  free(all.next);
  free(room);
  return made;
}

/* The only other rank that is bound to this rank's core, or -1. */
static int find_mate(const colli_rank_table *table, int rank) {
  const int host = colli_rank_host(table, rank), core = colli_rank_at(table, rank).core;
  int mate = -1;
  colli_rank_walk walk = colli_rank_walk_over(table, COLLI_RANK_FIELD(core));
  for (int other = 0; core >= 0 && other < table->nranks; other++) {
    if (other == rank || colli_rank_host(table, other) != host ||
        colli_rank_walk_to(&walk, other)->core != core)
      continue;
    if (mate >= 0)
      return -1;
    mate = other;
  }
  return mate;
}

/* Whether all ranks are on one host and every two neighbours have a core to themselves. */
static bool is_paired(const colli_rank_table *table) {
  bool all = table->nranks % 2 == 0;
  for (int rank = 0; all && rank < table->nranks; rank += 2)
    all = find_mate(table, rank) == rank + 1 && colli_rank_host(table, rank) == 0;
  return all;
}

/* Sets the model and limits of the slowest links, with that machine as the fullest. */
static void set_model(const colli_rank_table *table, const colli_transport_list *transports,
                      full_machine fullest, const colli_corrections *corrections,
                      colli_locality *out) {
  int index = 0;
  bool shared = fullest.ranks > fullest.cpus;
  colli_link_kind near;
  colli_calibration calibration;
  const coll_transport_ops *slowest = find_slowest(table, transports, &near, &index);
  bool device = slowest && slowest->caps & COLL_CAP_DEVICE;
  colli_link_kind link = colli_link_kind_of(slowest ? slowest->caps : 0);
  colli_limits_default(link, &out->limits);
  combine_calibrations(table, &calibration);
  colli_model_make(&calibration, link, near, fullest.ranks, fullest.cpus, &out->model);
  out->model.paired = link == COLLI_LINK_SHM && shared && is_paired(table);
  if (device)
    set_device_costs(table, slowest, index, &calibration, out);
  else if (out->ngroups == 1 && has_same_corrections(table)) /* devices are not measured */
    out->model.corrections = colli_corrections_find(corrections, link, table->nranks,
                                                    shared ? fullest.cpus : table->nranks);
}

/* Finds where the ranks sit. */
coll_status colli_locality_find(const colli_rank_table *table, int rank,
                                const colli_transport_list *transports,
                                const colli_corrections *corrections, colli_locality *out,
                                coll_error *error) {
  *out = (colli_locality){0};
  full_machine fullest;
  bool containers = false;
  bool made = number_hosts(table, out) && ask_machines(table, rank, &fullest, &containers, out);
  if (made) {
    out->mate = find_mate(table, rank);
    set_model(table, transports, fullest, corrections, out);
    out->model.containers = containers;
    const bool apart = has_several_machines(table);
    if (out->ngroups > 1 && !out->model.device && !containers && apart)
      colli_host_links_assume(&out->model);
    if (containers && !apart)
      colli_model_set_containers(&out->model);
    made = colli_link_speed_apply(table, apart, out);
  }
  coll_status status;
  if (made)
    status = colli_hierarchy_apply(table, out, error);
  else
    status = colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "out of memory for %d ranks",
                             table->nranks);
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
