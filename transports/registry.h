/* registry.h: the transports of this build, best first; the order is the preference. */
#ifndef COLLI_TRANSPORTS_REGISTRY_H
#define COLLI_TRANSPORTS_REGISTRY_H

#include <stdio.h>

#include "coll/coll_transport.h"

/* Ends with NULL; at most COLLI_MAX_TRANSPORTS (bootstrap.h) entries. */
extern const coll_transport_ops *const colli_transports[];

/* Prints which network devices the transports would use on this machine, a line each, or why there
 * is none. Of the environment it needs param() alone. */
void colli_devices_print(const coll_transport_env *env, FILE *out);

#endif
