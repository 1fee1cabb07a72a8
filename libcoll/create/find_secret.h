/* find_secret.h: where coll_init_from_env() finds the secret. */
#ifndef COLLI_CREATE_FIND_SECRET_H
#define COLLI_CREATE_FIND_SECRET_H

#include "libcoll/base/param.h"
#include "libcoll/base/secret.h"

/*
 * Finds the secret: in the descriptor COLL_SECRET_FD, in the file COLL_SECRET_FILE, or in
 * COLL_SECRET; else it is the one that was found last. Descriptor and variable are used up: the
 * descriptor is closed, and both variables are empty from then on, so that no child of this process
 * finds them. The process keeps what it found for later communicators. Waits for a descriptor until
 * deadline_ns. *secret is a new reference. Errors: INVALID_USAGE, TIMEOUT, NO_MEMORY.
 */
coll_status colli_find_secret(const colli_params *params, uint64_t deadline_ns,
                              colli_secret **secret, coll_error *error);

/* Whether the user has given one, now or for an earlier call of this process. */
bool colli_secret_given(const colli_params *params);

#endif
