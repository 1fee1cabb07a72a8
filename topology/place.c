/* place.c: choosing a core for each rank, and binding to it. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "topology/topology.h"

#define LEVELS 4 /* package, NUMA node, L3, L2 */

/* One core that may be used, with the number of the group it belongs to on each level. */
typedef struct seat {
  int group[LEVELS];
  int core;
} seat;

/* Orders seats by group, coarsest level first, then by core. */
static int compare_seats(const void *a, const void *b) {
  const seat *x = a, *y = b;
  for (int level = 0; level < LEVELS; level++)
    if (x->group[level] != y->group[level])
      return x->group[level] < y->group[level] ? -1 : 1;
  return (x->core > y->core) - (x->core < y->core);
}

/*
 * Puts the levels in order, those with the fewest groups first: a NUMA node holds several packages
 * on one machine and is a part of a package on another.
 */
static void order_levels(const colli_topo *topo, int order[LEVELS]) {
  const int count[LEVELS] = {topo->npackages, topo->nnuma, topo->nl3, topo->nl2};
  for (int i = 0; i < LEVELS; i++) {
    int at = i;
    for (; at > 0 && count[order[at - 1]] > count[i]; at--)
      order[at] = order[at - 1];
    order[at] = i;
  }
}

/* Fills `seats` with the allowed cores, sorted, and returns how many there are. */
static int fill_seats(const colli_topo *topo, seat *seats) {
  int order[LEVELS];
  int nseats = 0;
  order_levels(topo, order);
  for (int c = 0; c < topo->ncores; c++) {
    const colli_topo_core *core = &topo->cores[c];
    const int group[LEVELS] = {core->package, core->numa_node, core->l3, core->l2};
    if (!core->allowed)
      continue;
    for (int level = 0; level < LEVELS; level++)
      seats[nseats].group[level] = group[order[level]];
    seats[nseats++].core = c;
  }
  qsort(seats, (size_t)nseats, sizeof(*seats), compare_seats);
  return nseats;
}

/*
 * How many of `nranks` ranks a group of `size` seats gets when `nseats` seats in `ngroups` groups
 * are dealt out evenly: `level` ranks to each group that holds as many, and one more to the first
 * `extra` groups that hold more.
 */
static int fair_share(int size, int level, int *extra) {
  if (size <= level)
    return size;
  if (*extra == 0)
    return level;
  (*extra)--;
  return level + 1;
}

/* End of the group that begins at seats[first]. */
static int group_end(const seat *seats, int first, int nseats, int level) {
  int end = first + 1;
  while (end < nseats && seats[end].group[level] == seats[first].group[level])
    end++;
  return end;
}

/*
 * The highest level to which all groups can be filled, as far as they have seats, with at most
 * nranks ranks.
 */
static int water_level(const seat *seats, int nseats, int level, int nranks, int *extra) {
  for (int water = 0;; water++) {
    int taken = 0, taken_next = 0;
    for (int first = 0; first < nseats;) {
      int end = group_end(seats, first, nseats, level);
      taken += end - first < water ? end - first : water;
      taken_next += end - first < water + 1 ? end - first : water + 1;
      first = end;
    }
    *extra = nranks - taken;
    if (taken_next > nranks || taken == nseats)
      return water;
  }
}

/* Gives ranks 0 .. nranks-1 seats, evenly over the groups of `level` and then inside each. */
static void deal_cores(const seat *seats, int nseats, int level, int nranks, int *cores) {
  if (level == LEVELS) {
    for (int r = 0; r < nranks; r++)
      cores[r] = seats[r].core;
    return;
  }
  int extra;
  int water = water_level(seats, nseats, level, nranks, &extra);
  for (int first = 0, done = 0; first < nseats;) {
    int end = group_end(seats, first, nseats, level);
    int share = fair_share(end - first, water, &extra);
    deal_cores(seats + first, end - first, level + 1, share, cores + done);
    done += share;
    first = end;
  }
}

