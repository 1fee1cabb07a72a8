/* places.c: where the ranks sit, and what follows from it for the cost model. */
#include "libcoll/comm/places.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CPU_BITS (64 * COLLI_CPU_WORDS)

/* Fills in the processors that this process may use and where it is bound. */
void colli_places_self(colli_rank_info *info) {
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
  unsigned cpu, node;
  if (CPU_COUNT(&set) == 1 && getcpu(&cpu, &node) == 0) {
    info->core = (int32_t)cpu;
    info->numa_node = (int32_t)node;
  }
}

static int by_host(const void *a, const void *b) {
  uint64_t left = (*(const colli_rank_info *const *)a)->host_id;
  uint64_t right = (*(const colli_rank_info *const *)b)->host_id;
  return left < right ? -1 : left > right;
}

/* Processors that a run of ranks on one host may use together. */
static int count_cpus(const colli_rank_info *const *ranks, int count) {
  int cpus = 0;
  for (int w = 0; w < COLLI_CPU_WORDS; w++) {
    uint64_t word = 0;
    for (int i = 0; i < count; i++)
      word |= ranks[i]->cpus[w];
    cpus += __builtin_popcountll(word);
  }
  return cpus > 0 ? cpus : 1;
}

/* The name of the slowest transport that some pair needs: shared memory only helps if all share. */
static const char *slowest_link(const colli_rank_info *table, int nranks, const colli_port *ports,
                                int nports) {
  uint32_t common = ~0u;
  bool one_host = true;
  for (int rank = 0; rank < nranks; rank++) {
    common &= table[rank].transports;
    one_host &= table[rank].host_id == table[0].host_id;
  }
  for (int i = 0; i < nports; i++)
    if (ports[i].ops && common & 1u << i && (one_host || strcmp(ports[i].ops->name, "shm") != 0))
      return ports[i].ops->name;
  return "tcp";
}

/* The cost model for this set of ranks. */
bool colli_places_model(const colli_rank_info *table, int nranks, int rank, const colli_port *ports,
                        int nports, colli_model *model, const char **slowest) {
  bool crowded = false;
  int ranks_fullest = 1, cpus_fullest = 1;
  const colli_rank_info **sorted = malloc((size_t)nranks * sizeof(*sorted));
  for (int i = 0; sorted && i < nranks; i++)
    sorted[i] = &table[i];
  if (sorted)
    qsort(sorted, (size_t)nranks, sizeof(*sorted), by_host);
  for (int begin = 0, end; sorted && begin < nranks; begin = end) {
    for (end = begin; end < nranks && sorted[end]->host_id == sorted[begin]->host_id;)
      end++;
    int cpus = count_cpus(sorted + begin, end - begin);
    if ((long long)(end - begin) * cpus_fullest > (long long)ranks_fullest * cpus) {
      ranks_fullest = end - begin;
      cpus_fullest = cpus;
    }
    if (sorted[begin]->host_id == table[rank].host_id)
      crowded = end - begin > cpus;
  }
  free(sorted);
  *slowest = slowest_link(table, nranks, ports, nports);
  colli_model_default(*slowest, ranks_fullest, cpus_fullest, model);
  return crowded;
}
