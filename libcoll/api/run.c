/* run.c: how a call becomes a request and runs: blocking, nonblocking, persistent. */
#include "libcoll/call/call.h"

#include <stdlib.h>

#include "libcoll/comm/comm.h"

#define HURRY_LOOKS 64u   /* for a message of a script, 1 to 2 us: ranks come at the same time */
#define HURRY_BYTES 8192u /* messages that are never left where they lie */

/* Whether the communicator can take a call; looks for an abort first. */
static coll_status usable(coll_comm *comm) {
  if (__builtin_expect(atomic_load_explicit(&comm->failure.abort_flag, memory_order_relaxed), 0))
    colli_comm_poll_notices(comm);
  return comm->failure.status;
}

/* Checks a call; of a collective *plan is the plan. */
static coll_status check(coll_comm *comm, const colli_call *call, colli_plan **plan) {
  if (call->coll == COLLI_SENDRECV)
    return colli_p2p_check(comm, call);
  return colli_call_plan(comm, call, plan);
}

/* Fills in a request and hands it to the executor. */
static coll_status start(coll_comm *comm, const colli_call *call, colli_plan *plan,
                         coll_request *op) {
  op->moved_at = comm->watch.waited_ns;
  if (call->coll == COLLI_SENDRECV) {
    op->coll = COLLI_SENDRECV;
    colli_p2p_prepare(comm, call, op);
    colli_exec_start(&comm->exec, op);
    return COLL_OK;
  }
  coll_status status = colli_call_prepare(comm, call, plan, op);
  if (__builtin_expect(status != COLL_OK, 0))
    return status;
  colli_exec_start(&comm->exec, op);
  if (__builtin_expect(!plan->connected, 0)) {
    plan->connected = true;
    colli_exec_connect(&comm->exec, op);
  }
  return COLL_OK;
}

/* Checks a call and takes a request for it; never on a communicator that failed, where nobody would
 * end it. */
static coll_status take(coll_comm *comm, const colli_call *call, bool limited, colli_plan **plan,
                        coll_request **op) {
  *plan = NULL;
  coll_status status = usable(comm);
  if (__builtin_expect(status == COLL_OK, 1))
    status = check(comm, call, plan);
  if (__builtin_expect(status != COLL_OK, 0))
    return status;
  *op = colli_request_get(comm, limited);
  if (__builtin_expect(!*op, 0))
    return colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, call->name,
                             "%d requests are in flight already, or memory is out; complete some "
                             "first",
                             comm->calls.nrequests);
  return COLL_OK;
}

/* Checks and starts a call. */
coll_status colli_call_start(coll_comm *comm, const colli_call *call, bool limited,
                             coll_request **started) {
  colli_plan *plan;
  coll_request *op;
  *started = NULL;
  coll_status status = take(comm, call, limited, &plan, &op);
  if (__builtin_expect(status != COLL_OK, 0))
    return status;
  status = start(comm, call, plan, op);
  if (__builtin_expect(status == COLL_OK, 1))
    *started = op;
  else
    colli_request_put(op);
  return status;
}

/* Waits until an operation is complete that has just been looked at, and finishes it off. */
static coll_status wait_on(coll_comm *comm, coll_request *op) {
  if (!op->done) {
    colli_comm_wait_begin(comm);
    while (!op->done)
      colli_comm_wait_a_bit(comm, 0);
  }
  if (__builtin_expect(op->stage_out != COLLI_STAGE_NONE, 0))
    colli_call_finish(op);
  return op->status;
}

/* Waits until an operation is complete, and finishes it off. */
coll_status colli_call_wait(coll_comm *comm, coll_request *op) {
  if (!op->done)
    colli_exec_progress(&comm->exec);
  return wait_on(comm, op);
}

