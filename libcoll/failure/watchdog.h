/* watchdog.h: finds out who is to blame when an operation does not move. */
#ifndef COLLI_FAILURE_WATCHDOG_H
#define COLLI_FAILURE_WATCHDOG_H

#include "libcoll/comm/comm.h"

/* How long an operation stands still before this rank tells the others, and tells them again. */
uint64_t colli_watchdog_interval_ns(const coll_comm *comm);

/* How long until a rank reports again that an operation has not moved, `still` ns after it last
 * did: the longer it stands, the less often, because every report goes to all ranks. */
uint64_t colli_watchdog_next_ns(const coll_comm *comm, uint64_t still);

/* Tells all ranks that `op` does not move, and for whom it waits. The `first` report goes once to
 * each rank, and not past frozen ones, because most operations move after all. */
void colli_watchdog_tell(coll_comm *comm, const coll_request *op, bool first);

/* Another rank reported where it waits: compares its operation with this rank's. */
void colli_watchdog_heard(coll_comm *comm, const colli_ctrl_msg *msg);

/* Rank `absent` has left the communicator: fails it if an operation waits for that rank. by_itself:
 * that rank itself sent the notice. */
void colli_watchdog_heard_absent(coll_comm *comm, int absent, bool by_itself);

/* Fails the communicator because `op` did not move for the whole timeout; names who is to blame. */
void colli_watchdog_timed_out(coll_comm *comm, const coll_request *op);

/* Fails the communicator because another rank's call, with tag `theirs`, does not match `op`'s. */
void colli_watchdog_disagree(coll_comm *comm, const coll_tag *mine, int peer,
                             const coll_tag *theirs, const coll_request *op);

#endif
