/* measure_links.c: has links between hosts measured, and tells the choice of algorithms. */
#include "libcoll/create/measure_levels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/comm/comm.h"
#include "libcoll/measure/distance.h"
#include "libcoll/measure/speed.h"
#include "libcoll/tuning/hierarchy.h"
#include "libcoll/tuning/link_speed.h"
#include "libcoll/tuning/units.h"

/* By when parts end, in parts of all time: sites and racks, hosts' links, and all. */
#define LEVELS_PART 0.4
#define LINKS_PART  0.6

/* The deadlines of parts, by this rank's clock. */
typedef struct deadlines {
  uint64_t levels_ns, links_ns, end_ns;
} deadlines;

/* What a rank has measured; 0: nothing. */
typedef struct findings {
  double rate; /* of its host's link */
  /* Of the ways from its group of each level to another one: */
  double line_alpha[COLLI_HOST_LEVELS], line_rate[COLLI_HOST_LEVELS];
  double missing; /* parts that it had no time for, or did not end in time */
} findings;

/* The groups of ranks number k, from the narrowest (hosts) on. */
static const int32_t *groups_at(const colli_plans *plans, int k) {
  return k < plans->ninner ? plans->inner[k] : plans->group;
}

/* Which level of records these groups are of, or -1: hosts. */
static int level_at(const colli_plans *plans, int k) {
  return plans->names[k] - 1;
}

/* Whether what lies between the groups number k is a line between sites. */
static bool is_line(const colli_plans *plans, int k) {
  return k == plans->ninner && plans->model.sites;
}

bool colli_measure_is_wanted(const coll_comm *comm) {
  if (comm->calls.plans.ngroups <= 1)
    return false;
  const bool known = colli_measure_knows_levels(comm);
  colli_rank_walk walk = colli_rank_walk_over(comm->table, COLLI_RANK_FIELDS(link_source, far));
  for (int rank = 0; rank < comm->nranks; rank++) {
    const colli_rank_info *info = colli_rank_walk_to(&walk, rank);
    if (info->link_source == COLLI_SPEED_WANTED || (info->far && !known))
      return true;
  }
  return false;
}

/* ---- speeds ---------------------------------------------------------------------------------- */

/*
 * Lists the first rank of host number `at` of each group number k that is in one of the next wider
 * groups with this rank's; its own group first has `at` hosts that are before this rank's. False:
 * some group has no such host.
 */
static bool list_counterparts(const coll_comm *comm, int k, colli_delegation *out) {
  const colli_plans *plans = &comm->calls.plans;
  const int32_t *host = colli_measure_host_of(comm), *of = groups_at(plans, k);
  const int32_t *among = k < plans->ninner ? groups_at(plans, k + 1) : NULL;
  int groups = 0, at = -1;
  for (int pass = 0; pass < 2; pass++) { /* the first one finds `at` */
    memset(out->seen, 0, (size_t)comm->nranks * sizeof(*out->seen));
    out->delegates.count = groups = 0;
    out->delegates.own = -1;
    for (int rank = 0, next = 0; rank < comm->nranks; rank++) {
      if (host[rank] < next)
        continue;
      next = host[rank] + 1;
      if (among && among[rank] != among[comm->rank])
        continue;
      const int before = out->seen[of[rank]]++;
      groups += before == 0;
      if (pass == 0 && rank == comm->rank)
        at = before;
      if (pass == 0 || before != at)
        continue;
      if (rank == comm->rank)
        out->delegates.own = out->delegates.count;
      out->delegates.rank[out->delegates.count++] = rank;
    }
    if (at < 0 || (at > 0 && is_line(plans, k)))
      return false;
  }
  return groups > 1 && out->delegates.count == groups;
}

/* Measures the ways from this rank's group number k to the next one: all hosts at once (of each
 * group as many as the smallest has), as a level's speed is that which each has then; over a line
 * between sites one for each, as that is what is sent there. */
