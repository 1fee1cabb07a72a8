/* request.h: what tests and waits for requests share. */
#ifndef COLLI_RUN_REQUEST_H
#define COLLI_RUN_REQUEST_H

#include "libcoll/base/assert.h"
#include "libcoll/comm/pool.h"

/* Finishes a complete request, releases it unless it is persistent, and returns its status. A
 * thread is inside. Not for the request that is always complete. */
static inline coll_status colli_request_complete(coll_request **request) {
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

/* Whether `part` is an operation of the group that `whole` is the request of. */
bool colli_group_has(const coll_request *whole, const coll_request *part);

/* When a wait of timeout_ms times out; 0 for never. */
static inline uint64_t colli_wait_deadline_ns(const coll_comm *comm, int timeout_ms) {
  if (timeout_ms < 0)
    return 0;
  return comm->world.now_ns(comm->world.ctx) + (uint64_t)timeout_ms * COLLI_NS_PER_MS;
}

/* Whether that time has come. */
static inline bool colli_wait_has_passed(const coll_comm *comm, uint64_t until_ns) {
  return until_ns && comm->world.now_ns(comm->world.ctx) >= until_ns;
}

/* Takes a coll_wake() of the communicator, if there was one. */
static inline bool colli_wait_was_woken(coll_comm *comm) {
  return __builtin_expect(atomic_load_explicit(&comm->entry.woken, memory_order_relaxed), 0) &&
         atomic_exchange(&comm->entry.woken, false);
}

/* Whether a wait for something that has not happened ends now. */
static inline bool colli_wait_is_over(coll_comm *comm, uint64_t until_ns) {
  return colli_wait_has_passed(comm, until_ns) || colli_wait_was_woken(comm);
}

#endif
