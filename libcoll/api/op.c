/* op.c: user-defined operations: coll_op_create() and its relatives. */
#include <stdio.h>
#include <string.h>

#include "libcoll/call/ops.h"

coll_status coll_op_create(const char *name, coll_op_fn fn, void *context, int commutative,
                           coll_op *op) {
  if (!op)
    return COLL_ERR_INVALID_ARGUMENT;
  *op = COLLI_OP_NONE;
  if (!name || !*name || !fn)
    return COLL_ERR_INVALID_ARGUMENT;
  colli_user_op *user = colli_user_op_make();
  if (!user)
    return COLL_ERR_NO_MEMORY;
  user->number = colli_user_op_number(name, commutative != 0);
  user->fn = fn;
  user->context = context;
  user->commutative = commutative != 0;
  snprintf(user->name, sizeof(user->name), "%s", name);
  *op = colli_user_op_handle(user);
  return COLL_OK;
}

coll_status coll_op_create_premul_sum(const void *factor, coll_type type, coll_op *op) {
  if (!op)
    return COLL_ERR_INVALID_ARGUMENT;
  *op = COLLI_OP_NONE;
  if (!factor || (int)type < COLL_INT8 || (int)type > COLL_FLOAT8_E5M2)
    return COLL_ERR_INVALID_ARGUMENT;
  colli_user_op *user = colli_user_op_make();
  if (!user)
    return COLL_ERR_NO_MEMORY;
  user->number = COLLI_OP_PREMUL;
  user->premul = user->commutative = true;
  user->type = type;
  memcpy(user->factor, factor, coll_type_bytes(type));
  *op = colli_user_op_handle(user);
  return COLL_OK;
}

coll_status coll_op_free(coll_op *op) {
  colli_user_op *user = op ? colli_user_op_of(*op) : NULL;
  if (!user)
    return COLL_ERR_INVALID_ARGUMENT;
  colli_user_op_release(user);
  *op = COLLI_OP_NONE;
  return COLL_OK;
}
