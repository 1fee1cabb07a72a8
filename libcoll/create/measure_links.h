/* measure_links.h: measures how fast the hosts' links to the network are, if a rank asks for it. */
#ifndef COLLI_CREATE_MEASURE_LINKS_H
#define COLLI_CREATE_MEASURE_LINKS_H

#include <stdbool.h>
#include <stdint.h>

#include "libcoll/measure/distance.h"

#define COLLI_MEASURE_NS 900000000ull /* that creation gives it */

/* What hosts are in, and why, without the hosts' groups, and whose links were measured. */
typedef struct colli_measured_levels {
  colli_measured_groups sites, racks;
  bool *measured; /* the caller's room: for each rank, whether its host's link was; NULL: none */
} colli_measured_levels;

/* Whether there are several hosts, and some rank asks for it, or is far from where it checked in
 * while no rank knows levels. */
bool colli_measure_is_wanted(const coll_comm *comm);

/*
 * Measures, where there are several hosts, and tells all ranks' cost models; what was measured
 * before is forgotten. After budget_ns, from when all ranks have come, it begins nothing more; what
 * has begun ends. What it has not found by then counts as not known, as the log says; but far sites
 * are found, however long that takes. *levels (unless NULL): what was found, or zeros if levels
 * were known. All ranks call it, right after they have joined and outside of other calls.
 * COLL_TIMEOUT_MS bounds each message. On an error, which the record explains, the communicator has
 * failed on all ranks. Errors: NO_MEMORY, and those of messages.
 */
coll_status colli_measure_links(coll_comm *comm, uint64_t budget_ns, colli_measured_levels *levels,
                                coll_error *error);

#endif
