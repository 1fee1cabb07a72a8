/* op.c: user-defined operations: coll_op_create() and its relatives. */
#include <string.h>

#include "libcoll/comm/comm.h"
#include "libcoll/progress/enter.h"

#define NO_OP ((coll_op)-1)

/* A new operation and its handle; NULL, with an error record, if the table is full. */
static colli_user_op *add_op(coll_comm *comm, const char *name, coll_op *op) {
  colli_user_op *user = colli_ops_add(&comm->calls.ops, op);
  if (!user)
    colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, name,
                      "%d operations exist on this communicator, and no more can; free one with "
                      "coll_op_free()",
                      COLL_OP_USER_MAX);
  return user;
}

/* Makes an operation from a function. */
static coll_status create_from_function(coll_comm *comm, coll_op_fn fn, void *context,
                                        int commutative, coll_op *op) {
  if (!op)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "op_create", "op is NULL");
  *op = NO_OP;
  if (!fn)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "op_create",
                             "fn is NULL; give the function that combines elements");
  colli_user_op *user = add_op(comm, "op_create", op);
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
  status = create_from_function(comm, fn, context, commutative, op);
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
  colli_user_op *user = add_op(comm, name, op);
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

/* Frees an operation. Drops all plans, because its handle may be reused. */
static coll_status free_op(coll_comm *comm, coll_op *op) {
  if (!op)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "op_free", "op is NULL");
  if (!colli_ops_remove(&comm->calls.ops, (int)*op))
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "op_free",
                             "%d is no operation that was created on this communicator and not "
                             "freed yet",
                             (int)*op);
  colli_plans_forget(&comm->calls.plans);
  *op = NO_OP;
  return COLL_OK;
}

coll_status coll_op_free(coll_comm *comm, coll_op *op) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = free_op(comm, op);
  colli_call_leave(comm);
  return status;
}
