/* request.c: tests and waits for one request. */
#include <sched.h>

#include "libcoll/comm/comm.h"
#include "libcoll/progress/enter.h"
#include "libcoll/progress/handover.h"
#include "libcoll/progress/wait.h"
#include "libcoll/run/request.h"

#define TESTS_BEFORE_YIELD 16 /* fruitless tests in a row, where others need the core */

/* Releases the request that is always complete if nobody is in its communicator; else perhaps it
 * must not be entered. */
static inline bool is_released(coll_request **request) {
  coll_comm *comm = (*request)->comm;
  if (*request != &comm->calls.complete ||
      atomic_load_explicit(&comm->entry.guard.inside, memory_order_relaxed))
    return false;
  *request = NULL;
  return true;
}

/* Finishes a request that is complete. */
static coll_status complete(coll_comm *comm, coll_request **request) {
  if (__builtin_expect(*request != &comm->calls.complete, 1))
    return colli_request_complete(request);
  *request = NULL;
  return COLL_OK;
}

/* Polls a request once. */
static coll_status test_request(coll_comm *comm, coll_request **request) {
  if (!(*request)->done && !colli_comm_progress(comm) && colli_handover_due(&comm->watch) &&
      comm->watch.idle > TESTS_BEFORE_YIELD)
    sched_yield(); /* a loop of tests must not keep the core from the rank for which it waits */
  return (*request)->done ? complete(comm, request) : COLL_IN_PROGRESS;
}

/* Enters a communicator to test a request. */
__attribute__((noinline)) static coll_status enter_to_test(coll_request **request) {
  coll_comm *comm = (*request)->comm;
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = test_request(comm, request);
  colli_call_leave(comm);
  return status;
}

coll_status coll_test(coll_request **request) {
  if (!request || !*request)
    return COLL_ERR_INVALID_ARGUMENT;
  return is_released(request) ? COLL_OK : enter_to_test(request);
}

/* Waits for a request up to timeout_ms. */
static coll_status wait_request(coll_comm *comm, coll_request **request, int timeout_ms) {
  if (timeout_ms < 0)
    colli_p2p_deliver(*request);
  if (!(*request)->done)
    colli_engine_progress(&comm->exec, &comm->p2p);
  if ((*request)->done)
    return complete(comm, request);
  uint64_t until_ns = colli_wait_deadline_ns(comm, timeout_ms);
  colli_comm_wait_begin(comm);
  while (!(*request)->done) {
    if (colli_wait_is_over(comm, until_ns))
      return COLL_IN_PROGRESS;
    colli_comm_wait_a_bit(comm, until_ns);
  }
  return complete(comm, request);
}

/* Enters a communicator to wait for a request. */
__attribute__((noinline)) static coll_status enter_to_wait(coll_request **request, int timeout_ms) {
  coll_comm *comm = (*request)->comm;
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = wait_request(comm, request, timeout_ms);
  colli_call_leave(comm);
  return status;
}

coll_status coll_wait(coll_request **request, int timeout_ms) {
  if (!request || !*request)
    return COLL_ERR_INVALID_ARGUMENT;
  return is_released(request) ? COLL_OK : enter_to_wait(request, timeout_ms);
}
