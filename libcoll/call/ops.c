/* ops.c: the table of a communicator's user-defined operations. */
#include "libcoll/call/ops.h"

#include <stddef.h>

const colli_user_op *colli_ops_find(const colli_ops *ops, int op) {
  if (op < COLL_OP_USER_BASE || op >= COLL_OP_USER_BASE + COLL_OP_USER_MAX)
    return NULL;
  const colli_user_op *user = &ops->op[op - COLL_OP_USER_BASE];
  return user->used ? user : NULL;
}

colli_user_op *colli_ops_add(colli_ops *ops, coll_op *handle) {
  for (int i = 0; i < COLL_OP_USER_MAX; i++) {
    if (ops->op[i].used)
      continue;
    *handle = (coll_op)(COLL_OP_USER_BASE + i);
    ops->op[i] = (colli_user_op){.used = true};
    return &ops->op[i];
  }
  return NULL;
}

bool colli_ops_remove(colli_ops *ops, int op) {
  if (!colli_ops_find(ops, op))
    return false;
  ops->op[op - COLL_OP_USER_BASE] = (colli_user_op){.used = false};
  return true;
}
