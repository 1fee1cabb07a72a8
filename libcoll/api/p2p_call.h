/* p2p_call.h: point-to-point and one-sided calls. */
#ifndef COLLI_API_P2P_CALL_H
#define COLLI_API_P2P_CALL_H

#include "libcoll/call/call.h"

/* Checks the arguments of a point-to-point or one-sided call. */
coll_status colli_p2p_check(coll_comm *comm, const colli_call *call);

/* Fills in its request. */
void colli_p2p_prepare(coll_comm *comm, const colli_call *call, coll_request *op);

/* Waits until eager messages whose sends are complete have been sent; at most a second. */
void colli_p2p_linger(coll_comm *comm);

#endif