/* Chooses a core for each of nranks ranks, or -1 for all. */
void colli_topo_place(const colli_topo *topo, int nranks, int *cores) {
  int allowed = colli_topo_allowed_cores(topo);
  int nplaces = nranks < allowed ? nranks : allowed;
  for (int r = 0; r < nranks; r++)
    cores[r] = -1;
  if (nplaces < 1 || nranks % nplaces != 0)
    return;
  seat *seats = malloc((size_t)topo->ncores * sizeof(*seats));
  if (seats == NULL)
    return; /* unbound ranks are slower, not wrong */
  int nseats = fill_seats(topo, seats);
  deal_cores(seats, nseats, 0, nplaces, cores);
  free(seats);
  for (int r = nranks - 1; r >= 0; r--) /* from the end: it reads what it writes later */
    cores[r] = cores[r / (nranks / nplaces)];
}

/* Counts the cores that this process may use. */
int colli_topo_allowed_cores(const colli_topo *topo) {
  int count = 0;
  for (int c = 0; c < topo->ncores; c++)
    count += topo->cores[c].allowed;
  return count;
}

/* Reads where the calling thread may run; 0 or an errno. */
static int read_mask(colli_cpus *mask) {
  memset(mask, 0, sizeof(*mask));
  return sched_getaffinity(0, sizeof(*mask), &mask->set) < 0 ? errno : 0;
}

/* The core that the calling thread is confined to, or -1. */
int colli_topo_bound_core(const colli_topo *topo) {
  colli_cpus mask;
  int core = -1;
  if (read_mask(&mask) != 0)
    return -1;
  for (int pu = 0; pu < COLLI_CPUS_MOST; pu++) {
    if (!CPU_ISSET_S(pu, sizeof(mask), &mask.set))
      continue;
    int of = pu < topo->npu_numbers ? topo->core_of_pu[pu] : -1;
    if (of < 0 || (core >= 0 && of != core))
      return -1;
    core = of;
  }
  return core;
}

/* Whether a processing unit belongs to a core, or to its NUMA node. */
static bool is_of(const colli_topo *topo, int pu, int core, bool node) {
  int of = pu < topo->npu_numbers ? topo->core_of_pu[pu] : -1;
  return of == core ||
         (node && of >= 0 && topo->cores[of].numa_node == topo->cores[core].numa_node);
}

/* The units of a core or NUMA node that the calling thread may run on. */
coll_status colli_topo_cpus(const colli_topo *topo, int core, bool node, colli_cpus *cpus,
                            coll_error *error) {
  if (core < 0 || core >= topo->ncores)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, "bind",
                           "there is no core %d: %s has cores 0 to %d", core, topo->source,
                           topo->ncores - 1);
  int failed = read_mask(cpus);
  if (failed != 0)
    return colli_error_sys(error, COLL_ERR_SYSTEM, "bind", "sched_getaffinity", failed,
                           "cannot find out where this process may run");
  for (int pu = 0; pu < COLLI_CPUS_MOST; pu++)
    if (!is_of(topo, pu, core, node))
      CPU_CLR_S(pu, sizeof(*cpus), &cpus->set);
  if (CPU_COUNT_S(sizeof(*cpus), &cpus->set) == 0)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, "bind",
                           "this process may not run on core %d of %s", core, topo->source);
  return COLL_OK;
}

/* Confines the calling thread to one core. */
coll_status colli_topo_bind(const colli_topo *topo, int core, coll_error *error) {
  colli_cpus cpus;
  coll_status status = colli_topo_cpus(topo, core, false, &cpus, error);
  if (status == COLL_OK && sched_setaffinity(0, sizeof(cpus), &cpus.set) < 0)
    status = colli_error_sys(error, COLL_ERR_SYSTEM, "bind", "sched_setaffinity", errno,
                             "cannot bind to core %d", core);
  return status;
}
