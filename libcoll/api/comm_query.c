/* comm_query.c: public calls that query the state of a communicator, or abort it. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "libcoll/comm/comm.h"
#include "libcoll/progress/doorbell.h"
#include "libcoll/progress/enter.h"
#include "libcoll/progress/progress_thread.h"
#include "libcoll/run/run.h"
#include "libcoll/stream/on_stream.h"

coll_status coll_comm_rank(const coll_comm *comm, int *rank) {
  if (!comm || !rank)
    return COLL_ERR_INVALID_ARGUMENT;
  if (comm->entry.guard.inherited)
    return COLL_ERR_INVALID_USAGE;
  *rank = comm->rank;
  return COLL_OK;
}

coll_status coll_comm_nranks(const coll_comm *comm, int *nranks) {
  if (!comm || !nranks)
    return COLL_ERR_INVALID_ARGUMENT;
  if (comm->entry.guard.inherited)
    return COLL_ERR_INVALID_USAGE;
  *nranks = comm->nranks;
  return COLL_OK;
}

coll_status coll_comm_async_error(coll_comm *comm) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = colli_call_check_usable(comm);
  if (status == COLL_OK)
    status = colli_stream_status(comm);
  colli_call_leave(comm);
  return status;
}

/* The error record of a call that found another thread inside, or was made in a forked child. */
static void record_misuse(const coll_comm *comm, coll_error *error) {
  coll_error record;
  if (comm->entry.guard.inherited)
    colli_error_set(&record, COLL_ERR_INVALID_USAGE, NULL,
                    "this process (pid %d) is a forked child of rank %d of %d (pid %d on %s) and "
                    "cannot use that rank's communicator; create one here (coll_comm_create), or "
                    "make the call in the parent",
                    (int)getpid(), comm->rank, comm->nranks,
                    colli_rank_at(comm->table, comm->rank).pid, comm->host);
  else
    colli_error_set(&record, COLL_ERR_INVALID_USAGE, NULL,
                    "two threads were in calls on one communicator at a time; give each thread one "
                    "of its own (coll_comm_dup), or let them take turns (rank %d of %d on %s)",
                    comm->rank, comm->nranks, comm->host);
  record.rank = comm->rank;
  memcpy(record.host, comm->host, sizeof(record.host));
  colli_error_copy(error, &record);
}

coll_status coll_last_error(const coll_comm *comm, coll_error *error) {
  if (!comm || !error || error->size < sizeof(size_t) + sizeof(coll_status))
    return COLL_ERR_INVALID_ARGUMENT;
  coll_comm *inside = (coll_comm *)comm; /* reading needs its turn as well */
  if (colli_call_enter(inside) != COLL_OK) {
    record_misuse(comm, error);
    return COLL_OK;
  }
  if (comm->failure.status == COLL_OK &&
      atomic_load_explicit(&comm->entry.misused, memory_order_relaxed))
    record_misuse(comm, error);
  else
    colli_error_copy(error, &comm->failure.error);
  colli_call_leave(inside);
  return COLL_OK;
}

coll_status coll_comm_abort(coll_comm *comm) {
  if (!comm)
    return COLL_ERR_INVALID_ARGUMENT;
  if (comm->entry.guard.inherited)
    return COLL_ERR_INVALID_USAGE;
  atomic_fetch_add(&comm->failure.aborts, 1);
  colli_doorbells_ring(comm->family);
  colli_progress_wake(comm->family);
  return COLL_OK;
}

coll_status coll_comm_set_name(coll_comm *comm, const char *name) {
  if (!name)
    return COLL_ERR_INVALID_ARGUMENT;
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  snprintf(comm->name, sizeof(comm->name), "%s", name);
  if (comm->uid == 0)
    memcpy(comm->family->name, comm->name, sizeof(comm->name));
  memcpy(comm->shown->name, comm->name, sizeof(comm->name));
  colli_call_leave(comm);
  return COLL_OK;
}

coll_status coll_comm_name(const coll_comm *comm, const char **name) {
  if (!comm || !name)
    return COLL_ERR_INVALID_ARGUMENT;
  *name = comm->name;
  return COLL_OK;
}

coll_status coll_comm_origin_rank(const coll_comm *comm, int rank, int *origin) {
  if (!comm || !origin || rank < 0 || rank >= comm->nranks)
    return COLL_ERR_INVALID_ARGUMENT;
  if (comm->entry.guard.inherited)
    return COLL_ERR_INVALID_USAGE;
  *origin = comm->map.origins ? comm->map.origins[rank] : colli_comm_base_rank(comm, rank);
  return COLL_OK;
}
