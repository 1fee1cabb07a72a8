/* measure_levels.c: finds the sites and racks of hosts, and writes into the table of ranks what was
 * measured. */
#include "libcoll/create/measure_levels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/comm/comm.h"
#include "libcoll/comm/inspect.h"
#include "libcoll/create/assemble.h"
#include "libcoll/progress/enter.h"
#include "libcoll/tuning/hierarchy.h"

/* Lists the first rank of each number below nranks that `of` has, if it is one of `among` (NULL:
 * any). */
void colli_measure_list_first(const coll_comm *comm, const int32_t *of, const int32_t *among,
                              colli_delegation *out) {
  int next = 0;
  out->delegates.count = 0;
  out->delegates.own = -1;
  for (int rank = 0; rank < comm->nranks; rank++) {
    if (of[rank] < next) /* numbers are in the order of their first ranks */
      continue;
    next = of[rank] + 1;
    if (among && among[rank] != among[comm->rank])
      continue;
    if (rank == comm->rank)
      out->delegates.own = out->delegates.count;
    out->delegates.rank[out->delegates.count++] = rank;
  }
}

/* The host of each rank. */
const int32_t *colli_measure_host_of(const coll_comm *comm) {
  const colli_plans *plans = &comm->calls.plans;
  return plans->ninner > 0 ? plans->inner[0] : plans->group;
}

/* Replaces a setting by what was found, so that a communicator that takes this one's place after a
 * failure has it. If there is no room, that one lacks it. */
void colli_measure_keep(coll_comm *comm, colli_param_id id, const char *text) {
  (void)colli_params_set_text(&comm->params, id, text);
}

/* Makes these records those of the table, and lets the choice of algorithms know. */
coll_status colli_measure_use_records(coll_comm *comm, const colli_rank_info *all,
                                      coll_error *error) {
  coll_status status = colli_call_enter(comm); /* a progress thread reads the table, too */
  if (status != COLL_OK)
    return status;
  status = colli_rank_table_replace(comm->table, all) ? colli_comm_refresh_model(comm, error)
                                                      : COLL_ERR_NO_MEMORY;
  colli_call_leave(comm);
  return status;
}

/* Forgets what was measured before. */
coll_status colli_measure_forget(coll_comm *comm, coll_error *error) {
  colli_rank_info *all = colli_rank_table_unpack(comm->table);
  if (!all)
    return COLL_ERR_NO_MEMORY;
  bool any = false;
  for (int rank = 0; rank < comm->nranks; rank++) {
    colli_rank_info *info = &all[rank];
    if (info->link_source == COLLI_SPEED_MEASURED) {
      any = true;
      info->link_source = COLLI_SPEED_UNKNOWN;
      info->link_mbit = 0;
    }
    if (info->level_source != COLLI_LEVELS_MEASURED)
      continue;
    any = true;
    info->level_source = COLLI_LEVELS_UNKNOWN;
    memset(info->levels, 0, sizeof(info->levels));
    memset(info->level_alpha_ns, 0, sizeof(info->level_alpha_ns));
    memset(info->level_beta_ns_per_byte, 0, sizeof(info->level_beta_ns_per_byte));
  }
  const coll_status status = any ? colli_measure_use_records(comm, all, error) : COLL_OK;
  free(all);
  return status;
}

/* ---- sites and racks ------------------------------------------------------------------------- */

/* Writes the levels of a host: its site, if there are several, and its rack, if there are more
 * racks than sites. */
static void name_levels(const colli_measured_levels *at, int host, char text[COLLI_LEVELS_BYTES]) {
  const int site = at->sites.group[host] + 1, rack = at->racks.group[host] + 1;
  if (at->sites.count > 1 && at->racks.count > at->sites.count)
    snprintf(text, COLLI_LEVELS_BYTES, COLLI_LEVEL_MEASURED_SITE "%d/rack%d", site, rack);
  else if (at->sites.count > 1)
    snprintf(text, COLLI_LEVELS_BYTES, COLLI_LEVEL_MEASURED_SITE "%d", site);
  else
    snprintf(text, COLLI_LEVELS_BYTES, COLLI_LEVEL_MEASURED "rack%d", rack);
}

