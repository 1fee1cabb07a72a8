/*
 * ops.c: operations of the caller's own. A handle is COLL_OP_USER_BASE plus the lowest free index,
 * so that ranks which create and free in the same order have the same handles without talking.
 */
#include "libcoll/call/ops.h"

#include <string.h>

#include "libcoll/comm/comm.h"
#include "libcoll/progress/enter.h"

#define NO_OP ((coll_op)-1)

/* Takes the lowest free place, writes its handle to *op; NULL, with a record, if all are taken. */
static colli_user_op *take_place(coll_comm *comm, const char *name, coll_op *op) {
  for (int i = 0; i < COLL_OP_USER_MAX; i++) {
    if (comm->calls.ops[i].used)
      continue;
    *op = (coll_op)(COLL_OP_USER_BASE + i);
    comm->calls.ops[i] = (colli_user_op){.used = true};
    return &comm->calls.ops[i];
  }
  colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, name,
                    "%d operations exist on this communicator, and no more can; free one with "
                    "coll_op_free()",
                    COLL_OP_USER_MAX);
  return NULL;
}

/* Makes an operation from a function. */
static coll_status create(coll_comm *comm, coll_op_fn fn, void *context, int commutative,
                          coll_op *op) {
  if (!op)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "op_create", "op is NULL");
  *op = NO_OP;
  if (!fn)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "op_create",
                             "fn is NULL; give the function that combines elements");
  colli_user_op *user = take_place(comm, "op_create", op);
  if (!user)
    return COLL_ERR_INVALID_USAGE;
  user->fn = fn;
  user->context = context;
  user->commutative = commutative != 0;
  return COLL_OK;
}

coll_status coll_op_create(coll_comm *comm, coll_op_fn fn, void *context, int commutative,
                           coll_op *op) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = create(comm, fn, context, commutative, op);
  colli_call_leave(comm);
  return status;
}

/* Makes a pre-multiplied sum. */
static coll_status create_premul_sum(coll_comm *comm, const void *factor, coll_type type,
                                     coll_op *op) {
  static const char *const name = "op_create_premul_sum";
  if (!op)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, name, "op is NULL");
  *op = NO_OP;
  if (!factor)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, name,
                             "factor is NULL; give the address of one element");
  if ((int)type < COLL_INT8 || (int)type > COLL_FLOAT8_E5M2)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, name,
                             "%d is no type of integers or floats (COLL_INT8 .. COLL_FLOAT8_E5M2), "
                             "which alone can be multiplied",
                             (int)type);
  colli_user_op *user = take_place(comm, name, op);
  if (!user)
    return COLL_ERR_INVALID_USAGE;
  user->premul = user->commutative = true;
  user->type = type;
  memcpy(user->factor, factor, coll_type_bytes(type));
  return COLL_OK;
}

coll_status coll_op_create_premul_sum(coll_comm *comm, const void *factor, coll_type type,
                                      coll_op *op) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = create_premul_sum(comm, factor, type, op);
  colli_call_leave(comm);
  return status;
}

/* Ends an operation. */
static coll_status end(coll_comm *comm, coll_op *op) {
  if (!op)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "op_free", "op is NULL");
  if (!colli_ops_find(comm, (int)*op))
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "op_free",
                             "%d is no operation that was created on this communicator and not "
                             "freed yet",
                             (int)*op);
  comm->calls.ops[(int)*op - COLL_OP_USER_BASE] = (colli_user_op){.used = false};
  colli_plans_forget(&comm->calls.plans); /* its handle may get another meaning */
  *op = NO_OP;
  return COLL_OK;
}

coll_status coll_op_free(coll_comm *comm, coll_op *op) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = end(comm, op);
  colli_call_leave(comm);
  return status;
}

const colli_user_op *colli_ops_find(const coll_comm *comm, int op) {
  if (op < COLL_OP_USER_BASE || op >= COLL_OP_USER_BASE + COLL_OP_USER_MAX)
    return NULL;
  const colli_user_op *user = &comm->calls.ops[op - COLL_OP_USER_BASE];
  return user->used ? user : NULL;
}

void colli_ops_inherit(coll_comm *child, const coll_comm *parent) {
  memcpy(child->calls.ops, parent->calls.ops, sizeof(child->calls.ops));
}