/* Keeps a call for the end of its group, if it can be right. */
static coll_status keep_in_group(coll_comm *comm, const colli_call *call) {
  colli_plan *plan;
  coll_status status = usable(comm);
  if (status == COLL_OK)
    status = check(comm, call, &plan);
  if (status == COLL_OK)
    return colli_group_add(comm, call);
  comm->calls.group.refused = comm->calls.group.refused ? comm->calls.group.refused : status;
  return status;
}

/*
 * The plan of a call that may run its script at once: one like it was made before, and nothing is
 * in flight that would have to go first. NULL for all others. Registered memory is for long
 * messages.
 */
static inline colli_plan *plan_in_hurry(coll_comm *comm, const colli_call *call) {
  const colli_exec *exec = &comm->exec;
  if (comm->calls.group.depth > 0 || comm->failure.status != COLL_OK || comm->failure.suspended ||
      exec->oldest || exec->p2p.busy || !comm->calls.free_requests ||
      atomic_load_explicit(&comm->failure.abort_flag, memory_order_relaxed))
    return NULL;
  colli_plan_key key = colli_call_key(call, comm->calls.turn);
  colli_plan *plan = colli_plans_entry(&comm->calls.plans, &key);
  if (!colli_plan_is(plan, &key) || !plan->has_fastpath || !plan->connected)
    return NULL;
  if (comm->memory.first && plan->fastpath->longest > HURRY_BYTES)
    return NULL;
  return colli_call_plain(call, plan) ? plan : NULL;
}

/* Runs a call's script: true if the call is complete, else *ran says how far it came. */
static inline bool hurry(coll_comm *comm, const colli_call *call, const colli_plan *plan,
                         unsigned looks, coll_request *op, int *ran) {
  const colli_fastpath *fastpath = plan->fastpath;
  coll_tag tag = colli_plan_tag(plan, comm->calls.sequence + 1);
  colli_fastpath_call its = {.in = call->sendbuf,
                             .out = call->recvbuf,
                             .tag = &tag,
                             .reduce = plan->reduce,
                             .looks = looks};
  *ran = colli_fastpath_run(&comm->exec, fastpath, &its, op);
  if (*ran < fastpath->count || !fastpath->whole || op->lane[fastpath->lane].npending > 0)
    return false;
  comm->calls.history[++comm->calls.sequence % COLLI_HISTORY] = tag;
  comm->calls.turn ^= plan->turns;
  return true;
}

/* Starts a request whose script has stopped. Not inlined: most calls do not come here. */
__attribute__((noinline)) static void go_on(coll_comm *comm, const colli_call *call,
                                            const colli_plan *plan, int ran, coll_request *op) {
  op->moved_at = comm->watch.waited_ns;
  (void)colli_call_prepare(comm, call, plan, op); /* needs no memory, so it cannot fail */
  colli_fastpath_resume(&comm->exec, plan->fastpath, ran, op);
}

/* Blocking, by way of a request. */
__attribute__((noinline)) static coll_status run_request(coll_comm *comm, const colli_call *call) {
  if (comm->calls.group.depth > 0)
    return keep_in_group(comm, call);
  coll_request *op;
  coll_status status = colli_call_start(comm, call, false, &op);
  if (status != COLL_OK)
    return status;
  status = colli_call_wait(comm, op);
  colli_request_put(op);
  return status;
}

/* Blocking: starts the call and waits for its end. Most scripts run to the end and need no request:
 * the free one that they use meanwhile is not taken. */
coll_status colli_call_run(coll_comm *comm, const colli_call *call) {
  const colli_plan *plan = plan_in_hurry(comm, call);
  if (!plan)
    return run_request(comm, call);
  bool spins = !comm->watch.crowded && !comm->world.pause;
  int ran;
  if (__builtin_expect(
          hurry(comm, call, plan, spins ? HURRY_LOOKS : 0, comm->calls.free_requests, &ran), 1))
    return COLL_OK;
  coll_request *op = colli_request_get(comm, false);
  go_on(comm, call, plan, ran, op);
  coll_status status = wait_on(comm, op);
  colli_request_put(op);
  return status;
}

