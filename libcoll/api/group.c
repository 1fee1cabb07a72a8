/* group.c: coll_group_start() and coll_group_end(): calls that are kept until the end of a group,
 * and started together. */
#include "libcoll/api/run.h"
#include "libcoll/comm/comm.h"
#include "libcoll/comm/pool.h"
#include "libcoll/progress/enter.h"

/* Starts all calls and waits for them; returns the first error. */
static coll_status run_group(coll_comm *comm, colli_group *group) {
  coll_status status = COLL_OK;
  int started = 0;
  for (; started < group->count && status == COLL_OK; started++) {
    status = colli_call_start(comm, &group->calls[started], &group->requests[started]);
    if (status == COLL_OK)
      colli_p2p_deliver(group->requests[started]);
  }
  if (status != COLL_OK)
    started--;
  for (int i = 0; i < started; i++) {
    coll_status ended = colli_call_wait(comm, group->requests[i]);
    status = status == COLL_OK ? ended : status;
    colli_request_put(group->requests[i]);
  }
  return status;
}

coll_status coll_group_start(coll_comm *comm) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  comm->calls.group.depth++;
  colli_call_leave(comm);
  return COLL_OK;
}

coll_status coll_group_end(coll_comm *comm) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  colli_group *group = &comm->calls.group;
  if (group->depth == 0) {
    status = colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, "group",
                               "coll_group_end without coll_group_start");
  } else if (--group->depth == 0) {
    status = group->refused != COLL_OK ? group->refused : run_group(comm, group);
    group->count = 0;
    group->refused = COLL_OK;
  }
  colli_call_leave(comm);
  return status;
}
