/* create.h: what the ways of making a communicator share. */
#ifndef COLLI_CREATE_CREATE_H
#define COLLI_CREATE_CREATE_H

#include "libcoll/wireup/bootstrap.h"

/* The settings of one creating call, and where its failure goes. */
typedef struct colli_settings {
  colli_params params;
  colli_log log;
  coll_error error;
  coll_error *to_caller;
  coll_determinism deterministic; /* DEFAULT: not set by the caller, as is this */
  coll_accumulate accumulate;
} colli_settings;

/* Loads the environment and puts the caller's configuration (may be NULL) on top. */
coll_status colli_settings_load(colli_settings *settings, const coll_config *config);

/* The same for a communicator made from `comm`: what the configuration leaves open is inherited. */
coll_status colli_settings_inherit(colli_settings *settings, const coll_comm *comm,
                                   const coll_config *config);

/* Ends a creating call: hands the record of a failure over, logs it, forgets the secret. */
coll_status colli_settings_finish(colli_settings *settings, coll_status status);

/* Makes a communicator by meeting the other ranks at rank 0's listener. lifelines: of a
 * communicator that is made from another one, whose shrink listener it will share; NULL: a new
 * one. */
coll_status colli_create(coll_comm **comm, const colli_id *id, int nranks, int rank,
                         colli_settings *settings, colli_lifelines *lifelines);

/* Makes communicators for threads of this process, each with its own settings; on a failure none
 * is left. */
coll_status colli_create_local(coll_comm **comms, int nranks, colli_settings *const *settings,
                               coll_error *error);

/* Closes the listener that an id holds in this process (rank 0's). */
void colli_id_close(const colli_id *id, int rank);

#endif