/*
 * Whether the operation that was started last is long, and there is a progress thread to make its
 * first steps. Not inlined: it would add to the path without such a thread.
 */
__attribute__((noinline, cold)) static bool is_for_thread(const coll_comm *comm) {
  const coll_request *op = comm->exec.newest; /* NULL: complete already */
  return atomic_load_explicit(&comm->family->progress, memory_order_relaxed) && op &&
         op->coll != COLLI_SENDRECV && op->partition.count * op->elem_bytes > comm->exec.slot_bytes;
}

/* Lets a started operation move once. */
static inline void set_off(coll_comm *comm) {
  if (__builtin_expect(!comm->entry.locked, 1) || !is_for_thread(comm))
    colli_exec_progress(&comm->exec);
}

/* Nonblocking: starts the call and lets it move once. */
coll_status colli_call_launch(coll_comm *comm, const colli_call *call, coll_request **request) {
  const colli_plan *plan = comm->entry.locked ? NULL : plan_in_hurry(comm, call);
  if (!plan) {
    coll_status status = colli_call_start(comm, call, true, request);
    if (status == COLL_OK)
      set_off(comm);
    return status;
  }
  coll_request *op = colli_request_get(comm, true);
  int ran;
  if (hurry(comm, call, plan, 0, op, &ran)) {
    op->done = true;
    op->status = COLL_OK;
    op->stage_out = COLLI_STAGE_NONE;
  } else {
    go_on(comm, call, plan, ran, op);
  }
  *request = op;
  return COLL_OK;
}

/* Persistent: checks the call and keeps it in a request. */
coll_status colli_call_keep(coll_comm *comm, const colli_call *call, coll_request **request) {
  colli_plan *plan;
  coll_status status = usable(comm);
  if (status == COLL_OK)
    status = check(comm, call, &plan);
  if (status != COLL_OK)
    return status;
  coll_request *op = colli_request_get(comm, true);
  if (!op)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, call->name,
                             "%d requests exist already, or memory is out; release some first",
                             comm->calls.nrequests);
  op->coll = call->coll;
  op->plan = 0;
  op->active = false;
  op->done = true;
  op->status = COLL_OK;
  op->stage_out = COLLI_STAGE_NONE;
  op->kept = malloc(sizeof(*op->kept));
  if (op->kept) {
    *op->kept = *call;
    if (!call->varying || colli_call_keep_blocks(comm, op->kept, op)) {
      *request = op;
      return COLL_OK;
    }
  }
  colli_request_put(op);
  return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, call->name,
                           "no memory for a persistent operation of %d ranks", comm->nranks);
}

/* Stream-ordered: not yet. */
coll_status colli_call_on_stream(coll_comm *comm, const colli_call *call) {
  return colli_comm_refuse(comm, COLL_ERR_UNSUPPORTED, call->name,
                           "this version works on host memory only and knows no streams; use "
                           "coll_%s or coll_i%s",
                           call->name, call->name);
}

/* Starts a persistent operation. */
static coll_status start_again(coll_comm *comm, coll_request *op) {
  if (!op->kept)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "start",
                             "the request is not persistent; make one with coll_<name>_init");
  if (op->active)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, op->kept->name,
                             "the request was started already; complete it first");
  colli_plan *plan = NULL;
  coll_status status = usable(comm);
  if (status == COLL_OK)
    status = check(comm, op->kept, &plan);
  if (status == COLL_OK)
    status = start(comm, op->kept, plan, op);
  if (status != COLL_OK)
    return status;
  op->active = true;
  set_off(comm);
  return COLL_OK;
}

coll_status coll_start(coll_request *request) {
  if (!request)
    return COLL_ERR_INVALID_ARGUMENT;
  coll_status status = colli_call_enter(request->comm);
  if (status != COLL_OK)
    return status;
  coll_comm *comm = request->comm;
  status = start_again(comm, request);
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
    colli_request_put(*request);
    *request = NULL;
  }
  colli_call_leave(comm);
  return status;
}
