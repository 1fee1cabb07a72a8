/* notify.c: what tells a program that waits elsewhere, or a thread that waits here. */
#include <string.h>

#include "libcoll/comm/completion.h"
#include "libcoll/progress/doorbell.h"
#include "libcoll/progress/enter.h"
#include "libcoll/run/request.h"

coll_status coll_wake(coll_comm *comm) {
  if (!comm)
    return COLL_ERR_INVALID_ARGUMENT;
  if (comm->entry.guard.inherited)
    return COLL_ERR_INVALID_USAGE;
  atomic_store(&comm->entry.woken, true);
  atomic_fetch_add(&comm->family->wakes, 1);
  colli_doorbells_ring(comm->family);
  colli_bell_ring_anyway(comm);
  return COLL_OK;
}

/* Makes the descriptor, for a thread that is inside. */
static coll_status make_bell(coll_comm *comm) {
  if (comm->nranks > 1 && !atomic_load(&comm->family->progress))
    return colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, "comm_fd",
                             "coll_comm_fd() needs the progress thread, which notices ends of "
                             "operations between calls; set COLL_PROGRESS=on, or progress in "
                             "coll_config");
  colli_family_share(comm->family, comm); /* a single rank may have no such thread */
  const int sys_errno = colli_bell_make(comm);
  if (sys_errno == 0)
    return COLL_OK;
  return colli_comm_refuse(comm, COLL_ERR_SYSTEM, "comm_fd",
                           "eventfd: %s; raise the limit of descriptors (ulimit -n)",
                           strerror(sys_errno));
}

coll_status coll_comm_fd(coll_comm *comm, int *fd) {
  if (fd)
    *fd = -1;
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  if (!fd)
    status = colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "comm_fd", "fd is NULL");
  else if (!atomic_load(&comm->bell.is_there))
    status = make_bell(comm);
  if (status == COLL_OK)
    *fd = comm->bell.fd;
  colli_call_leave(comm);
  return status;
}

/* Hands over a request, for a thread that is inside. COLL_IN_PROGRESS: somebody will call back. */
static coll_status hand_over(coll_comm *comm, coll_request **request, coll_request_fn callback,
                             void *context) {
  coll_request *op = *request;
  if (op == &comm->calls.complete) {
    *request = NULL;
    return COLL_OK;
  }
  if (op->done)
    return colli_request_complete(request);
  colli_completion_watch(comm);
  op->callback = callback;
  op->callback_context = context;
  *request = NULL;
  return COLL_IN_PROGRESS;
}

coll_status coll_request_set_callback(coll_request **request, coll_request_fn callback,
                                      void *context) {
  if (!request || !*request || !callback)
    return COLL_ERR_INVALID_ARGUMENT;
  coll_comm *comm = (*request)->comm;
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  if ((*request)->kept) {
    status = colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, "set_callback",
                               "a persistent request has no callback; wait for it");
    colli_call_leave(comm);
    return status;
  }
  status = hand_over(comm, request, callback, context);
  colli_call_leave(comm);
  if (status != COLL_IN_PROGRESS)
    callback(context, status);
  return COLL_OK;
}
