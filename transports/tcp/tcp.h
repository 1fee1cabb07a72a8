/* tcp.h: the transport over TCP, IPv4 and IPv6. */
#ifndef COLLI_TRANSPORTS_TCP_H
#define COLLI_TRANSPORTS_TCP_H

#include "coll/coll_transport.h"

extern const coll_transport_ops tcp_transport;

/* The operations of connections that have several sockets; their endpoint is the same. */
extern const coll_transport_ops tcp_rails_transport;

#endif
