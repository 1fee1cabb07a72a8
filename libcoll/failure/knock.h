/*
 * knock.h: asks a peer for a connection. A connection carries messages once both ends have begun
 * it. A rank that has something to send asks the peer over the control links, because that one may
 * have no reason of its own, or not yet.
 */
#ifndef COLLI_FAILURE_KNOCK_H
#define COLLI_FAILURE_KNOCK_H

#include "libcoll/comm/comm.h"

/* Asks all peers to which messages wait for their connection; again from time to time. */
void colli_knock(coll_comm *comm);

/* Another rank asks, maybe a third one. */
void colli_knock_heard(colli_family *family, const colli_ctrl_msg *msg);

#endif
