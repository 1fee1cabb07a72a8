/* events.h: handles the failures that the executor reports. */
#ifndef COLLI_FAILURE_EVENTS_H
#define COLLI_FAILURE_EVENTS_H

#include "libcoll/exec/exec.h"
#include "libcoll/p2p/p2p.h"

/* The events of the executor and of point-to-point messages; their `ctx` is the communicator. */
extern const colli_exec_events colli_comm_events;
extern const colli_p2p_events colli_comm_p2p_events;

#endif
