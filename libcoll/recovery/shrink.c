/* shrink.c: coll_comm_shrink, coll_comm_grow: a new communicator of the survivors, and of
 * newcomers; coll_comm_agree: agreement on a word. */
#include <stdio.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/progress/enter.h"
#include "libcoll/recovery/shrink_internal.h"

/* Shrinks a communicator of one rank. */
static coll_status shrink_alone(coll_comm *comm, colli_settings *settings, coll_comm **child) {
  const colli_id id = {.listen_fd = -1};
  const int self = 0;
  coll_status status = colli_create(child, &id, 1, 0, settings, NULL);
  if (status != COLL_OK || colli_shrink_inherit(*child, comm, &self, 1))
    return status;
  coll_comm_destroy(child);
  return colli_error_set(&settings->error, COLL_ERR_NO_MEMORY, "shrink",
                         "out of memory for a shrink");
}

/* Settings that the caller left open are those of the old communicator. Newcomers now wait for the
 * child to grow. */
static void settle(coll_comm *child, coll_comm *comm, const colli_settings *settings) {
  memcpy(child->name, comm->name, sizeof(child->name));
  memcpy(child->family->name, comm->name, sizeof(comm->name));
  memcpy(child->shown->name, comm->name, sizeof(comm->name));
  child->calls.deterministic =
      settings->deterministic ? settings->deterministic : comm->calls.deterministic;
  child->calls.accumulate = settings->accumulate ? settings->accumulate : comm->calls.accumulate;
  child->shrink.entrance = comm->shrink.entrance;
  comm->shrink.entrance = NULL;
}

/* Does the task in the way that fits the communicator's ranks. */
static coll_status run_task(coll_comm *comm, colli_settings *settings, shrink_task task,
                            uint64_t word, shrink_outcome *outcome) {
  comm->shrink.count++;
  if (comm->world.now_ns != colli_world_real.now_ns)
    return colli_error_set(&settings->error, COLL_ERR_UNSUPPORTED, "shrink",
                           "a simulated communicator has no %s; make a new communicator",
                           colli_shrink_name(task));
  if (comm->nranks == 1 && task == SHRINK_AGREE) {
    outcome->agreed.word = word;
    return COLL_OK;
  }
  if (task == SHRINK_GROW) {
    coll_status status = colli_grow_prepare(comm, settings);
    if (status != COLL_OK)
      return status;
  } else if (comm->nranks == 1)
    return shrink_alone(comm, settings, &outcome->child);
  if (comm->shrink.meeting)
    return colli_shrink_local(comm, settings, task, word, outcome);
  if (comm->shrink.listener)
    return colli_shrink_agree(comm, settings, task, word, outcome);
  return colli_error_set(&settings->error, COLL_ERR_NO_MEMORY, "shrink",
                         "out of memory for a shrink: there was not enough when this communicator "
                         "was made");
}

/* Ends a call; coll_last_error() has its failure unless there was one before. */
static coll_status end_task(coll_comm *comm, colli_settings *settings, coll_status status,
                            const char *operation) {
  if (status != COLL_OK)
    snprintf(settings->error.operation, sizeof(settings->error.operation), "%s", operation);
  if (status != COLL_OK && comm->failure.status == COLL_OK)
    comm->failure.error = settings->error;
  colli_call_leave(comm);
  return colli_settings_finish(settings, status);
}

/* Enters the communicator, if there is a place for the result. */
static coll_status begin_task(coll_comm *comm, const void *result, const char *operation,
                              const char *name) {
  const int aborts = comm ? atomic_load(&comm->failure.aborts) : 0;
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  comm->shrink.aborts = aborts;
  if (result)
    return COLL_OK;
  status = colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, operation, "%s is NULL", name);
  colli_call_leave(comm);
  return status;
}

/* Makes a communicator of those who are left, and of newcomers. */
static coll_status make_child(coll_comm *comm, const coll_config *config, coll_comm **child,
                              shrink_task task, const char *operation) {
  if (child)
    *child = NULL;
  coll_status status = begin_task(comm, child, operation, "child");
  if (status != COLL_OK)
    return status;
  colli_settings settings;
  shrink_outcome outcome = {0};
  status = colli_settings_inherit(&settings, comm, config);
  if (status == COLL_OK)
    status = run_task(comm, &settings, task, 0, &outcome);
  *child = outcome.child;
  COLLI_ASSERT_RANK((status == COLL_OK) == (*child != NULL), comm->rank);
  if (status == COLL_OK)
    settle(*child, comm, &settings);
  return end_task(comm, &settings, status, operation);
}

coll_status coll_comm_shrink(coll_comm *comm, const coll_config *config, coll_comm **child) {
  return make_child(comm, config, child, SHRINK_SHRINK, "shrink");
}

coll_status coll_comm_grow(coll_comm *comm, const coll_config *config, coll_comm **child) {
  return make_child(comm, config, child, SHRINK_GROW, "grow");
}

coll_status coll_comm_agree(coll_comm *comm, uint64_t *word, int *absent,
                            const coll_config *config) {
  coll_status status = begin_task(comm, word, "agree", "word");
  if (status != COLL_OK)
    return status;
  colli_settings settings;
  shrink_outcome outcome = {0};
  status = colli_settings_inherit(&settings, comm, config);
  if (status == COLL_OK)
    status = run_task(comm, &settings, SHRINK_AGREE, *word, &outcome);
  if (status == COLL_OK) {
    comm->shrink.agreed = outcome.agreed;
    *word = outcome.agreed.word;
  }
  if (status == COLL_OK && absent)
    *absent = outcome.agreed.absent;
  return end_task(comm, &settings, status, "agree");
}
