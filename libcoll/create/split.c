/*
 * split.c: communicators made from others, collectively over all ranks of the parent. Each
 * contributes color, key, and the number with which its peers will address the new communicator.
 * One all-gather of these tells each rank all that it needs. The simulator, where nobody may wait,
 * calls the parts one by one.
 */
#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/create/split_parts.h"
#include "libcoll/progress/enter.h"
#include "libcoll/run/run.h"

/* Checks that all ranks gave the same list; other calls differ in the all-gather's tag. */
static coll_status check_agreement(const colli_split *split) {
  for (int rank = 0; rank < split->parent->nranks; rank++)
    if (split->records[rank].check != split->mine.check)
      return colli_split_disagree(split, rank, "coll_comm_subset",
                                  "all ranks must give the same one");
  return COLL_OK;
}

/* Creates the communicator from the contributions of all ranks. */
static coll_status conclude(colli_split *split, coll_comm **child) {
  COLLI_ASSERT_RANK(!*child && split->op && split->op->done, split->parent->rank);
  coll_status status = check_agreement(split);
  if (status != COLL_OK || split->mine.color == COLL_NO_COLOR)
    return status;
  return colli_split_make(split, child);
}

/* ---- the parts ------------------------------------------------------------------------------- */

/* Starts the all-gather. */
coll_status colli_split_start(coll_comm *parent, const colli_split_call *call, colli_split **out) {
  colli_split *split;
  *out = NULL;
  coll_status status = colli_split_prepare(parent, call, &split);
  if (status != COLL_OK)
    return status;
  colli_call all_gather = {.name = split->name,
                           .coll = COLLI_ALLGATHER,
                           .sendbuf = &split->mine,
                           .recvbuf = split->records,
                           .count = sizeof(split->mine),
                           .type = COLL_UINT8,
                           .op = call->kind == COLLI_SPLIT_LEVEL
                                     ? COLLI_MAKES_DIRECT
                                     : COLLI_MAKES_SPLIT + (int)call->kind};
  status = colli_call_start(parent, &all_gather, &split->op);
  if (status == COLL_OK)
    *out = split;
  else
    colli_split_drop(split);
  return status;
}

bool colli_split_done(const colli_split *split) {
  return split->op->done;
}

/* Ends a split whose all-gather is done. */
coll_status colli_split_finish(colli_split *split, coll_comm **child) {
  *child = NULL;
  coll_status status = colli_call_wait(split->parent, split->op);
  if (status == COLL_OK)
    status = conclude(split, child);
  colli_split_drop(split);
  return status;
}

/* ---- the public calls ------------------------------------------------------------------------ */

/* A whole split, for a thread that is inside the parent. */
static coll_status run_split(coll_comm *parent, const colli_split_call *call, coll_comm **child) {
  colli_split *split;
  coll_status status = colli_call_check_usable(parent);
  if (status == COLL_OK)
    status = colli_split_start(parent, call, &split);
  return status == COLL_OK ? colli_split_finish(split, child) : status;
}

/* Checks the arguments. */
static coll_status check_call(coll_comm *parent, const colli_split_call *call,
                              coll_comm *const *child) {
  if (!child)
    return colli_comm_refuse(parent, COLL_ERR_INVALID_ARGUMENT, colli_split_name(call->kind),
                             "child is NULL");
  if (call->color < 0 && call->color != COLL_NO_COLOR)
    return colli_comm_refuse(parent, COLL_ERR_INVALID_ARGUMENT, colli_split_name(call->kind),
                             "color is %d; it must be 0 or more, or COLL_NO_COLOR", call->color);
  return COLL_OK;
}

/* Checks and runs a call, for a thread that is inside the parent. */
static coll_status check_and_run(coll_comm *parent, const colli_split_call *call,
                                 coll_comm **child) {
  coll_status status = check_call(parent, call, child);
  if (status == COLL_OK)
    status = run_split(parent, call, child);
  if (status != COLL_OK)
    colli_split_tell(parent, call->config);
  return status;
}

