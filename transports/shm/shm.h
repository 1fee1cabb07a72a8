/* shm.h: the transport between ranks of one host, through memory that they share. */
#ifndef COLLI_TRANSPORTS_SHM_H
#define COLLI_TRANSPORTS_SHM_H

#include "coll/coll_transport.h"

extern const coll_transport_ops shm_transport;

#endif
