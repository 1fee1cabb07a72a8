/* run.h: runs a call: blocking, nonblocking, persistent; and in two steps, for internal callers. */
#ifndef COLLI_RUN_RUN_H
#define COLLI_RUN_RUN_H

#include "libcoll/call/call.h"

/* Blocking: starts the call and waits for its end; in a group it is kept for the group's end. */
coll_status colli_call_run(coll_comm *comm, const colli_call *call);

/* Nonblocking: starts the call and advances it once. */
coll_status colli_call_launch(coll_comm *comm, const colli_call *call, coll_request **request);

/* Persistent: checks the call and keeps it in a request that coll_start() runs. */
coll_status colli_call_keep(coll_comm *comm, const colli_call *call, coll_request **request);

/* Runs a persistent request that is not active: starts its call, and advances it once. */
coll_status colli_call_start_again(coll_comm *comm, coll_request *op);

/*
 * Runs a persistent request of a collective whose data moves by itself: all ranks come to a place
 * in it, which has a number. They compare their calls, and where they are, as they do for others.
 */
coll_status colli_call_meet(coll_comm *comm, coll_request *op, unsigned place);

/* Whether the communicator accepts calls: COLL_OK, or why it failed. Polls for an abort first. */
coll_status colli_call_check_usable(coll_comm *comm);

/* Checks and starts a call. */
coll_status colli_call_start(coll_comm *comm, const colli_call *call, coll_request **started);

/* Waits until an operation is complete, finishes it, and returns its status. */
coll_status colli_call_wait(coll_comm *comm, coll_request *op);

#endif
