/* group.c: coll_group_start(), coll_group_end() and coll_group_iend(): calls that are kept until
 * the end of a group, and started together. */
#include "libcoll/comm/comm.h"
#include "libcoll/comm/completion.h"
#include "libcoll/comm/pool.h"
#include "libcoll/progress/enter.h"
#include "libcoll/run/request.h"
#include "libcoll/run/run.h"
#include "libcoll/stream/on_stream.h"

/* Starts all calls, up to the first that fails. *started: how many did not. */
static coll_status start_all(coll_comm *comm, colli_group *group, int *started) {
  for (*started = 0; *started < group->count; ++*started) {
    coll_request **request = &group->requests[*started];
    const coll_status status = colli_call_start(comm, &group->calls[*started], request);
    if (status != COLL_OK)
      return status;
    colli_p2p_deliver(*request);
  }
  return COLL_OK;
}

/* Waits for all that were started; returns the first error, of their start or theirs. */
static coll_status wait_for_all(coll_comm *comm, colli_group *group, int started,
                                coll_status status) {
  for (int i = 0; i < started; i++) {
    coll_status ended = colli_call_wait(comm, group->requests[i]);
    status = status == COLL_OK ? ended : status;
    colli_request_put(group->requests[i]);
  }
  return status;
}

/* Starts all calls and waits for them; returns the first error. */
static coll_status run_group(coll_comm *comm, colli_group *group, coll_request **unused) {
  int started;
  (void)unused;
  coll_status status = start_all(comm, group, &started);
  return wait_for_all(comm, group, started, status);
}

/* One of a group's operations has ended. */
static void end_part(void *context, coll_status status) {
  coll_request *whole = context;
  if (whole->status == COLL_OK)
    whole->status = status;
  if (--whole->parts == 0)
    colli_completion_end(whole);
}

bool colli_group_has(const coll_request *whole, const coll_request *part) {
  return part->callback == end_part && part->callback_context == whole;
}

/* Puts the operations of a group together in one request, which is complete when they are. */
static void join_parts(coll_comm *comm, colli_group *group, coll_request *whole) {
  colli_completion_watch(comm);
  whole->status = COLL_OK;
  whole->done = false;
  whole->parts = group->count;
  for (int i = 0; i < group->count; i++) {
    coll_request *part = group->requests[i];
    if (part->done) {
      end_part(whole, colli_request_complete(&part));
    } else {
      part->callback = end_part;
      part->callback_context = whole;
    }
  }
}

/* Starts all calls, and advances them once. */
static coll_status launch_group(coll_comm *comm, colli_group *group, coll_request **request) {
  *request = &comm->calls.complete;
  if (group->count == 0)
    return COLL_OK;
  coll_request *whole = colli_request_get_message(comm);
  if (!whole) {
    *request = NULL;
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, "group",
                             "out of memory for a request; complete some first, or see ulimit -v");
  }
  int started;
  coll_status status = start_all(comm, group, &started);
  if (status == COLL_OK) {
    colli_engine_progress(&comm->exec, &comm->p2p);
    join_parts(comm, group, whole);
    *request = whole;
    return COLL_OK;
  }
  colli_request_put(whole);
  *request = NULL;
  return wait_for_all(comm, group, started, status);
}

coll_status coll_group_start(coll_comm *comm) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  comm->calls.group.depth++;
  colli_call_leave(comm);
  return COLL_OK;
}

/* Ends a group with stream-ordered calls, which needs no request. */
static coll_status end_stream_group(coll_comm *comm, coll_status refused, bool wants_request) {
  if (refused == COLL_OK && wants_request)
    refused = colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, "group",
                                "coll_group_iend() of calls that are ordered on a stream, none of "
                                "which was made; close such a group with coll_group_end(), which "
                                "returns at once");
  return colli_stream_end_group(comm, refused);
}

/* Closes a group, for a thread that is inside: the outermost is run. */
static coll_status end_group(coll_comm *comm,
                             coll_status (*run)(coll_comm *, colli_group *, coll_request **),
                             coll_request **request) {
  colli_group *group = &comm->calls.group;
  if (group->depth == 0)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, "group",
                             "the end of a group without coll_group_start");
  if (group->depth > 1 && request)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, "group",
                             "coll_group_iend inside another group, with which its operations "
                             "start; close it with coll_group_end");
  if (--group->depth > 0)
    return COLL_OK;
  coll_status status = group->refused;
  if (colli_stream_has_group(comm))
    status = end_stream_group(comm, status, request != NULL);
  else if (status == COLL_OK)
    status = run(comm, group, request);
  colli_group_clear(group);
  group->refused = COLL_OK;
  return status;
}

coll_status coll_group_end(coll_comm *comm) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = end_group(comm, run_group, NULL);
  colli_call_leave(comm);
  return status;
}

coll_status coll_group_iend(coll_comm *comm, coll_request **request) {
  if (request)
    *request = NULL;
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = request ? end_group(comm, launch_group, request)
                   : colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "group", "request is NULL");
  colli_call_leave(comm);
  return status;
}
