/* call_plan.c: resolves types, operations and orders of a call, once for all equal calls. */
#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/call/calls.h"
#include "libcoll/call/tag.h"
#include "libcoll/exec/connect.h"
#include "libcoll/exec/finite.h"

#define ASSUMED_BLOCK_BYTES 65536

static bool is_float(int type) {
  return type >= COLL_FLOAT16 && type <= COLL_FLOAT8_E5M2;
}

static bool is_short_float(int type) {
  return is_float(type) && type != COLL_FLOAT32 && type != COLL_FLOAT64;
}

/* Whether an operation adds or multiplies, and therefore rounds floats. */
static bool is_sum(coll_op op, const colli_user_op *user) {
  return user ? user->premul : op == COLL_SUM || op == COLL_PROD || op == COLL_AVG;
}

/* The order in which a reduction must be combined. */
static colli_order order_of(const colli_calls *calls, const colli_call *call,
                            const colli_user_op *user) {
  bool custom = user && !user->premul;
  bool rounds = custom || (is_float(call->type) && is_sum(call->op, user));
  bool scan = call->coll == COLLI_SCAN || call->coll == COLLI_EXSCAN;
  if (rounds && calls->deterministic > COLL_DETERMINISTIC_OFF)
    return colli_order_of_sums(calls->deterministic, call->coll);
  return custom && !user->commutative && !scan ? COLLI_ORDER_RANKS : COLLI_ORDER_ANY;
}

/* If no rank knows all counts, the choice assumes blocks of this many elements. */
size_t colli_call_assumed_count(int type) {
  return ASSUMED_BLOCK_BYTES / coll_type_bytes((coll_type)type) + 1;
}

/* The count that is used to choose an algorithm for blocks of differing lengths. */
static size_t typical_count(const colli_calls *calls, const colli_call *call) {
  size_t total = 0;
  if (call->coll != COLLI_ALLGATHER && call->coll != COLLI_REDUCE_SCATTER)
    return colli_call_assumed_count(call->type);
  COLLI_ASSERT_RANK(call->varying && call->out_counts, calls->exec->rank);
  for (int rank = 0; rank < calls->exec->nranks; rank++)
    total += call->out_counts[rank];
  return (total + (size_t)calls->exec->nranks - 1) / (size_t)calls->exec->nranks;
}

/* Whether this rank's input may become a result without being combined with another one, so that no
 * kernel has brought it into the form of a result. */
static bool may_stay_alone(const colli_calls *calls, const colli_call *call) {
  bool scan = call->coll == COLLI_SCAN || call->coll == COLLI_EXSCAN;
  return calls->exec->nranks == 1 || (scan && calls->exec->rank == 0);
}

/* Whether results of a logical operation, 0 or 1, are not what the inputs are. */
static bool is_logical(coll_op op) {
  return op >= COLL_LAND && op <= COLL_LXOR;
}

/* Whether a predefined operation gives structs whose padding must be 0. */
static bool is_padded(const colli_call *call) {
  return !colli_user_op_of(call->op) &&
         (call->type == COLL_INT32_LOC64 || call->type == COLL_FLOAT32_LOC64);
}

/* Resolves what a reduction is made of. */
static void resolve_reduction(const colli_calls *calls, const colli_call *call, colli_plan *plan) {
  const colli_kernels *kernels = calls->exec->kernels;
  plan->user = colli_user_op_of(call->op);
  plan->order = order_of(calls, call, plan->user);
  plan->widened = is_sum(call->op, plan->user) && is_short_float(call->type) &&
                  calls->accumulate == COLL_ACCUMULATE_FLOAT32;
  plan->alone = (is_logical(call->op) || is_padded(call)) && may_stay_alone(calls, call);
  plan->staged = plan->widened || plan->alone || (plan->user && plan->user->premul);
  if (plan->widened)
    plan->wire_type = COLL_FLOAT32;
  if (plan->user && !plan->user->premul)
    return;
  coll_op kernel = plan->user ? COLL_SUM : call->op;
  plan->reduce = kernels->reduce[plan->wire_type][kernel];
  plan->average = kernel == COLL_AVG ? kernels->average[plan->wire_type] : NULL;
  COLLI_ASSERT_RANK(plan->reduce && (kernel != COLL_AVG || plan->average), calls->exec->rank);
}

