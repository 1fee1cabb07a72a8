/* request.c: tests and waits for requests. */
#include <sched.h>

#include "libcoll/base/assert.h"
#include "libcoll/comm/comm.h"
#include "libcoll/comm/pool.h"
#include "libcoll/progress/enter.h"
#include "libcoll/progress/wait.h"

#define TESTS_BEFORE_YIELD 16 /* fruitless tests in a row, where ranks outnumber cores */

/* Finishes a complete request, releases it unless it is persistent, and returns its status. */
static coll_status complete_request(coll_request **request) {
  COLLI_ASSERT_RANK((*request)->done, (*request)->comm->rank);
  coll_request *op = *request;
  if (op->stage_out != COLLI_STAGE_NONE)
    colli_call_finish(&op->comm->calls, op);
  coll_status status = op->status;
  if (op->kept) {
    op->active = false;
    op->status = COLL_OK; /* told once */
    return status;
  }
  colli_request_put(op);
  *request = NULL;
  return status;
}

/* Releases the request that is always complete, unless the communicator must not be entered. */
__attribute__((noinline)) static coll_status release_complete(coll_request **request) {
  coll_comm *comm = (*request)->comm;
  if (atomic_load_explicit(&comm->entry.guard.inside, memory_order_relaxed)) {
    coll_status status = colli_call_enter(comm);
    if (status != COLL_OK)
      return status;
    colli_call_leave(comm);
  }
  *request = NULL;
  return COLL_OK;
}

/* The same for one of a list. */
static coll_status complete_listed(coll_request **request) {
  if (*request != &(*request)->comm->calls.complete)
    return complete_request(request);
  *request = NULL;
  return COLL_OK;
}

/* When a wait of timeout_ms times out; 0 for never. */
static uint64_t deadline_ns(const coll_comm *comm, int timeout_ms) {
  if (timeout_ms < 0)
    return 0;
  return comm->world.now_ns(comm->world.ctx) + (uint64_t)timeout_ms * COLLI_NS_PER_MS;
}

/* Whether that time has come. */
static bool has_passed(const coll_comm *comm, uint64_t until_ns) {
  return until_ns && comm->world.now_ns(comm->world.ctx) >= until_ns;
}

/* Polls a request once. */
static coll_status test_request(coll_comm *comm, coll_request **request) {
  if (!(*request)->done && !colli_comm_progress(comm) && comm->watch.crowded &&
      comm->watch.idle > TESTS_BEFORE_YIELD)
    sched_yield(); /* a loop of tests must not keep the core from the rank for which it waits */
  return (*request)->done ? complete_request(request) : COLL_IN_PROGRESS;
}

coll_status coll_test(coll_request **request) {
  if (!request || !*request)
    return COLL_ERR_INVALID_ARGUMENT;
  coll_comm *comm = (*request)->comm;
  if (*request == &comm->calls.complete)
    return release_complete(request);
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = test_request(comm, request);
  colli_call_leave(comm);
  return status;
}

/* Waits for a request up to timeout_ms. */
static coll_status wait_request(coll_comm *comm, coll_request **request, int timeout_ms) {
  if (timeout_ms < 0)
    colli_p2p_deliver(*request);
  if (!(*request)->done)
    colli_engine_progress(&comm->exec, &comm->p2p);
  if ((*request)->done)
    return complete_request(request);
  uint64_t until_ns = deadline_ns(comm, timeout_ms);
  colli_comm_wait_begin(comm);
  while (!(*request)->done) {
    if (has_passed(comm, until_ns))
      return COLL_IN_PROGRESS;
    colli_comm_wait_a_bit(comm, until_ns);
  }
  return complete_request(request);
}

coll_status coll_wait(coll_request **request, int timeout_ms) {
  if (!request || !*request)
    return COLL_ERR_INVALID_ARGUMENT;
  coll_comm *comm = (*request)->comm;
  if (*request == &comm->calls.complete)
    return release_complete(request);
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = wait_request(comm, request, timeout_ms);
  colli_call_leave(comm);
  return status;
}

/* Finds a complete request. Returns its index, -1 if none is complete, -2 if all entries are
 * NULL. */
static int find_done(coll_request *const *requests, int count) {
  int found = -2;
  for (int i = 0; i < count; i++) {
    if (requests[i] && requests[i]->done)
      return i;
    if (requests[i])
      found = -1;
  }
  return found;
}

/* Waits until one of several requests of a communicator is complete. */
static coll_status wait_any(coll_comm *comm, coll_request **requests, int count, int *index,
                            int timeout_ms) {
  int found = find_done(requests, count);
  uint64_t until_ns = deadline_ns(comm, timeout_ms);
  colli_comm_wait_begin(comm);
  while (found < 0) {
    /* A broken connection would break again and again; the watchdog ends that. */
    if (comm->failure.suspended || colli_engine_progress(&comm->exec, &comm->p2p) == 0) {
      if (has_passed(comm, until_ns))
        return COLL_IN_PROGRESS;
      colli_comm_wait_a_bit(comm, until_ns);
    }
    found = find_done(requests, count);
  }
  *index = found;
  return complete_listed(&requests[found]);
}

/* Polls a list of requests, in its communicators one after the other. *index: one that is complete,
 * or -1. */
static coll_status test_each(coll_request **requests, int count, int *index) {
  coll_status status = COLL_IN_PROGRESS;
  for (int i = 0; i < count && *index < 0;) {
    if (!requests[i]) {
      i++;
      continue;
    }
    coll_comm *comm = requests[i]->comm;
    const coll_status entered = colli_call_enter(comm);
    if (entered != COLL_OK)
      return entered;
    colli_comm_progress(comm);
    for (; i < count && *index < 0 && (!requests[i] || requests[i]->comm == comm); i++)
      if (requests[i] && requests[i]->done)
        *index = i;
    if (*index >= 0)
      status = complete_listed(&requests[*index]);
    colli_call_leave(comm);
  }
  return status;
}

/* Waits for one of several requests of several communicators: in the first of them, where a wait
 * moves all others, too. */
static coll_status wait_any_of_several(coll_comm *first, coll_request **requests, int count,
                                       int *index, int timeout_ms) {
  const uint64_t until_ns = deadline_ns(first, timeout_ms);
  for (bool begun = false;; begun = true) {
    coll_status status = test_each(requests, count, index);
    if (status != COLL_IN_PROGRESS || *index >= 0 || has_passed(first, until_ns))
      return status;
    status = colli_call_enter(first);
    if (status != COLL_OK)
      return status;
    if (!begun)
      colli_comm_wait_begin(first);
    colli_comm_wait_a_bit(first, until_ns);
    colli_call_leave(first);
  }
}

/* Whether all requests are of one communicator. */
static bool are_of(coll_request *const *requests, int count, const coll_comm *comm) {
  for (int i = 0; i < count; i++)
    if (requests[i] && requests[i]->comm != comm)
      return false;
  return true;
}

coll_status coll_wait_any(coll_request **requests, int count, int *index, int timeout_ms) {
  if (!index || count < 0 || (count > 0 && !requests))
    return COLL_ERR_INVALID_ARGUMENT;
  *index = -1;
  coll_comm *comm = NULL;
  for (int i = 0; i < count && !comm; i++)
    comm = requests[i] ? requests[i]->comm : NULL;
  if (!comm)
    return COLL_OK;
  if (!are_of(requests, count, comm))
    return wait_any_of_several(comm, requests, count, index, timeout_ms);
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = wait_any(comm, requests, count, index, timeout_ms);
  colli_call_leave(comm);
  return status;
}
