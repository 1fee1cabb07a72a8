/*
 * ops.h: user-defined operations (coll_op_create() and its relatives). A handle is the address of a
 * colli_user_op, so that any communicator of the process finds it without a table or a lock.
 */
#ifndef COLLI_CALL_OPS_H
#define COLLI_CALL_OPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "coll/coll.h"

#define COLLI_OP_NONE    ((coll_op)-1)
#define COLLI_OP_LOWEST  0x10000 /* the kernel maps nothing below (vm.mmap_min_addr) */
#define COLLI_OP_ALIGN   16      /* of memory from malloc() */
#define COLLI_OP_NAME    48
#define COLLI_OP_PREMUL  0u /* the number of all pre-multiplied sums, whose factors may differ */
#define COLLI_OP_NUMBERS (1u << 23) /* so many bits of a tag are for them */

/* Immutable but for its references. */
typedef struct colli_user_op {
  atomic_uint references; /* the handle, plans in caches, calls that are kept */
  uint32_t number;        /* from its name: below COLLI_OP_NUMBERS */
  bool commutative;
  bool premul;
  coll_op_fn fn; /* NULL: a pre-multiplied sum */
  void *context;
  coll_type type;           /* of a pre-multiplied sum, which takes only this type */
  unsigned char factor[8];  /* one element of `type` */
  char name[COLLI_OP_NAME]; /* for messages; longer ones are cut */
} colli_user_op;

/* A new operation with one reference, all else 0; NULL if out of memory. */
colli_user_op *colli_user_op_make(void);

/* The handle of an operation. */
static inline coll_op colli_user_op_handle(const colli_user_op *user) {
  return (coll_op)(intptr_t)user;
}

/* The operation of a handle; NULL for predefined ones and for numbers that no handle can be. */
static inline colli_user_op *colli_user_op_of(coll_op op) {
  return op >= COLLI_OP_LOWEST && op % COLLI_OP_ALIGN == 0 ? (colli_user_op *)(intptr_t)op : NULL;
}

/* Adds a reference, unless `user` is NULL. */
void colli_user_op_retain(colli_user_op *user);

/* Drops one, and with the last one the operation. NULL: does nothing. */
void colli_user_op_release(colli_user_op *user);

/* The number of an operation: equal names and equal order, and in practice only these, give equal
 * numbers. */
uint32_t colli_user_op_number(const char *name, bool commutative);

/* What colli_tag_put_op() takes for an operation. */
uint32_t colli_user_op_code(coll_op op);

#endif
