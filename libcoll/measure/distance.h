/* distance.h: finds hosts that are far from each other. */
#ifndef COLLI_MEASURE_DISTANCE_H
#define COLLI_MEASURE_DISTANCE_H

#include "coll/coll.h"

#define COLLI_MEASURED_SITES 8 /* hosts of further ones count to the nearest of these */

/* The shortest round trip to a rank that the network itself has had, in ns; 0: unknown. */
typedef double colli_round_trip_fn(coll_comm *comm, int rank);

/*
 * Groups hosts into sites. Every rank calls it; member[0 .. count-1] are one rank of each host, and
 * `own` is this rank's number among them, or -1. site[host]: the number of its site, from 0; equal
 * on all ranks. *sites: how many; 1 if no host is far. Errors: NO_MEMORY, and those of messages.
 */
coll_status colli_measure_sites(coll_comm *comm, const int *member, int count, int own,
                                colli_round_trip_fn *network, int *site, int *sites);

#endif
