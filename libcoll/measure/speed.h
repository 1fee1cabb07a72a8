/* speed.h: measures how fast messages travel between ranks of different hosts. */
#ifndef COLLI_MEASURE_SPEED_H
#define COLLI_MEASURE_SPEED_H

#include <stdbool.h>
#include <stdint.h>

#include "coll/coll.h"
#include "libcoll/measure/delegates.h"

/*
 * Measures the links of the delegates' hosts, all at once, and sends nothing that would end after
 * until_ns (by colli_now_ns()), as far as that can be foreseen. All ranks call it. *rate: bytes per
 * ns, on the way out or in, whichever is less; 0: one host, no delegate, or time was too short.
 * *late: whether that time was over on some rank before all was done. Errors: NO_MEMORY, and those
 * of messages.
 */
coll_status colli_measure_link(coll_comm *comm, const colli_delegates *delegates, uint64_t until_ns,
                               double *rate, bool *late);

/* The same for the line from this rank to the next, in a ring; only the delegates call it.
 * *alpha_ns: what a short message takes, one way; 0: not known. */
coll_status colli_measure_line(coll_comm *comm, const colli_delegates *delegates, uint64_t until_ns,
                               double *alpha_ns, double *rate);

/* Waits for all ranks; *late: whether it is later than until_ns on some. */
coll_status colli_measure_agree(coll_comm *comm, uint64_t until_ns, bool *late);

#endif
