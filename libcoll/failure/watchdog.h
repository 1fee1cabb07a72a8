/* watchdog.h: ranks tell each other which operations do not move. */
#ifndef COLLI_FAILURE_WATCHDOG_H
#define COLLI_FAILURE_WATCHDOG_H

#include "libcoll/comm/comm.h"

/* How long an operation stands still before this rank tells the others, and tells them again. */
uint64_t colli_watchdog_interval_ns(const coll_comm *comm);

/* How long until a rank reports again that an operation has not moved, `still` ns after it last
 * did: the longer it stands, the less often, because every report goes to all ranks. */
uint64_t colli_watchdog_next_ns(const coll_comm *comm, uint64_t still);

/* To whom a report goes, and why. */
typedef enum colli_tell {
  COLLI_TELL_FIRST, /* once to each rank, and not past frozen ones: most operations move after all
                     */
  COLLI_TELL_ALL,   /* over all links */
  COLLI_TELL_ASK    /* the same, and whoever waits somewhere shall say so now */
} colli_tell;

/* Tells all ranks that `op` does not move, and for whom it waits. */
void colli_watchdog_tell(coll_comm *comm, const coll_request *op, colli_tell how);

/* The deadline of `op` is near: asks all ranks where they wait, unless it did a moment ago. */
void colli_watchdog_ask(coll_comm *comm, const coll_request *op);

/* Whether that was long enough ago for all to have answered. */
bool colli_watchdog_has_answers(const coll_comm *comm);

/* Another rank reported where it waits: keeps it, and compares its operation with this rank's.
 * comm: the communicator, or NULL if this rank does not have it. */
void colli_watchdog_heard(colli_family *family, coll_comm *comm, const colli_ctrl_msg *msg);

/* Rank `absent` has left the communicator: fails it if an operation has waited for that rank for
 * long.
 */
void colli_watchdog_heard_absent(coll_comm *comm, int absent);

/* Fails the communicator because another rank's call, with tag `theirs`, does not match `op`'s. */
void colli_watchdog_disagree(coll_comm *comm, const coll_tag *mine, int peer,
                             const coll_tag *theirs, const coll_request *op);

#endif
