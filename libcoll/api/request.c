/* request.c: the pool of requests; test, wait and wait_any. */
#include <sched.h>
#include <stdlib.h>

#include "libcoll/api/request.h"
#include "libcoll/base/assert.h"
#include "libcoll/comm/comm.h"
#include "libcoll/progress/enter.h"
#include "libcoll/progress/wait.h"

#define BLOCK_REQUESTS     16
#define TESTS_BEFORE_YIELD 16 /* fruitless tests in a row, where ranks outnumber cores */

/* Requests are allocated in blocks, so that a running program does not allocate. */
typedef struct colli_request_block {
  struct colli_request_block *next;
  colli_p2p_op requests[BLOCK_REQUESTS];
} colli_request_block;

/* A request from the pool. */
coll_request *colli_request_get(coll_comm *comm) {
  if (__builtin_expect(!comm->calls.free_requests, 0)) {
    colli_request_block *block = calloc(1, sizeof(*block));
    if (!block)
      return NULL;
    block->next = comm->calls.request_blocks;
    comm->calls.request_blocks = block;
    for (int i = BLOCK_REQUESTS - 1; i >= 0; i--) {
      coll_request *request = &block->requests[i].request;
      request->comm = comm;
      request->next = comm->calls.free_requests;
      comm->calls.free_requests = request;
    }
  }
  coll_request *request = comm->calls.free_requests;
  COLLI_ASSERT_RANK(request->comm == comm && !request->kept, comm->rank);
  comm->calls.free_requests = request->next;
  return request;
}

void colli_request_put(coll_request *request) {
  coll_comm *comm = request->comm;
  if (__builtin_expect(request->kept != NULL, 0)) {
    free(request->kept);
    request->kept = NULL;
  }
  request->next = comm->calls.free_requests;
  comm->calls.free_requests = request;
}

void colli_request_free_all(coll_comm *comm) {
  while (comm->calls.request_blocks) {
    colli_request_block *block = comm->calls.request_blocks;
    comm->calls.request_blocks = block->next;
    for (int i = 0; i < BLOCK_REQUESTS; i++) { /* also of those that nobody completed */
      free(block->requests[i].request.scratch);
      free(block->requests[i].request.blocks);
      free(block->requests[i].request.stage);
      free(block->requests[i].request.kept);
    }
    free(block);
  }
}

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
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = test_request(comm, request);
  colli_call_leave(comm);
  return status;
}

/* Waits for a request up to timeout_ms. */
static coll_status wait_request(coll_comm *comm, coll_request **request, int timeout_ms) {
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
  for (int i = 0; i < count; i++)
    if (requests[i] && requests[i]->comm != comm)
      return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "wait_any",
                               "the requests are of several communicators");
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
  return complete_request(&requests[found]);
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
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = wait_any(comm, requests, count, index, timeout_ms);
  colli_call_leave(comm);
  return status;
}
