/* distance.h: finds hosts that are far from each other. */
#ifndef COLLI_MEASURE_DISTANCE_H
#define COLLI_MEASURE_DISTANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "coll/coll.h"
#include "libcoll/measure/delegates.h"

/* The shortest round trip to a rank that the network itself has had, in ns; 0: unknown. */
typedef double colli_round_trip_fn(coll_comm *comm, int rank);

/* Between whom distances are measured, and how. */
typedef struct colli_distances {
  colli_delegates delegates;
  colli_round_trip_fn *round_trip;
  uint64_t until_ns; /* by colli_now_ns(): the end, but for what the functions say */
} colli_distances;

/* Groups of hosts: group[host], from 0, for so many hosts. */
typedef struct colli_measured_groups {
  int *group;
  int count;
  double inside_ns; /* the longest round trip from a host to the first one that was looked at in its
                       group, */
  double apart_ns;  /* and the shortest between two groups that were one; 0: none was divided */
  bool late;        /* time ran out: there may be more groups */
} colli_measured_groups;

/*
 * Groups hosts into up to eight sites. Every rank calls it, and gets the same; out->group has room
 * for all hosts. Whatever the time, all hosts make a round trip to one of them, and if some is far
 * to that one, too, so that two sites are found; after the end they make one round trip, or
 * two, to each. Errors: NO_MEMORY, and those of messages.
 */
coll_status colli_measure_sites(coll_comm *comm, const colli_distances *distances,
                                colli_measured_groups *out);

/* Divides each site in `out` into up to 32 racks, or whatever else is nearer inside than to others;
 * only by what the network says, and not if out->late. */
coll_status colli_measure_racks(coll_comm *comm, const colli_distances *distances,
                                colli_measured_groups *out);

#endif
