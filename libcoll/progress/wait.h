/* wait.h: how a public call waits for its operation. */
#ifndef COLLI_PROGRESS_WAIT_H
#define COLLI_PROGRESS_WAIT_H

#include "libcoll/comm/comm.h"

/* A call begins to wait: resets the counts of the rank's last wait. Now and then it looks at the
 * transports. */
void colli_comm_wait_begin(coll_comm *comm);

/* Polls once; if nothing moved, spins, hands over the core, or sleeps, at most until `until_ns` (0:
 * no limit, except the watchdog's deadline). */
void colli_comm_wait_a_bit(coll_comm *comm, uint64_t until_ns);

/* Advances everything as far as possible without waiting; not 0 if something moved. */
int colli_comm_progress(coll_comm *comm);

/* Waits until the stream-ordered calls that were made before have been started. Errors: the
 * communicator's; TIMEOUT (their streams do not come to them), recorded, nothing else is affected.
 */
coll_status colli_comm_await_streams(coll_comm *comm, const char *name);

#endif
