/* measure_levels.h: shared by what measures links between hosts (measure_links.h): who measures,
 * the table of ranks, and the sites and racks. */
#ifndef COLLI_CREATE_MEASURE_LEVELS_H
#define COLLI_CREATE_MEASURE_LEVELS_H

#include "libcoll/base/param.h"
#include "libcoll/create/measure_links.h"
#include "libcoll/wireup/rank_table.h"

/* Some of the hosts' first ranks, which measure, and memory to find them. */
typedef struct colli_delegation {
  colli_delegates delegates;
  int *seen; /* room for a number for each rank */
} colli_delegation;

/* Lists the first rank of each number below nranks that `of` has, if it is one of `among` (NULL:
 * any). */
void colli_measure_list_first(const coll_comm *comm, const int32_t *of, const int32_t *among,
                              colli_delegation *out);

/* The host of each rank. */
const int32_t *colli_measure_host_of(const coll_comm *comm);

/* Replaces a setting by what was found, so that a communicator that takes this one's place after a
 * failure has it. If there is no room, that one lacks it. */
void colli_measure_keep(coll_comm *comm, colli_param_id id, const char *text);

/* Makes these records those of the table, and lets the choice of algorithms know. */
coll_status colli_measure_use_records(coll_comm *comm, const colli_rank_info *all,
                                      coll_error *error);

/* Forgets what was measured before. */
coll_status colli_measure_forget(coll_comm *comm, coll_error *error);

/* A colli_round_trip_fn, for ranks that are connected. */
double colli_measure_round_trip_ns(coll_comm *comm, int rank);

/* Whether levels are declared, or declared not to be, or those of Slurm make groups. */
bool colli_measure_knows_levels(const coll_comm *comm);

/* Finds sites and racks, unless levels are known. */
coll_status colli_measure_find_levels(coll_comm *comm, colli_delegation *all, uint64_t until_ns,
                                      colli_measured_levels *out, coll_error *error);

#endif
