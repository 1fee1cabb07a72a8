/* p2p_call.h: point-to-point and one-sided calls. */
#ifndef COLLI_API_P2P_CALL_H
#define COLLI_API_P2P_CALL_H

#include "libcoll/call/call.h"

/* Checks the arguments of a point-to-point or one-sided call. */
coll_status colli_p2p_check(coll_comm *comm, const colli_call *call);

/* Fills in its request. */
void colli_p2p_prepare(coll_comm *comm, const colli_call *call, coll_request *op);

/* Waits until eager messages whose sends are complete have been sent: for half of the deadline of
 * an operation, at most ten seconds. False: some have not. */
bool colli_p2p_linger(coll_comm *comm);

/* A connection has taken a message of a blocking send to `rank`: makes the calls without which it
 * would not leave, if any, for at most COLLI_PATIENCE_NS. */
void colli_p2p_flush(coll_comm *comm, int rank);

#endif
