/* blame.h: finds the root cause of a failure, across the communicators of a family. */
#ifndef COLLI_FAILURE_BLAME_H
#define COLLI_FAILURE_BLAME_H

#include "libcoll/comm/comm.h"

/* Ends a receive that is over its limit and that no message has matched: it alone. */
void colli_blame_retract(coll_comm *comm, coll_request *op);

/* Fails the communicator because `op` did not move for the whole timeout, or is over its limit;
 * names who is to blame. */
void colli_blame_timed_out(coll_comm *comm, const coll_request *op);

/*
 * A record says that its peer is lost or has left. If a failure of another communicator had reached
 * that rank before, it is what the record is about from now on. gone: its process has ended, so a
 * failure must be known to have reached it; otherwise a recent one is presumed to have. Returns the
 * rank of the base that is to blame.
 */
int colli_blame_departed(const coll_comm *comm, coll_error *record, bool gone);

#endif
