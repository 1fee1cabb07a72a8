/* shrink.c: coll_comm_shrink: a new communicator of the survivors. */
#include <stdio.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/progress/enter.h"
#include "libcoll/recovery/shrink_internal.h"

/* Shrinks a communicator of one rank. */
static coll_status shrink_alone(coll_comm *comm, colli_settings *settings, coll_comm **child) {
  const colli_id id = {.listen_fd = -1};
  const int self = 0;
  coll_status status = colli_create(child, &id, 1, 0, settings, NULL);
  if (status != COLL_OK || colli_shrink_note_origins(*child, comm, &self))
    return status;
  coll_comm_destroy(child);
  return colli_error_set(&settings->error, COLL_ERR_NO_MEMORY, "shrink",
                         "out of memory for a shrink");
}

/* What the caller left open is as it was. */
static void inherit_settings(coll_comm *child, const coll_comm *comm,
                             const colli_settings *settings) {
  child->calls.ops = comm->calls.ops;
  child->calls.deterministic =
      settings->deterministic ? settings->deterministic : comm->calls.deterministic;
  child->calls.accumulate = settings->accumulate ? settings->accumulate : comm->calls.accumulate;
}

/* Shrinks in the way that fits the communicator's ranks. */
static coll_status shrink_any(coll_comm *comm, colli_settings *settings, coll_comm **child) {
  if (comm->world.now_ns != colli_world_real.now_ns)
    return colli_error_set(&settings->error, COLL_ERR_UNSUPPORTED, "shrink",
                           "a simulated communicator cannot be shrunk; make a new one");
  if (comm->nranks == 1)
    return shrink_alone(comm, settings, child);
  if (comm->shrink.meeting)
    return colli_shrink_local(comm, settings, child);
  if (comm->shrink.listener)
    return colli_shrink_agree(comm, settings, child);
  return colli_error_set(&settings->error, COLL_ERR_NO_MEMORY, "shrink",
                         "out of memory for a shrink: there was not enough when this communicator "
                         "was made");
}

coll_status coll_comm_shrink(coll_comm *comm, const coll_config *config, coll_comm **child) {
  if (child)
    *child = NULL;
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  if (!child) {
    status = colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "shrink", "child is NULL");
    colli_call_leave(comm);
    return status;
  }
  colli_settings settings;
  status = colli_settings_inherit(&settings, comm, config);
  if (status == COLL_OK) {
    comm->shrink.count++;
    status = shrink_any(comm, &settings, child);
  }
  COLLI_ASSERT_RANK((status == COLL_OK) == (*child != NULL), comm->rank);
  if (status == COLL_OK)
    inherit_settings(*child, comm, &settings);
  else
    snprintf(settings.error.operation, sizeof(settings.error.operation), "shrink");
  if (status != COLL_OK && comm->failure.status == COLL_OK)
    comm->failure.error = settings.error;
  colli_call_leave(comm);
  return colli_settings_finish(&settings, status);
}
