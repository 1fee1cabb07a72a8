/* create.h: code that all ways of creating a communicator share. */
#ifndef COLLI_CREATE_CREATE_H
#define COLLI_CREATE_CREATE_H

#include "libcoll/wireup/bootstrap/bootstrap.h"

/* The settings of one creating call, and where its failure goes. */
typedef struct colli_settings {
  colli_params params;
  colli_log log;
  coll_error error;
  coll_error *to_caller;
  coll_determinism deterministic; /* both DEFAULT unless the caller set them */
  coll_accumulate accumulate;
  bool inherited;         /* from another communicator, whose job goes on */
  colli_shared_time time; /* of that communicator, or of none */
} colli_settings;

/* Loads the environment and applies the caller's configuration (may be NULL) on top. */
coll_status colli_settings_load(colli_settings *settings, const coll_config *config);

/* The same for a communicator made from `comm`, which inherits settings that the configuration
 * leaves open. */
coll_status colli_settings_inherit(colli_settings *settings, const coll_comm *comm,
                                   const coll_config *config);

/* Ends a creating call: hands over the record of a failure, and logs it. */
coll_status colli_settings_finish(colli_settings *settings, coll_status status);

/* Creates a communicator by meeting the other ranks at the id's listener. lifelines: set if it is
 * made from another communicator, whose shrink listener it will share unless `keep` is set; NULL:
 * it gets a new listener. */
coll_status colli_create(coll_comm **comm, const colli_id *id, int nranks, int rank,
                         colli_settings *settings, colli_lifelines *lifelines);

/* Creates communicators for threads of this process, each with its own settings; on failure none is
 * left. */
coll_status colli_create_local(coll_comm **comms, int nranks, colli_settings *const *settings,
                               coll_error *error);

/* Closes the listener that an id holds in this process. */
void colli_id_close(const colli_id *id);

#endif
