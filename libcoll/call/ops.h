/* ops.h: the operations that a communicator has of its own: coll_op_create() and its kin. */
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
  coll_type type;          /* of a pre-multiplied sum, which takes this type alone */
  unsigned char factor[8]; /* one element of `type` */
} colli_user_op;

/* Copied as a whole from a communicator to those made from it: handles stay the same. */
typedef struct colli_ops {
  colli_user_op op[COLL_OP_USER_MAX];
} colli_ops;

/* The operation of a handle, or NULL if there is none such. Valid until it is freed. */
const colli_user_op *colli_ops_find(const colli_ops *ops, int op);

/*
 * A new operation, to be filled in, and its handle: COLL_OP_USER_BASE plus the lowest free index,
 * so that ranks which create and free in the same order have the same handles without talking. NULL
 * if there are as many as there can be.
 */
colli_user_op *colli_ops_add(colli_ops *ops, coll_op *handle);

/* Removes the operation of a handle; false if there is none such. */
bool colli_ops_remove(colli_ops *ops, int op);

#endif
