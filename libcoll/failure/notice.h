/* notice.h: handles messages from the control links: failures, waits, goodbyes. */
#ifndef COLLI_FAILURE_NOTICE_H
#define COLLI_FAILURE_NOTICE_H

#include "libcoll/comm/comm.h"

/* Handles all notices that have arrived, closed control links, and coll_comm_abort(). */
void colli_notice_poll(colli_family *family);

/* Revokes a new communicator if it failed before it was complete. */
void colli_notice_catch_up(colli_family *family, coll_comm *comm);

#endif