static coll_status measure_level(coll_comm *comm, int k, uint64_t end_ns, colli_delegation *some,
                                 findings *found) {
  const int level = level_at(&comm->calls.plans, k), left = comm->calls.plans.ninner - k + 1;
  double *alpha_ns = &found->line_alpha[level], *rate = &found->line_rate[level];
  if (!list_counterparts(comm, k, some))
    return COLL_OK;
  const uint64_t now = colli_now_ns();
  const colli_delegates *delegates = &some->delegates;
  const coll_status status = colli_measure_line(
      comm, delegates, now < end_ns ? now + (end_ns - now) / (uint64_t)left : now, alpha_ns, rate);
  found->missing += *rate <= 0;
  /* What the network says holds for shorter messages, when nobody else sends. */
  const double way_ns =
      colli_measure_round_trip_ns(
          comm, some->delegates.rank[(some->delegates.own + 1) % some->delegates.count]) /
      2;
  if (way_ns > 0)
    *alpha_ns = *alpha_ns > 0 ? fmin(*alpha_ns, way_ns) : way_ns;
  return status;
}

/* Measures the link of this rank's host, among those of its widest group, and then what lies
 * between the groups of each level. */
static coll_status measure_speeds(coll_comm *comm, colli_delegation *some, const deadlines *by,
                                  findings *found) {
  const colli_plans *plans = &comm->calls.plans;
  const bool wide = plans->model.sites || plans->ninner > 0;
  colli_measure_list_first(comm, colli_measure_host_of(comm), wide ? plans->group : NULL, some);
  const colli_delegates *delegates = &some->delegates;
  bool late = false;
  coll_status status = colli_measure_link(comm, delegates, by->links_ns, &found->rate, &late);
  found->missing += delegates->own >= 0 && delegates->count > 1 && found->rate <= 0;
  late = false;
  for (int k = 0; k <= plans->ninner && status == COLL_OK; k++) {
    if (level_at(plans, k) < 0)
      continue;
    if (!late)                                               /* else all know */
      status = colli_measure_agree(comm, by->end_ns, &late); /* what was before has ended */
    if (late)
      found->missing += list_counterparts(comm, k, some);
    else if (status == COLL_OK)
      status = measure_level(comm, k, by->end_ns, some, found);
  }
  return status;
}

/* Gives all ranks of each group number k what its hosts have measured, on average; `first` has room
 * for all ranks. */
static void spread_level(const coll_comm *comm, int k, findings *all, findings *first) {
  const int32_t *group = groups_at(&comm->calls.plans, k);
  const int level = level_at(&comm->calls.plans, k);
  if (level < 0)
    return;
  memset(first, 0, (size_t)comm->nranks * sizeof(*first));
  for (int rank = 0; rank < comm->nranks; rank++) {
    findings *sum = &first[group[rank]];
    sum->line_rate[level] += all[rank].line_rate[level];
    sum->line_alpha[level] += all[rank].line_alpha[level];
    sum->rate += all[rank].line_rate[level] > 0; /* counts them */
    sum->missing += all[rank].line_alpha[level] > 0;
  }
  for (int rank = 0; rank < comm->nranks; rank++) {
    const findings *sum = &first[group[rank]];
    all[rank].line_rate[level] = sum->rate > 0 ? sum->line_rate[level] / sum->rate : 0;
    all[rank].line_alpha[level] = sum->missing > 0 ? sum->line_alpha[level] / sum->missing : 0;
  }
}

/* Where the ways out of groups were not measured, half of the round trips count that made them. */
static void fill_alphas(const colli_measured_groups *at, int level, int nranks, findings *all) {
  for (int rank = 0; rank < nranks; rank++)
    if (at->apart_ns > 0 && all[rank].line_alpha[level] <= 0)
      all[rank].line_alpha[level] = at->apart_ns / 2;
}

/* Of each rank, what was found of its host and its groups: `all` has what each rank has found
 * itself. A host that is alone at its site was not measured; its link counts as as fast as any.
 * Hosts with a rank whose user has given a number get none. `first` has room for as many. */