/* Fills in a plan but for what is chosen. */
void colli_call_resolve(const colli_calls *calls, const colli_call *call, const colli_plan_key *key,
                        colli_plan *plan) {
  *plan = (colli_plan){.key = *key, .wire_type = call->type, .elem_bytes = 1, .pieces = 1};
  if (colli_reduces(call->coll))
    resolve_reduction(calls, call, plan);
  plan->checks_finite =
      calls->check_finite && call->coll != COLLI_BARRIER && colli_may_be_nan(call->type);
  if (call->coll != COLLI_BARRIER)
    plan->elem_bytes = coll_type_bytes((coll_type)plan->wire_type);
  bool is_long = plan->elem_bytes > calls->plans.limits.slot_bytes;
  plan->in_rooms = is_long && plan->user && calls->exec->nranks > 1;
  if (is_long && !colli_reduces(call->coll)) {
    plan->pieces = plan->elem_bytes;
    plan->elem_bytes = 1;
  }
  COLLI_ASSERT_RANK(plan->elem_bytes > 0 && plan->key.coll == call->coll, calls->exec->rank);
}

/* Records which parts of the buffers a plan's calls use. */
static void note_buffers(const colli_calls *calls, const colli_call *call, colli_plan *plan) {
  size_t own = call->count * (size_t)calls->exec->rank * plan->pieces,
         bytes = coll_type_bytes((coll_type)call->type);
  bool own_in = call->coll == COLLI_ALLGATHER || call->coll == COLLI_GATHER;
  bool own_out = call->coll == COLLI_REDUCE_SCATTER || call->coll == COLLI_SCATTER;
  plan->in_first = own_in ? own : 0;
  plan->out_first = own_out ? own : 0;
  colli_call_extent(calls, call, &plan->reads, &plan->writes);
  plan->reads *= bytes;
  plan->writes *= bytes;
  COLLI_ASSERT_RANK(!call->varying && !plan->key.varying, calls->exec->rank);
  plan->shift = (plan->in_first - plan->out_first) * (bytes / plan->pieces);
}

/* Compiles the fast path of a plan whose calls need nothing but their buffers; false if there is
 * none. */
static bool make_fastpath(colli_plan *plan) {
  bool plain = !plan->staged && !plan->average && !(plan->user && !plan->user->premul) &&
               !plan->checks_finite;
  return plain && colli_fastpath_make(&plan->fastpath, plan->sched, &plan->partition,
                                      plan->elem_bytes, plan->in_first, plan->out_first);
}

/* Makes the plan of a call with valid arguments. */
static coll_status make_plan(colli_calls *calls, const colli_call *call, const colli_plan_key *key,
                             colli_plan **made, coll_error *error) {
  colli_plan *plan = colli_plans_evict(&calls->plans);
  if (!plan)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, call->name,
                           "out of memory for the choice of an algorithm; see ulimit -v");
  colli_fastpath *fastpath = plan->fastpath;
  COLLI_ASSERT_RANK(!plan->sched, calls->exec->rank);
  colli_call_resolve(calls, call, key, plan);
  plan->fastpath = fastpath;
  coll_error reason = COLL_ERROR_INIT;
  coll_status status = colli_plans_choose(&calls->plans, plan, &reason);
  if (status != COLL_OK)
    return colli_error_set(error, status, call->name, "%s", reason.message);
  COLLI_ASSERT_RANK(plan->sched->rank == calls->exec->rank, calls->exec->rank);
  /* With blocks of differing lengths, the number of passes differs from rank to rank. */
  plan->tag = colli_tag_make(call->coll, call->varying, call->varying ? 0 : call->count, call->type,
                             colli_user_op_code(call->op), key->root, 0, plan->sched->algo->id,
                             call->varying ? 0 : plan->partition.passes);
  if (!call->varying) {
    note_buffers(calls, call, plan);
    plan->has_fastpath = make_fastpath(plan);
  }
  colli_plans_insert(&calls->plans, plan);
  *made = plan;
  return COLL_OK;
}

/* Checks a collective call, and finds or makes its plan. */
coll_status colli_call_plan(colli_calls *calls, const colli_call *call, colli_plan **found,
                            coll_error *error) {
  colli_plans *plans = &calls->plans;
  colli_plan_key key = colli_call_key(call, calls->turn);
  colli_plan *plan = call->varying ? NULL : colli_plans_find(plans, &key);
  if (__builtin_expect(plan != NULL, 1)) {
    *found = plan;
    return colli_call_plain(call, plan) ? COLL_OK : colli_call_check_buffers(calls, call, error);
  }
  coll_status status = colli_call_check(calls, call, error);
  if (status != COLL_OK)
    return status;
  if (call->varying) {
    key.count = typical_count(calls, call);
    plan = colli_plans_find(plans, &key);
  }
  *found = plan;
  return plan ? COLL_OK : make_plan(calls, call, &key, found, error);
}

/* Begins a plan's connections, and decides whether its calls run on the fast path. */
void colli_call_connect(const colli_calls *calls, colli_plan *plan, coll_request *op) {
  COLLI_ASSERT_RANK(plan->sched && op->sched == plan->sched, calls->exec->rank);
  plan->connected = true;
  colli_exec_connect(calls->exec, op);
  plan->runs_fastpath = plan->has_fastpath && colli_fastpath_can(calls->exec, plan->fastpath);
}
