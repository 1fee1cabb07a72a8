/* plugin.h: shared libraries that settings name: tuners, and transports. */
#ifndef COLLI_BASE_PLUGIN_H
#define COLLI_BASE_PLUGIN_H

#include <stdbool.h>

#include "coll/coll.h"

/* A kind of plug-in, as its error messages describe it. */
typedef struct colli_plugin_kind {
  const char *setting; /* "COLL_TUNER" */
  const char *symbol;  /* what the library must export */
  const char *advice;  /* what the user can do about a library that cannot be used */
} colli_plugin_kind;

/*
 * Loads a library and finds its symbol. forever: it is never unloaded again, so *library need not
 * be closed. Errors: INVALID_USAGE.
 */
coll_status colli_plugin_load(const colli_plugin_kind *kind, const char *path, bool forever,
                              void **library, void **symbol, coll_error *error);

/* Reports a plug-in that cannot be used, with the setting, the file and the reason. Returns
 * INVALID_USAGE. */
coll_status colli_plugin_refuse(const colli_plugin_kind *kind, const char *path, coll_error *error,
                                const char *reason, ...) __attribute__((format(printf, 4, 5)));

#endif
