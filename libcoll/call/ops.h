/* ops.h: a communicator's user-defined operations: coll_op_create() and its relatives. */
#ifndef COLLI_CALL_OPS_H
#define COLLI_CALL_OPS_H

#include <stdbool.h>

#include "coll/coll.h"

typedef struct colli_user_op {
  coll_op_fn fn; /* NULL: a pre-multiplied sum */
  void *context;
  bool used;
  bool commutative;
  bool premul;
  coll_type type;          /* of a pre-multiplied sum, which takes only this type */
  unsigned char factor[8]; /* one element of `type` */
} colli_user_op;

/* Copied as a whole from a communicator to those made from it, so that handles stay the same. */
typedef struct colli_ops {
  colli_user_op op[COLL_OP_USER_MAX];
} colli_ops;

/* The operation of a handle, or NULL if there is none. Valid until the operation is freed. */
const colli_user_op *colli_ops_find(const colli_ops *ops, int op);

/*
 * A new operation, to be filled in, and its handle: COLL_OP_USER_BASE plus the lowest free index,
 * so that ranks which create and free in the same order get the same handles without communication.
 * NULL if the table is full.
 */
colli_user_op *colli_ops_add(colli_ops *ops, coll_op *handle);

/* Removes the operation of a handle; false if there is none. */
bool colli_ops_remove(colli_ops *ops, int op);

#endif