static void spread(const coll_comm *comm, const colli_measured_levels *levels, findings *all,
                   findings *first) {
  const int32_t *host = colli_measure_host_of(comm);
  double most = 0;
  for (int k = 0; k <= comm->calls.plans.ninner; k++)
    spread_level(comm, k, all, first);
  memset(first, 0, (size_t)comm->nranks * sizeof(*first));
  for (int rank = 0; rank < comm->nranks; rank++) {
    most = all[rank].rate > most ? all[rank].rate : most;
    if (all[rank].rate > 0)
      first[host[rank]].rate = all[rank].rate;
  }
  colli_rank_walk walk = colli_rank_walk_over(comm->table, COLLI_RANK_FIELD(link_source));
  for (int rank = 0; rank < comm->nranks; rank++)
    if (colli_rank_walk_to(&walk, rank)->link_source == COLLI_SPEED_DECLARED)
      first[host[rank]].rate = -1;
  for (int rank = 0; rank < comm->nranks; rank++) {
    const double rate = first[host[rank]].rate;
    all[rank].rate = rate == 0 ? most : rate > 0 ? rate : 0;
    if (levels->measured)
      levels->measured[rank] = rate > 0;
  }
  fill_alphas(&levels->sites, 0, comm->nranks, all);
  fill_alphas(&levels->racks, levels->sites.apart_ns > 0, comm->nranks, all);
}

/* Says what was found of the ways between groups number k, which are in the order of their first
 * ranks. */
static void tell_level(const coll_comm *comm, int k, const findings *found) {
  const colli_plans *plans = &comm->calls.plans;
  const int32_t *group = groups_at(plans, k);
  const int level = level_at(plans, k);
  for (int rank = 0, told = 0; level >= 0 && rank < comm->nranks; rank++) {
    if (group[rank] < told)
      continue;
    told = group[rank] + 1;
    const double ms = found[rank].line_alpha[level] * 1e-6;
    const double mbit = found[rank].line_rate[level] * COLLI_NS_PER_BYTE_AT_1_MBIT;
    char speed[64] = "no speed";
    if (mbit > 0)
      snprintf(speed, sizeof(speed), "%.4g Mbit/s", mbit);
    if (ms > 0)
      colli_log_write(&comm->log, COLLI_LOG_INFO,
                      "from host %s's %s to the next: %.4g ms and %s measured%s",
                      colli_rank_at(comm->table, rank).host, is_line(plans, k) ? "site" : "group",
                      ms, speed, is_line(plans, k) ? "" : " for each host");
  }
}

/* Says what was found, on rank 0. */
static void tell_speeds(const coll_comm *comm, const colli_delegation *all, const findings *found) {
  double missing = 0;
  for (int i = 0; i < all->delegates.count; i++) {
    const int rank = all->delegates.rank[i];
    missing += found[rank].missing;
    if (found[rank].rate > 0)
      colli_log_write(&comm->log, COLLI_LOG_INFO, "the link of host %s: %.4g Mbit/s measured",
                      colli_rank_at(comm->table, rank).host,
                      found[rank].rate * COLLI_NS_PER_BYTE_AT_1_MBIT);
  }
  for (int k = 0; k <= comm->calls.plans.ninner; k++)
    tell_level(comm, k, found);
  if (missing > 0)
    colli_log_write(
        &comm->log, COLLI_LOG_INFO,
        "there was no time to measure %.0f of the links and of the ways between groups: "
        "others' speeds count, or what is assumed; COLL_LINK_SPEED and COLL_LEVELS "
        "declare them",
        missing);
}

