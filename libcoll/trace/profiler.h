/* profiler.h: a profiler plug-in (coll_profiler.h), loaded once for a family of communicators. */
#ifndef COLLI_TRACE_PROFILER_H
#define COLLI_TRACE_PROFILER_H

#include "libcoll/exec/event.h"

typedef struct colli_profiler colli_profiler;

/*
 * Loads the plug-in at `path` and adds it to the observers. *profiler is NULL if the path is "".
 * Errors: INVALID_USAGE (cannot be loaded, not a profiler, wrong version, or refuses), NO_MEMORY.
 */
coll_status colli_profiler_open(const char *path, int rank, int nranks,
                                struct colli_observers *observers, colli_profiler **profiler,
                                coll_error *error);

/* Unloads it; NULL is fine. */
void colli_profiler_close(colli_profiler *profiler);

#endif
