/* tuner.h: a tuner plug-in (coll_tuner.h), loaded once for a family of communicators. */
#ifndef COLLI_TUNING_TUNER_H
#define COLLI_TUNING_TUNER_H

#include "libcoll/tuning/select.h"

typedef struct colli_tuner colli_tuner;

/*
 * Loads the plug-in at `path`. *tuner is NULL if the path is "" or this process must not load
 * plug-ins. Errors: INVALID_USAGE (cannot be loaded, not a tuner, wrong version, or refuses),
 * NO_MEMORY.
 */
coll_status colli_tuner_open(const char *path, colli_tuner **tuner, coll_error *error);

/* Asks for one of `count` candidates, best first; *index is -1 if the tuner has no preference.
 * Errors: INVALID_USAGE if the tuner returns an invalid index. */
coll_status colli_tuner_ask(colli_tuner *tuner, const colli_shape *shape, size_t bytes,
                            const colli_choice *candidates, int count, int *index,
                            coll_error *error);

/* Unloads it; NULL is fine. */
void colli_tuner_close(colli_tuner *tuner);

#endif
