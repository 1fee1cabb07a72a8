/* run.c: turns calls into requests and runs them: blocking, nonblocking, persistent. */
#include "libcoll/run/run.h"

#include <stdlib.h>

#include "libcoll/call/tag.h"
#include "libcoll/comm/comm.h"
#include "libcoll/comm/pool.h"
#include "libcoll/exec/connect.h"
#include "libcoll/exec/event.h"
#include "libcoll/failure/failure.h"
#include "libcoll/failure/notice.h"
#include "libcoll/progress/enter.h"
#include "libcoll/progress/handover.h"
#include "libcoll/progress/progress_thread.h"
#include "libcoll/progress/wait.h"
#include "libcoll/run/check_finite.h"
#include "libcoll/run/gpu_call.h"
#include "libcoll/run/gpu_stage.h"
#include "libcoll/run/p2p_call.h"

#define FASTPATH_POLLS 64u   /* for each message, 1 to 2 us: ranks come at the same time */
#define FASTPATH_BYTES 8192u /* messages up to this size are never sent by reference */

/* Whether the communicator accepts a call; polls for an abort first. */
static coll_status check_usable(coll_comm *comm) {
  if (__builtin_expect(atomic_load_explicit(&comm->failure.aborts, memory_order_relaxed), 0))
    colli_notice_poll(comm->family);
  if (__builtin_expect(comm->failure.status != COLL_OK, 0))
    colli_comm_admit(comm);
  return comm->failure.status;
}

coll_status colli_call_check_usable(coll_comm *comm) {
  return check_usable(comm);
}

/* Checks a call; for a collective, sets *plan. */
static coll_status check_call(coll_comm *comm, const colli_call *call, colli_plan **plan) {
  *plan = NULL;
  if (call->coll == COLLI_SENDRECV)
    return colli_p2p_check(comm, call);
  coll_error error;
  coll_status status = colli_call_plan(&comm->calls, call, plan, &error);
  return __builtin_expect(status == COLL_OK, 1) ? COLL_OK : colli_comm_refuse_as(comm, &error);
}

/*
 * Fills in the request of a collective and hands it to the executor, which continues after the
 * first `ran` steps of the fast path. If there are any, this cannot fail, because such plans
 * allocate nothing.
 */
static coll_status start_collective(coll_comm *comm, const colli_call *call, colli_plan *plan,
                                    int ran, coll_request *op) {
  op->moved_at = comm->watch.waited_ns;
  const char *missing = colli_call_prepare(&comm->calls, call, plan, op);
  if (__builtin_expect(missing != NULL, 0))
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, call->name, "out of memory for %s", missing);
  if (__builtin_expect(colli_call_is_part(call), 0)) {
    colli_tag_put_part(&op->tag, call->whole);
    op->plan = 0; /* it no longer has the plan's tag */
  }
  if (ran > 0)
    colli_fastpath_resume(&comm->exec, plan->fastpath, ran, op);
  else
    colli_exec_start(&comm->exec, op);
  if (__builtin_expect(!plan->connected, 0))
    colli_call_connect(&comm->calls, plan, op);
  if (__builtin_expect(plan->checks_finite, 0))
    colli_check_finite(comm, call, op);
  return COLL_OK;
}

/* Fills in the request of a checked call on host memory, and hands it to the executor. */
static coll_status start_on_host(coll_comm *comm, const colli_call *call, colli_plan *plan,
                                 coll_request *op) {
  if (call->coll != COLLI_SENDRECV)
    return start_collective(comm, call, plan, 0, op);
  op->moved_at = comm->watch.waited_ns;
  colli_p2p_prepare(comm, call, op);
  colli_p2p_start(&comm->p2p, colli_p2p_op_of(op));
  return COLL_OK;
}

/* The same after its input was copied, during which other operations may have begun: they may have
 * taken the plan's place in the cache. */
static coll_status start_staged(coll_comm *comm, const colli_call *call, colli_plan *plan,
                                coll_request *op) {
  const coll_status status = check_call(comm, call, &plan);
  return status == COLL_OK ? start_on_host(comm, call, plan, op) : status;
}

/* The same, whatever memory it is on. */
static inline coll_status start_request(coll_comm *comm, const colli_call *call, colli_plan *plan,
                                        coll_request *op) {
  colli_gpu_places places;
  if (__builtin_expect(comm->gpu != NULL, 0) && !call->on_host &&
      colli_gpu_find(comm, call, &places))
    return colli_gpu_call_start(comm, call, &places, plan, op, start_staged);
  return start_on_host(comm, call, plan, op);
}