/* Writes what was found into the table; what was declared of levels stays. */
static coll_status note_speeds(coll_comm *comm, const findings *found, coll_error *error) {
  char text[32];
  colli_rank_info *all = colli_rank_table_unpack(comm->table);
  if (!all)
    return COLL_ERR_NO_MEMORY;
  for (int rank = 0; rank < comm->nranks; rank++) {
    colli_rank_info *info = &all[rank];
    for (int level = 0; level < COLLI_HOST_LEVELS; level++) {
      if (info->level_alpha_ns[level] <= 0)
        info->level_alpha_ns[level] = found[rank].line_alpha[level];
      if (info->level_beta_ns_per_byte[level] <= 0 && found[rank].line_rate[level] > 0)
        info->level_beta_ns_per_byte[level] = 1 / found[rank].line_rate[level];
    }
    if (found[rank].rate <= 0)
      continue;
    info->link_mbit = found[rank].rate * COLLI_NS_PER_BYTE_AT_1_MBIT;
    info->link_source = COLLI_SPEED_MEASURED;
    if (rank == comm->rank) {
      colli_print_speed(info->link_mbit, text, sizeof(text));
      colli_measure_keep(comm, COLLI_PARAM_LINK_SPEED, text);
    }
  }
  const coll_status status = colli_measure_use_records(comm, all, error);
  free(all);
  return status;
}

/* Measures speeds and lets all ranks know. */
static coll_status find_speeds(coll_comm *comm, colli_delegation *some, const deadlines *by,
                               const colli_measured_levels *levels, coll_error *error) {
  const size_t n = (size_t)comm->nranks;
  findings mine = {0}, *all = calloc(2 * n, sizeof(*all));
  if (!all)
    return COLL_ERR_NO_MEMORY;
  coll_status status = measure_speeds(comm, some, by, &mine);
  if (status == COLL_OK)
    status = coll_allgather(&mine, all, sizeof(mine) / sizeof(double), COLL_FLOAT64, comm);
  if (status == COLL_OK) {
    spread(comm, levels, all, all + n);
    colli_measure_list_first(comm, colli_measure_host_of(comm), NULL, some);
    if (comm->rank == 0)
      tell_speeds(comm, some, all);
    status = note_speeds(comm, all, error);
  }
  free(all);
  return status;
}

/* Finds out all that there is to find out. */
static coll_status measure_all(coll_comm *comm, uint64_t budget_ns, colli_delegation *some,
                               colli_measured_levels *levels, coll_error *error) {
  coll_status status = coll_barrier(comm); /* so that time begins for all ranks */
  const uint64_t now = colli_now_ns();
  const deadlines by = {now + (uint64_t)(LEVELS_PART * (double)budget_ns),
                        now + (uint64_t)(LINKS_PART * (double)budget_ns), now + budget_ns};
  if (status == COLL_OK)
    status = colli_measure_forget(comm, error);
  if (status == COLL_OK)
    status = colli_measure_find_levels(comm, some, by.levels_ns, levels, error);
  return status == COLL_OK ? find_speeds(comm, some, &by, levels, error) : status;
}

coll_status colli_measure_links(coll_comm *comm, uint64_t budget_ns, colli_measured_levels *levels,
                                coll_error *error) {
  colli_measured_levels found = {0};
  levels = levels ? levels : &found;
  levels->sites = levels->racks = found.sites;
  if (comm->calls.plans.ngroups <= 1)
    return COLL_OK;
  colli_delegation some = {.delegates.rank = calloc(2 * (size_t)comm->nranks, sizeof(int))};
  int *memory = some.delegates.rank;
  some.seen = memory ? memory + comm->nranks : NULL;
  const coll_status status =
      memory ? measure_all(comm, budget_ns, &some, levels, error) : COLL_ERR_NO_MEMORY;
  free(memory);
  if (status == COLL_OK)
    return COLL_OK;
  const bool failed = comm->failure.status != COLL_OK;
  if (failed)
    colli_error_copy(error, &comm->failure.error);
  else if (error->status == COLL_OK)
    colli_error_set(error, status, "create", "out of memory to measure links between hosts");
  coll_comm_revoke(comm); /* or the others would wait for this rank */
  return status;
}
