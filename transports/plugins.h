/* plugins.h: transports that shared libraries bring. */
#ifndef COLLI_TRANSPORTS_PLUGINS_H
#define COLLI_TRANSPORTS_PLUGINS_H

#include "transports/registry.h"

/*
 * Loads the libraries in `path`, separated by colons, and appends their transports to the `count`
 * that the list has. Errors: INVALID_USAGE.
 */
coll_status transports_load_plugins(const char *path, int count, colli_transport_list *list,
                                    coll_error *error);

#endif