/* Out of memory. */
static coll_status refuse_request(coll_comm *comm, const colli_call *call) {
  return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, call->name,
                           "out of memory for a request; complete some first, or see ulimit -v");
}

/* A request for a call; NULL: out of memory. */
static coll_request *get_request(coll_comm *comm, const colli_call *call) {
  return call->coll == COLLI_SENDRECV ? colli_request_get_message(comm) : colli_request_get(comm);
}

/* Checks a call and takes a request for it; never on a failed communicator, on which nobody would
 * complete it. */
static coll_status acquire_request(coll_comm *comm, const colli_call *call, colli_plan **plan,
                                   coll_request **op) {
  coll_status status = check_usable(comm);
  if (__builtin_expect(colli_streams_unstarted(comm), 0) && status == COLL_OK)
    status = colli_comm_await_streams(comm, call->name);
  if (__builtin_expect(status == COLL_OK, 1))
    status = check_call(comm, call, plan);
  if (__builtin_expect(status != COLL_OK, 0))
    return status;
  *op = get_request(comm, call);
  if (__builtin_expect(!*op, 0))
    return refuse_request(comm, call);
  return COLL_OK;
}

/* Checks and starts a call. */
coll_status colli_call_start(coll_comm *comm, const colli_call *call, coll_request **started) {
  colli_plan *plan;
  coll_request *op;
  *started = NULL;
  coll_status status = acquire_request(comm, call, &plan, &op);
  if (__builtin_expect(status != COLL_OK, 0))
    return status;
  status = start_request(comm, call, plan, op);
  if (__builtin_expect(status == COLL_OK, 1))
    *started = op;
  else
    colli_request_put(op);
  return status;
}

/* Waits until an operation that was just polled is complete, and finishes it. */
static coll_status wait_on(coll_comm *comm, coll_request *op) {
  if (!op->done) {
    colli_comm_wait_begin(comm);
    while (!op->done)
      colli_comm_wait_a_bit(comm, 0);
  }
  if (__builtin_expect(op->stage_out != COLLI_STAGE_NONE, 0))
    colli_call_finish(&comm->calls, op);
  return op->status;
}

/* Waits until an operation is complete, and finishes it. */
coll_status colli_call_wait(coll_comm *comm, coll_request *op) {
  colli_p2p_deliver(op);
  if (!op->done)
    colli_engine_progress(&comm->exec, &comm->p2p);
  return wait_on(comm, op);
}

/* Checks a call and keeps it for the end of its group. */
static coll_status keep_checked(coll_comm *comm, const colli_call *call) {
  colli_plan *plan;
  coll_error error;
  coll_status status = check_usable(comm);
  if (status == COLL_OK)
    status = check_call(comm, call, &plan);
  if (status == COLL_OK && colli_group_add(&comm->calls.group, call, &error) != COLL_OK)
    status = colli_comm_refuse_as(comm, &error);
  return status;
}

/* The same. If one call of a group is refused, the group runs none. */
static coll_status keep_in_group(coll_comm *comm, const colli_call *call) {
  coll_status status = keep_checked(comm, call);
  if (comm->calls.group.refused == COLL_OK)
    comm->calls.group.refused = status;
  return status;
}

/*
 * The plan of a call that may run on the fast path at once, because an equal call ran before and
 * nothing in flight has to go first. NULL for all others. Messages longer than FASTPATH_BYTES from
 * memory that peers can read are sent by reference, which the executor does.
 */
static inline colli_plan *find_fast_plan(coll_comm *comm, const colli_call *call) {
  const colli_exec *exec = &comm->exec;
  if (comm->calls.group.depth > 0 || comm->failure.status != COLL_OK || comm->failure.suspended ||
      exec->oldest || comm->p2p.busy || !comm->calls.free_requests ||
      atomic_load_explicit(&comm->failure.aborts, memory_order_relaxed))
    return NULL;
  colli_plan_key key = colli_call_key(call, comm->calls.turn);
  colli_plan *plan = colli_plans_find(&comm->calls.plans, &key);
  if (!plan || !plan->runs_fastpath)
    return NULL;
  if (comm->memory.first && plan->fastpath->longest > FASTPATH_BYTES)
    return NULL;
  colli_gpu_places places;
  if (__builtin_expect(comm->gpu != NULL, 0) &&
      (colli_streams_unstarted(comm) || colli_gpu_find(comm, call, &places)))
    return NULL;
  return colli_call_plain(call, plan) ? plan : NULL;
}

