/* enter.h: the beginning and end of every public call on a communicator. */
#ifndef COLLI_PROGRESS_ENTER_H
#define COLLI_PROGRESS_ENTER_H

#include "libcoll/comm/comm.h"

/*
 * Every public call on a communicator begins with enter and ends with leave, unless enter fails
 * (null, another thread is inside, or this is a forked child of the communicator's process). Code
 * inside the library calls colli_call_run() and the like, never public functions.
 */
coll_status colli_call_enter(coll_comm *comm);
void colli_call_leave(coll_comm *comm);

/* Inside a public call: lets the family's other threads in, until resume. */
void colli_call_pause(coll_comm *comm);
void colli_call_resume(coll_comm *comm);

/* From here on, public calls take the lock. Called by the only thread that is in the base. */
void colli_family_share(colli_family *family, coll_comm *comm);

#endif
