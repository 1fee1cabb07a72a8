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

/* The operation of a handle, or NULL if there is none such. Valid until it is freed. */
const colli_user_op *colli_ops_find(const coll_comm *comm, int op);

/* Copies the parent's operations into a new child; their handles stay the same. */
void colli_ops_inherit(coll_comm *child, const coll_comm *parent);

#endif