/* Runs a call on the fast path: true if the call is complete, else *ran is the number of steps that
 * were run. `op` keeps pending sends. */
__attribute__((always_inline)) static inline bool
run_fastpath(coll_comm *comm, const colli_call *call, const colli_plan *plan, unsigned polls,
             coll_request *op, int *ran) {
  const colli_fastpath *fastpath = plan->fastpath;
  coll_tag tag = colli_plan_tag(plan, comm->calls.sequence + 1);
  colli_fastpath_call its = {.in = call->sendbuf,
                             .out = call->recvbuf,
                             .tag = &tag,
                             .reduce = plan->reduce,
                             .polls = polls};
  colli_event_fast_begins(&comm->exec, &tag, comm->calls.sequence + 1);
  *ran = colli_fastpath_run(&comm->exec, fastpath, &its, op);
  if (*ran < fastpath->count || !fastpath->whole || op->lane[fastpath->lane].npending > 0)
    return false;
  colli_calls_count(&comm->calls, plan);
  colli_event_fast_ends(&comm->exec, &tag, comm->calls.sequence);
  return true;
}

/* Blocking, by way of a request. */
__attribute__((noinline)) static coll_status run_request(coll_comm *comm, const colli_call *call) {
  if (comm->calls.group.depth > 0)
    return keep_in_group(comm, call);
  coll_request *op;
  coll_status status = colli_call_start(comm, call, &op);
  if (status != COLL_OK)
    return status;
  status = colli_call_wait(comm, op);
  colli_request_put(op);
  return status;
}

/* Starts a request where the fast path stopped. Not inlined, because most calls do not get here. */
__attribute__((noinline)) static void leave_fastpath(coll_comm *comm, const colli_call *call,
                                                     colli_plan *plan, int ran, coll_request *op) {
  (void)start_collective(comm, call, plan, ran, op);
}

/* Blocking: starts the call and waits for its end. Most calls complete on the fast path and need no
 * request: they use a free one to keep their pending sends, but do not take it from the pool. */
coll_status colli_call_run(coll_comm *comm, const colli_call *call) {
  colli_plan *plan = find_fast_plan(comm, call);
  if (!plan)
    return run_request(comm, call);
  unsigned polls = colli_handover_due(&comm->watch) || comm->world.pause ? 0 : FASTPATH_POLLS;
  int ran;
  if (__builtin_expect(run_fastpath(comm, call, plan, polls, comm->calls.free_requests, &ran), 1))
    return COLL_OK;
  coll_request *op = colli_request_get(comm);
  leave_fastpath(comm, call, plan, ran, op);
  coll_status status = wait_on(comm, op);
  colli_request_put(op);
  return status;
}

/*
 * Whether the operation that was started last is long, and a progress thread will run its first
 * steps at once. Not inlined, to keep the path without such a thread short.
 */
__attribute__((noinline, cold)) static bool is_for_thread(const coll_comm *comm) {
  const coll_request *op = comm->exec.newest; /* NULL: complete already */
  return colli_progress_is_near(comm->family) && op && op->coll != COLLI_SENDRECV &&
         op->partition.count * op->elem_bytes > comm->exec.slot_bytes;
}

/* Advances operations once, unless this is left to the progress thread. */
static inline void poll_once(coll_comm *comm) {
  if (__builtin_expect(!comm->entry.locked, 1) || !is_for_thread(comm))
    colli_engine_progress(&comm->exec, &comm->p2p);
}

/* Nonblocking: starts the call and advances it once. */
coll_status colli_call_launch(coll_comm *comm, const colli_call *call, coll_request **request) {
  colli_plan *plan = comm->entry.locked ? NULL : find_fast_plan(comm, call);
  if (!plan) {
    coll_status status = colli_call_start(comm, call, request);
    if (status == COLL_OK)
      poll_once(comm);
    return status;
  }
  coll_request *op = colli_request_get(comm);
  int ran;
  if (run_fastpath(comm, call, plan, 0, op, &ran)) {
    op->done = true;
    op->status = COLL_OK;
    op->stage_out = COLLI_STAGE_NONE;
  } else {
    leave_fastpath(comm, call, plan, ran, op);
  }
  *request = op;
  return COLL_OK;
}

