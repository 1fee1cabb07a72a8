/* verbs.h: the transport over InfiniBand and RoCE. */
#ifndef COLLI_TRANSPORTS_VERBS_H
#define COLLI_TRANSPORTS_VERBS_H

#include <stdio.h>

#include "coll/coll_transport.h"

extern const coll_transport_ops verbs_transport;

/*
 * Prints the ports that the transport would use on this machine, a line each, or why there is none.
 * Of the environment it needs only param().
 */
void colli_verbs_print(const coll_transport_env *env, FILE *out);

#endif