/* The all-gather of a nonblocking split has ended, and its caller asks for the child. */
static void conclude_request(coll_request *op, bool reported) {
  colli_split *split = op->owner;
  coll_error *to_caller = split->settings.to_caller;
  if (reported && op->status == COLL_OK)
    op->status = conclude(split, split->to);
  if (reported && op->status != COLL_OK && to_caller)
    colli_error_copy(to_caller, &split->parent->failure.error);
  split->op = NULL; /* the caller's */
  colli_split_drop(split);
}

/* Starts a split, for a thread that is inside the parent. */
static coll_status launch_split(coll_comm *parent, const colli_split_call *call, coll_comm **child,
                                coll_request **request) {
  colli_split *split;
  coll_status status = colli_call_check_usable(parent);
  if (status == COLL_OK)
    status = colli_split_start(parent, call, &split);
  if (status != COLL_OK)
    return status;
  split->to = child;
  split->op->conclude = conclude_request;
  split->op->owner = split;
  split->op->stage_out = COLLI_STAGE_OWNER;
  *request = split->op;
  colli_engine_progress(&parent->exec, &parent->p2p);
  return COLL_OK;
}

/* Enters the parent, starts the call, and leaves. */
static coll_status enter_and_launch(coll_comm *parent, const colli_split_call *call,
                                    coll_comm **child, coll_request **request) {
  if (child)
    *child = NULL;
  if (request)
    *request = NULL;
  coll_status status = colli_call_enter(parent);
  if (status != COLL_OK)
    return status;
  status = check_call(parent, call, child);
  if (status == COLL_OK && !request)
    status = colli_comm_refuse(parent, COLL_ERR_INVALID_ARGUMENT, colli_split_name(call->kind),
                               "request is NULL");
  if (status == COLL_OK)
    status = launch_split(parent, call, child, request);
  if (status != COLL_OK)
    colli_split_tell(parent, call->config);
  colli_call_leave(parent);
  return status;
}

coll_status coll_comm_isplit(coll_comm *comm, int color, int key, const coll_config *config,
                             coll_comm **child, coll_request **request) {
  colli_split_call call = {
      .kind = COLLI_SPLIT_COLORS, .color = color, .key = key, .config = config};
  return enter_and_launch(comm, &call, child, request);
}

coll_status coll_comm_idup(coll_comm *comm, const coll_config *config, coll_comm **child,
                           coll_request **request) {
  colli_split_call call = {.kind = COLLI_SPLIT_DUP, .config = config};
  return enter_and_launch(comm, &call, child, request);
}

coll_status coll_comm_split(coll_comm *comm, int color, int key, const coll_config *config,
                            coll_comm **child) {
  if (child)
    *child = NULL;
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  colli_split_call call = {
      .kind = COLLI_SPLIT_COLORS, .color = color, .key = key, .config = config};
  status = check_and_run(comm, &call, child);
  colli_call_leave(comm);
  return status;
}

coll_status coll_comm_dup(coll_comm *comm, const coll_config *config, coll_comm **child) {
  if (child)
    *child = NULL;
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  colli_split_call call = {.kind = COLLI_SPLIT_DUP, .config = config};
  status = check_and_run(comm, &call, child);
  colli_call_leave(comm);
  return status;
}

coll_status coll_comm_subset(coll_comm *comm, const int *ranks, int count,
                             const coll_config *config, coll_comm **child) {
  if (child)
    *child = NULL;
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  colli_split_call call = {.kind = COLLI_SPLIT_SUBSET, .config = config};
  status = colli_split_read_list(comm, ranks, count, &call);
  if (status == COLL_OK)
    status = check_and_run(comm, &call, child);
  else
    colli_split_tell(comm, config);
  colli_call_leave(comm);
  return status;
}
