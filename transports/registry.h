/* registry.h: the transports that communicators may use: those of this build, and plug-ins. */
#ifndef COLLI_TRANSPORTS_REGISTRY_H
#define COLLI_TRANSPORTS_REGISTRY_H

#include <stdio.h>

#include "coll/coll_transport.h"

#define COLLI_TRANSPORTS_BUILT_IN 3
#define COLLI_TRANSPORTS_MAX      6  /* with plug-ins */
#define COLLI_TRANSPORT_NAME_MAX  15 /* characters of a name */

/* Best first, NULL-terminated: the order is the preference. */
typedef struct colli_transport_list {
  const coll_transport_ops *ops[COLLI_TRANSPORTS_MAX + 1];
} colli_transport_list;

/*
 * Lists the transports of this build and then the plug-ins in `path`, separated by colons. If
 * `choice`, a comma-separated list of names, names a plug-in, all that it names come first, in its
 * order. Errors: INVALID_USAGE (a plug-in cannot be used).
 */
coll_status colli_transports_list(const char *path, const char *choice, colli_transport_list *list,
                                  coll_error *error);

/*
 * Prints which network devices the transports would use on this machine, a line each, or why there
 * is none. Of the environment it needs only param().
 */
void colli_devices_print(const coll_transport_env *env, FILE *out);

#endif