/* Persistent: checks the call and keeps it in a request. */
coll_status colli_call_keep(coll_comm *comm, const colli_call *call, coll_request **request) {
  colli_plan *plan;
  coll_status status = check_usable(comm);
  if (status == COLL_OK)
    status = check_call(comm, call, &plan);
  if (status != COLL_OK)
    return status;
  coll_request *op = get_request(comm, call);
  if (!op)
    return refuse_request(comm, call);
  op->coll = call->coll;
  op->plan = 0;
  op->active = false;
  op->done = true;
  op->status = COLL_OK;
  op->stage_out = COLLI_STAGE_NONE;
  op->kept = malloc(sizeof(*op->kept));
  if (op->kept) {
    *op->kept = *call;
    colli_user_op_retain(colli_user_op_of(call->op));
    if (!call->varying || colli_call_keep_blocks(&comm->calls, op->kept, op)) {
      *request = op;
      return COLL_OK;
    }
  }
  colli_request_put(op);
  return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, call->name,
                           "out of memory for a persistent operation of %d ranks", comm->nranks);
}

coll_status colli_call_start_again(coll_comm *comm, coll_request *op) {
  if (!op->kept)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "start",
                             "the request is not persistent; make one with coll_<name>_init");
  if (op->active)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, op->kept->name,
                             "the request was started already; complete it first");
  colli_plan *plan = NULL;
  coll_status status = check_usable(comm);
  if (status == COLL_OK)
    status = check_call(comm, op->kept, &plan);
  if (status == COLL_OK)
    status = start_request(comm, op->kept, plan, op);
  if (status != COLL_OK)
    return status;
  op->active = true;
  poll_once(comm);
  return COLL_OK;
}

/* The tag of a call whose ranks only meet, for the `place`-th time. */
static coll_tag meeting_tag(const coll_comm *comm, const colli_call *call, unsigned place) {
  const size_t count =
      call->varying ? colli_call_blocks_number(&comm->calls, call->out_counts) : call->count;
  return colli_tag_make(call->coll, call->varying, call->coll == COLLI_BARRIER ? 0 : count,
                        call->type, colli_user_op_code(call->op), call->root, comm->calls.sequence,
                        COLLI_TAG_ALGO_DIRECT, (int)(place & 0xffffff));
}

coll_status colli_call_meet(coll_comm *comm, coll_request *op, unsigned place) {
  const colli_call barrier = {
      .name = op->kept->name, .coll = COLLI_BARRIER, .type = COLL_INT8, .on_host = true};
  colli_plan *plan = NULL;
  coll_status status = check_usable(comm);
  if (status == COLL_OK)
    status = check_call(comm, &barrier, &plan);
  if (status != COLL_OK)
    return status;
  op->moved_at = comm->watch.waited_ns;
  if (colli_call_prepare(&comm->calls, &barrier, plan, op) != NULL)
    return refuse_request(comm, &barrier);
  op->tag = meeting_tag(comm, op->kept, place);
  op->plan = 0; /* it no longer has the plan's tag */
  colli_exec_start(&comm->exec, op);
  if (!plan->connected)
    colli_call_connect(&comm->calls, plan, op);
  op->active = true;
  poll_once(comm);
  return COLL_OK;
}

coll_status coll_start(coll_request *request) {
  if (!request)
    return COLL_ERR_INVALID_ARGUMENT;
  coll_status status = colli_call_enter(request->comm);
  if (status != COLL_OK)
    return status;
  coll_comm *comm = request->comm;
  if (__builtin_expect(colli_streams_unstarted(comm), 0) && request->kept)
    status = colli_comm_await_streams(comm, request->kept->name);
  if (status == COLL_OK)
    status = colli_call_start_again(comm, request);
  colli_call_leave(comm);
  return status;
}

coll_status coll_request_free(coll_request **request) {
  if (!request || !*request)
    return COLL_ERR_INVALID_ARGUMENT;
  coll_comm *comm = (*request)->comm;
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  if (!(*request)->kept || ((*request)->active && !(*request)->done)) {
    status = colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, "request_free",
                               "the request is not persistent, or in flight; complete it first");
  } else {
    colli_request_abandon(*request); /* it may be complete, and nobody has asked */
    colli_request_put(*request);
    *request = NULL;
  }
  colli_call_leave(comm);
  return status;
}
