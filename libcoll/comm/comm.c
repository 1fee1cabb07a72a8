/* comm.c: records why a communicator refuses a call. */
#include "libcoll/comm/comm.h"

#include <stdarg.h>
#include <stdio.h>

#include "libcoll/base/error.h"

/* Records a bad argument and returns `status`. */
coll_status colli_comm_refuse(coll_comm *comm, coll_status status, const char *operation,
                              const char *format, ...) {
  char text[256];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  if (comm->failure.status != COLL_OK)
    return status;
  atomic_store_explicit(&comm->entry.misused, 0, memory_order_relaxed); /* this is newer */
  colli_error_set(&comm->failure.error, status, operation, "%s (rank %d of %d on %s)", text,
                  comm->rank, comm->nranks, comm->host);
  comm->failure.error.rank = comm->rank;
  snprintf(comm->failure.error.host, sizeof(comm->failure.error.host), "%s", comm->host);
  return status;
}

coll_status colli_comm_refuse_as(coll_comm *comm, const coll_error *reason) {
  return colli_comm_refuse(comm, reason->status, reason->operation, "%s", reason->message);
}

void colli_comm_refuse_op(coll_comm *comm, const coll_error *record) {
  if (comm->failure.status != COLL_OK)
    return;
  atomic_store_explicit(&comm->entry.misused, 0, memory_order_relaxed); /* this is newer */
  comm->failure.error = *record;
}
