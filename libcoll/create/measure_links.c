/* measure_links.c: has links between hosts measured, and tells the choice of algorithms. */
#include "libcoll/create/measure_links.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/comm/comm.h"
#include "libcoll/create/assemble.h"
#include "libcoll/measure/distance.h"
#include "libcoll/measure/speed.h"
#include "libcoll/tuning/link_speed.h"

#define MBIT_PER_RATE 8e3 /* a rate is in bytes per ns */

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
  return comm->calls.plans.host ? comm->calls.plans.host : comm->calls.plans.group;
}

/* Whether some rank wants it. */
static bool is_wanted(const coll_comm *comm) {
  for (int rank = 0; rank < comm->nranks; rank++)
    if (comm->table[rank].link_source == COLLI_SPEED_WANTED)
      return comm->calls.plans.ngroups > 1;
  return false;
}

/* Replaces a setting by what was found, so that a communicator that takes this one's place after a
 * failure has it. If there is no room, that one lacks it. */
static void keep(coll_comm *comm, colli_param_id id, const char *text) {
  (void)colli_params_set_text(&comm->params, id, text);
}

/* ---- sites ----------------------------------------------------------------------------------- */

/* Writes the sites of all hosts into the table, and says so. */
static void note_sites(coll_comm *comm, const hosts *all, const int *site, int sites) {
  for (int rank = 0; rank < comm->nranks; rank++)
    for (int i = 0; i < all->count; i++)
      if (host_of(comm)[rank] == host_of(comm)[all->member[i]])
        snprintf(comm->table[rank].site, COLLI_SITE_BYTES, "site %d", site[i] + 1);
  keep(comm, COLLI_PARAM_SITE, comm->table[comm->rank].site);
  for (int i = 0; i < all->count && comm->rank == 0; i++)
    colli_log_write(&comm->log, COLLI_LOG_INFO,
                    "host %s is at site %d of %d, as round trips to other hosts say",
                    comm->table[all->member[i]].host, site[i] + 1, sites);
}

/* Finds sites, unless they are declared. */
static coll_status find_sites(coll_comm *comm, hosts *all) {
  if (*comm->table[0].site)
    return COLL_OK;
  list_first(comm, host_of(comm), NULL, all);
  int sites = 1, *site = calloc((size_t)all->count, sizeof(*site));
  if (!site)
    return COLL_ERR_NO_MEMORY;
  coll_status status = colli_measure_sites(comm, all->member, all->count, all->own, site, &sites);
  if (status == COLL_OK && sites > 1) {
    coll_error error = COLL_ERROR_INIT;
    note_sites(comm, all, site, sites);
    status = colli_comm_refresh_model(comm, &error);
  }
  free(site);
  return status;
}

/* ---- speeds ---------------------------------------------------------------------------------- */

/* Measures the link of this rank's host, among those of its site, and then the line to the next
 * site. */
static coll_status measure_speeds(coll_comm *comm, hosts *some, findings *found) {
  const colli_plans *plans = &comm->calls.plans;
  coll_status status = COLL_OK;
  list_first(comm, host_of(comm), plans->host ? plans->group : NULL, some);
  if (some->own >= 0)
    status = colli_measure_link(comm, some->member, some->count, some->own, &found->rate);
  if (status == COLL_OK)
    status = coll_barrier(comm); /* or the line would be measured while links still are */
  list_first(comm, plans->group, NULL, some);
  if (status == COLL_OK && *comm->table[0].site && some->own >= 0)
    status = colli_measure_line(comm, some->member, some->count, some->own, &found->line_alpha,
                                &found->line_rate);
  return status;
}

/* Writes the speeds of all hosts into the table, unless they were declared, and says so. */
static void note_speeds(coll_comm *comm, const findings *found) {
  char text[32];
  for (int rank = 0; rank < comm->nranks; rank++) {
    colli_rank_info *info = &comm->table[rank];
    if (found[rank].line_rate > 0) {
      info->line_alpha_ns = found[rank].line_alpha;
      info->line_beta_ns_per_byte = 1 / found[rank].line_rate;
      if (comm->rank == 0)
        colli_log_write(&comm->log, COLLI_LOG_INFO,
                        "from %s to the next site: %.4g ms and %.4g Mbit/s measured", info->site,
                        info->line_alpha_ns * 1e-6, found[rank].line_rate * MBIT_PER_RATE);
    }
    if (found[rank].rate <= 0 || info->link_source == COLLI_SPEED_DECLARED)
      continue;
    info->link_mbit = found[rank].rate * MBIT_PER_RATE;
    info->link_source = COLLI_SPEED_MEASURED;
    if (host_of(comm)[rank] == host_of(comm)[comm->rank]) {
      colli_link_speed_print(info->link_mbit, text, sizeof(text));
      keep(comm, COLLI_PARAM_LINK_SPEED, text);
    }
    if (comm->rank == 0)
      colli_log_write(&comm->log, COLLI_LOG_INFO, "the link of host %s: %.4g Mbit/s measured",
                      info->host, info->link_mbit);
  }
}

/* Measures speeds and lets all ranks know. */
static coll_status find_speeds(coll_comm *comm, hosts *some) {
  findings mine = {0}, *all = calloc((size_t)comm->nranks, sizeof(*all));
  if (!all)
    return COLL_ERR_NO_MEMORY;
  coll_status status = measure_speeds(comm, some, &mine);
  if (status == COLL_OK)
    status = coll_allgather(&mine, all, sizeof(mine) / sizeof(double), COLL_FLOAT64, comm);
  if (status == COLL_OK) {
    coll_error error = COLL_ERROR_INIT;
    note_speeds(comm, all);
    status = colli_comm_refresh_model(comm, &error);
  }
  free(all);
  return status;
}

coll_status colli_measure_links(coll_comm *comm) {
  if (!is_wanted(comm))
    return COLL_OK;
  hosts some = {.member = calloc((size_t)comm->nranks, sizeof(int))};
  coll_status status = some.member ? find_sites(comm, &some) : COLL_ERR_NO_MEMORY;
  if (status == COLL_OK)
    status = find_speeds(comm, &some);
  free(some.member);
  return status;
}
