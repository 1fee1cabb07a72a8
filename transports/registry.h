/* registry.h: the transports of this build, best first; the order is the preference. */
#ifndef COLLI_TRANSPORTS_REGISTRY_H
#define COLLI_TRANSPORTS_REGISTRY_H

#include "coll/coll_transport.h"

/* Ends with NULL; at most COLLI_MAX_TRANSPORTS (bootstrap.h) entries. */
extern const coll_transport_ops *const colli_transports[];

/* By name, or NULL. Also knows "sim", which is never chosen by itself. */
const coll_transport_ops *colli_transport_find(const char *name);

#endif
