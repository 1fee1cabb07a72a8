/* registry.h: the transports of this build, best first; the order is the preference. */
#ifndef COLLI_TRANSPORTS_REGISTRY_H
#define COLLI_TRANSPORTS_REGISTRY_H

#include "coll/coll_transport.h"

/* Ends with NULL; at most COLLI_MAX_TRANSPORTS (bootstrap.h) entries. */
extern const coll_transport_ops *const colli_transports[];

#endif
