/* shm.h: the transport between ranks of one host, through memory that they share. */
#ifndef COLLI_TRANSPORTS_SHM_H
#define COLLI_TRANSPORTS_SHM_H

#include "coll/coll_transport.h"

extern const coll_transport_ops shm_transport;

/* The size of the memory of a connection, a pair of rings, or 0 if that is more than a size_t or a
 * file can hold. */
size_t shm_ring_bytes(size_t slot_bytes, unsigned slot_count);

#endif
