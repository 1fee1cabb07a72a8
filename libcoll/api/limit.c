/* limit.c: limits of single operations, which libcoll/progress/poll.c enforces. */
#include "libcoll/comm/comm.h"
#include "libcoll/progress/enter.h"
#include "libcoll/run/request.h"

/* Sets the limit of a request or, if it is a group's, of the operations in it. */
static void set_limit(coll_comm *comm, const coll_request *request, int timeout_ms) {
  const uint64_t now_ns = comm->world.now_ns(comm->world.ctx);
  for (coll_request *op = comm->exec.oldest; op; op = op->newer) {
    if (op != request && !colli_group_has(request, op))
      continue;
    op->limit_of = colli_op_number(op);
    op->limit_ns = now_ns + (uint64_t)timeout_ms * COLLI_NS_PER_MS;
    op->limit_ms = timeout_ms;
  }
}

/* Checks the call and sets the limit, for a thread that is inside. */
static coll_status limit_request(coll_comm *comm, const coll_request *request, int timeout_ms) {
  if (timeout_ms < 0)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "request_set_timeout",
                             "a timeout of %d ms; give a positive one, or 0 for none", timeout_ms);
  if (request->kept && !request->active)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, "request_set_timeout",
                             "the persistent request is not started; call coll_start() first");
  if (request->done)
    return COLL_OK;
  if (request->stage_out == COLLI_STAGE_OWNER)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, "request_set_timeout",
                             "the request makes a communicator, which has more steps than one "
                             "operation; timeout_ms in coll_config limits it");
  set_limit(comm, request, timeout_ms);
  return COLL_OK;
}

coll_status coll_request_set_timeout(coll_request *request, int timeout_ms) {
  if (!request)
    return COLL_ERR_INVALID_ARGUMENT;
  coll_comm *comm = request->comm;
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = limit_request(comm, request, timeout_ms);
  colli_call_leave(comm);
  return status;
}
