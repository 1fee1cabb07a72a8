/* check_finite.h: COLL_CHECK_FINITE: says which rank was the first to put NaN or infinity in. */
#ifndef COLLI_RUN_CHECK_FINITE_H
#define COLLI_RUN_CHECK_FINITE_H

#include "libcoll/comm/comm.h"

/*
 * Looks through what this rank puts into a collective that was started, and nothing of which was
 * sent yet. If there is NaN or infinity, it fails the communicator or (WARN) logs that, once.
 */
void colli_check_finite(coll_comm *comm, const colli_call *call, const coll_request *op);

#endif
