/* measure_links.c: has links between hosts measured, and tells the choice of algorithms. */
#include "libcoll/create/measure_links.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/comm/comm.h"
#include "libcoll/comm/inspect.h"
#include "libcoll/create/assemble.h"
#include "libcoll/measure/distance.h"
#include "libcoll/measure/speed.h"
#include "libcoll/progress/enter.h"
#include "libcoll/tuning/hierarchy.h"
#include "libcoll/tuning/link_speed.h"
#include "libcoll/tuning/units.h"

#define WAYS_BYTES 640

/* The first ranks of some hosts. */
typedef struct hosts {
  int *member;
  int count;
  int own; /* this rank's number among them; -1: it is not */
} hosts;

/* What a rank has measured; 0: nothing. */
typedef struct findings {
  double rate;                  /* of its host's link */
  double line_alpha, line_rate; /* of the line to another site */
} findings;

/* Lists the first rank of each number below nranks that `of` has, if it is one of `among` (NULL:
 * any). */
static void list_first(const coll_comm *comm, const int32_t *of, const int32_t *among, hosts *out) {
  int next = 0;
  *out = (hosts){.member = out->member, .own = -1};
  for (int rank = 0; rank < comm->nranks; rank++) {
    if (of[rank] < next) /* numbers are in the order of their first ranks */
      continue;
    next = of[rank] + 1;
    if (among && among[rank] != among[comm->rank])
      continue;
    if (rank == comm->rank)
      out->own = out->count;
    out->member[out->count++] = rank;
  }
}

/* The host of each rank. */
static const int32_t *host_of(const coll_comm *comm) {
  const colli_plans *plans = &comm->calls.plans;
  return plans->ninner > 0 ? plans->inner[0] : plans->group;
}

/* Whether some rank wants it. */
static bool is_wanted(const coll_comm *comm) {
  for (int rank = 0; rank < comm->nranks; rank++)
    if (colli_rank_at(comm->table, rank).link_source == COLLI_SPEED_WANTED)
      return comm->calls.plans.ngroups > 1;
  return false;
}

/* Replaces a setting by what was found, so that a communicator that takes this one's place after a
 * failure has it. If there is no room, that one lacks it. */
static void keep(coll_comm *comm, colli_param_id id, const char *text) {
  (void)colli_params_set_text(&comm->params, id, text);
}

/* Makes these records those of the table, and lets the choice of algorithms know. */
static coll_status use_records(coll_comm *comm, const colli_rank_info *all, coll_error *error) {
  coll_status status = colli_call_enter(comm); /* a progress thread reads the table, too */
  if (status != COLL_OK)
    return status;
  status = colli_rank_table_replace(comm->table, all) ? colli_comm_refresh_model(comm, error)
                                                      : COLL_ERR_NO_MEMORY;
  colli_call_leave(comm);
  return status;
}

/* ---- sites ----------------------------------------------------------------------------------- */

/* Writes the sites of the hosts in `some` into the table, and says so. */
static coll_status note_sites(coll_comm *comm, const hosts *some, const int *site, int sites,
                              coll_error *error) {
  const int32_t *host = host_of(comm);
  colli_rank_info *all = colli_rank_table_unpack(comm->table);
  if (!all)
    return COLL_ERR_NO_MEMORY;
  for (int rank = 0; rank < comm->nranks; rank++) { /* hosts are listed by their numbers */
    snprintf(all[rank].levels, COLLI_LEVELS_BYTES, COLLI_LEVEL_MEASURED "%d", site[host[rank]] + 1);
    all[rank].level_source = COLLI_LEVELS_MEASURED;
  }
  keep(comm, COLLI_PARAM_LEVELS, all[comm->rank].levels);
  for (int i = 0; i < some->count && comm->rank == 0; i++)
    colli_log_write(&comm->log, COLLI_LOG_INFO,
                    "host %s is at site %d of %d, as round trips to other hosts say",
                    all[some->member[i]].host, site[i] + 1, sites);
  const coll_status status = use_records(comm, all, error);
  free(all);
  return status;
}

/* A colli_round_trip_fn, for ranks that are connected. */
static double round_trip_ns(coll_comm *comm, int rank) {
  char ways[WAYS_BYTES];
  double ns = 0;
  if (colli_call_enter(comm) != COLL_OK)
    return 0;
  colli_comm_paths(comm, rank, ways, sizeof(ways), &ns);
  colli_call_leave(comm);
  return ns;
}

/* Finds sites, unless levels are known. */
static coll_status find_sites(coll_comm *comm, hosts *all, coll_error *error) {
  if (comm->calls.plans.ninner > 0 || comm->calls.plans.model.sites)
    return COLL_OK;
  list_first(comm, host_of(comm), NULL, all);
  int sites = 1, *site = calloc((size_t)all->count, sizeof(*site));
  if (!site)
    return COLL_ERR_NO_MEMORY;
  coll_status status =
      colli_measure_sites(comm, all->member, all->count, all->own, round_trip_ns, site, &sites);
  if (status == COLL_OK && sites > 1)
    status = note_sites(comm, all, site, sites, error);
  free(site);
  return status;
}

/* ---- speeds ---------------------------------------------------------------------------------- */

/* Measures the link of this rank's host, among those of its site, and then the line to the next
 * site. */
