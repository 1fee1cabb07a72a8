/* speed.h: measures how fast messages travel between ranks of different hosts. */
#ifndef COLLI_MEASURE_SPEED_H
#define COLLI_MEASURE_SPEED_H

#include "coll/coll.h"

/*
 * One rank of each of `count` hosts (member[], in the same order everywhere; this rank is number
 * `own`) measures its host's link, while the others do. *rate: bytes per ns, on the way out or in,
 * whichever is less; 0 with one host. Errors: NO_MEMORY, and those of messages.
 */
coll_status colli_measure_link(coll_comm *comm, const int *member, int count, int own,
                               double *rate);

/* The same for the line from this rank to the next, in a ring; *alpha_ns: what a short message
 * takes, one way. */
coll_status colli_measure_line(coll_comm *comm, const int *member, int count, int own,
                               double *alpha_ns, double *rate);

#endif