/* Logs groups of hosts, and why they are. */
static void tell_groups(const coll_comm *comm, const colli_delegation *some, const char *kind,
                        const colli_measured_groups *groups) {
  if (groups->apart_ns <= 0)
    return;
  colli_log_write(
      &comm->log, COLLI_LOG_INFO,
      "hosts are in %d %ss: round trips in a %s take at most %.4g ms, to another one at "
      "least %.4g ms",
      groups->count, kind, kind, groups->inside_ns * 1e-6, groups->apart_ns * 1e-6);
  for (int i = 0; i < some->delegates.count; i++)
    colli_log_write(&comm->log, COLLI_LOG_INFO, "host %s is at %s %d of %d",
                    colli_rank_at(comm->table, some->delegates.rank[i]).host, kind,
                    groups->group[i] + 1, groups->count);
}

/* Writes the levels of hosts into the table, and says so. */
static coll_status note_levels(coll_comm *comm, const colli_delegation *some,
                               const colli_measured_levels *at, coll_error *error) {
  const int32_t *host = colli_measure_host_of(comm);
  colli_rank_info *all = colli_rank_table_unpack(comm->table);
  if (!all)
    return COLL_ERR_NO_MEMORY;
  for (int rank = 0; rank < comm->nranks; rank++) { /* hosts are listed by their numbers */
    name_levels(at, host[rank], all[rank].levels);
    all[rank].level_source = COLLI_LEVELS_MEASURED;
  }
  colli_measure_keep(comm, COLLI_PARAM_LEVELS, all[comm->rank].levels);
  if (comm->rank == 0) {
    tell_groups(comm, some, "site", &at->sites);
    tell_groups(comm, some, "rack", &at->racks);
  }
  const coll_status status = colli_measure_use_records(comm, all, error);
  free(all);
  return status;
}

/* A colli_round_trip_fn, for ranks that are connected. */
double colli_measure_round_trip_ns(coll_comm *comm, int rank) {
  if (colli_call_enter(comm) != COLL_OK)
    return 0;
  const double ns = colli_comm_round_trip(comm, rank);
  colli_call_leave(comm);
  return ns;
}

/* Whether levels are declared, or declared not to be, or those of Slurm make groups. */
bool colli_measure_knows_levels(const coll_comm *comm) {
  return colli_hierarchy_source(comm->table) >= COLLI_LEVELS_NONE || comm->calls.plans.ninner > 0 ||
         comm->calls.plans.model.sites;
}

/* Finds sites and racks, unless levels are known. */
coll_status colli_measure_find_levels(coll_comm *comm, colli_delegation *all, uint64_t until_ns,
                                      colli_measured_levels *out, coll_error *error) {
  if (colli_measure_knows_levels(comm))
    return COLL_OK;
  colli_measure_list_first(comm, colli_measure_host_of(comm), NULL, all);
  const colli_distances distances = {all->delegates, colli_measure_round_trip_ns, until_ns};
  const size_t count = (size_t)all->delegates.count;
  int *numbers = malloc(2 * count * sizeof(*numbers));
  if (!numbers)
    return COLL_ERR_NO_MEMORY;
  colli_measured_groups *sites = &out->sites, *racks = &out->racks;
  sites->group = numbers;
  coll_status status = colli_measure_sites(comm, &distances, sites);
  if (status == COLL_OK) {
    *racks = *sites; /* with `late`: then there is no time for racks */
    racks->group = memcpy(numbers + count, numbers, count * sizeof(*numbers));
    status = colli_measure_racks(comm, &distances, racks);
    racks->late = racks->late || sites->late;
  }
  if (status == COLL_OK && racks->late && comm->rank == 0)
    colli_log_write(&comm->log, COLLI_LOG_INFO,
                    "there was no time to find all sites and racks: if there are more, declare "
                    "them (COLL_LEVELS)");
  if (status == COLL_OK && racks->count > 1)
    status = note_levels(comm, all, out, error);
  free(numbers);
  sites->group = racks->group = NULL;
  return status;
}