static coll_status measure_speeds(coll_comm *comm, hosts *some, findings *found) {
  const colli_plans *plans = &comm->calls.plans;
  const bool sites = plans->model.sites || plans->ninner > 0;
  coll_status status = COLL_OK;
  list_first(comm, host_of(comm), sites ? plans->group : NULL, some);
  if (some->own >= 0 && some->count > 1)
    status = colli_measure_link(comm, some->member, some->count, some->own, &found->rate);
  if (status == COLL_OK)
    status = coll_barrier(comm); /* or the line would be measured while links still are */
  list_first(comm, plans->group, NULL, some);
  if (status == COLL_OK && sites && some->own >= 0)
    status = colli_measure_line(comm, some->member, some->count, some->own, &found->line_alpha,
                                &found->line_rate);
  return status;
}

/* Of each rank, what was found of its host and its site: `all` has what each rank has found itself.
 * A host that is alone at its site was not measured; its link counts as as fast as any. Hosts with
 * a rank whose user has given a number get none. `first` has room for as many, and is 0. */
static void spread(const coll_comm *comm, findings *all, findings *first) {
  const int32_t *host = host_of(comm), *group = comm->calls.plans.group;
  double most = 0;
  for (int rank = 0; rank < comm->nranks; rank++) {
    most = all[rank].rate > most ? all[rank].rate : most;
    if (all[rank].rate > 0)
      first[host[rank]].rate = all[rank].rate;
    if (all[rank].line_rate > 0) {
      first[group[rank]].line_rate = all[rank].line_rate;
      first[group[rank]].line_alpha = all[rank].line_alpha;
    }
  }
  for (int rank = 0; rank < comm->nranks; rank++)
    if (colli_rank_at(comm->table, rank).link_source == COLLI_SPEED_DECLARED)
      first[host[rank]].rate = -1;
  for (int rank = 0; rank < comm->nranks; rank++) {
    double rate = first[host[rank]].rate;
    all[rank] = first[group[rank]];
    all[rank].rate = rate == 0 ? most : rate > 0 ? rate : 0;
  }
}

/* Says what was found, on rank 0. */
static void tell_speeds(const coll_comm *comm, const hosts *all, const findings *found) {
  const int32_t *group = comm->calls.plans.group;
  int told = 0; /* groups, which are in the order of their first ranks */
  for (int i = 0; i < all->count; i++) {
    const int rank = all->member[i];
    if (found[rank].rate > 0)
      colli_log_write(&comm->log, COLLI_LOG_INFO, "the link of host %s: %.4g Mbit/s measured",
                      colli_rank_at(comm->table, rank).host,
                      found[rank].rate * COLLI_NS_PER_BYTE_AT_1_MBIT);
    if (group[rank] < told)
      continue;
    told = group[rank] + 1;
    if (found[rank].line_rate > 0)
      colli_log_write(&comm->log, COLLI_LOG_INFO,
                      "from host %s's site to the next: %.4g ms and %.4g Mbit/s measured",
                      colli_rank_at(comm->table, rank).host, found[rank].line_alpha * 1e-6,
                      found[rank].line_rate * COLLI_NS_PER_BYTE_AT_1_MBIT);
  }
}

/* Writes what was found into the table; the line is what lies between the widest groups. */
static coll_status note_speeds(coll_comm *comm, const findings *found, coll_error *error) {
  const colli_plans *plans = &comm->calls.plans;
  const int level = plans->names[plans->ninner] > 0 ? plans->names[plans->ninner] - 1 : 0;
  char text[32];
  colli_rank_info *all = colli_rank_table_unpack(comm->table);
  if (!all)
    return COLL_ERR_NO_MEMORY;
  for (int rank = 0; rank < comm->nranks; rank++) {
    colli_rank_info *info = &all[rank];
    if (found[rank].line_rate > 0) {
      if (info->level_alpha_ns[level] <= 0)
        info->level_alpha_ns[level] = found[rank].line_alpha;
      if (info->level_beta_ns_per_byte[level] <= 0)
        info->level_beta_ns_per_byte[level] = 1 / found[rank].line_rate;
    }
    if (found[rank].rate <= 0)
      continue;
    info->link_mbit = found[rank].rate * COLLI_NS_PER_BYTE_AT_1_MBIT;
    info->link_source = COLLI_SPEED_MEASURED;
    if (rank == comm->rank) {
      colli_link_speed_print(info->link_mbit, text, sizeof(text));
      keep(comm, COLLI_PARAM_LINK_SPEED, text);
    }
  }
  const coll_status status = use_records(comm, all, error);
  free(all);
  return status;
}

/* Measures speeds and lets all ranks know. */
static coll_status find_speeds(coll_comm *comm, hosts *some, coll_error *error) {
  const size_t n = (size_t)comm->nranks;
  findings mine = {0}, *all = calloc(2 * n, sizeof(*all));
  if (!all)
    return COLL_ERR_NO_MEMORY;
  coll_status status = measure_speeds(comm, some, &mine);
  if (status == COLL_OK)
    status = coll_allgather(&mine, all, sizeof(mine) / sizeof(double), COLL_FLOAT64, comm);
  if (status == COLL_OK) {
    spread(comm, all, all + n);
    list_first(comm, host_of(comm), NULL, some);
    if (comm->rank == 0)
      tell_speeds(comm, some, all);
    status = note_speeds(comm, all, error);
  }
  free(all);
  return status;
}

coll_status colli_measure_links(coll_comm *comm, coll_error *error) {
  if (!is_wanted(comm))
    return COLL_OK;
  hosts some = {.member = calloc((size_t)comm->nranks, sizeof(int))};
  coll_status status = some.member ? find_sites(comm, &some, error) : COLL_ERR_NO_MEMORY;
  if (status == COLL_OK)
    status = find_speeds(comm, &some, error);
  free(some.member);
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
