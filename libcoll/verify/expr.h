/*
 * expr.h: reduction expressions, each stored once, so that equal expressions have equal ids. Order
 * matters: a op b is not b op a.
 */
#ifndef COLLI_VERIFY_EXPR_H
#define COLLI_VERIFY_EXPR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct colli_expr {
  int32_t left, right; /* ids; of a leaf: its rank, and a mark */
  int32_t chunk;       /* the piece of the vector to which it belongs */
  int16_t pass;
  bool final;   /* complete, and marked so */
  bool ordered; /* contains ranks first .. last from left to right, whatever the parentheses */
  int32_t first, last;
  uint32_t count;  /* leaves */
  uint64_t sum[2]; /* of a random number for each leaf's rank: identifies the ranks in it */
} colli_expr;

typedef struct colli_exprs {
  colli_expr *node;
  int32_t count;
  int32_t capacity;
  int32_t *table; /* ids by hash; -1: free */
  size_t mask;
} colli_exprs;

/* Ids are 0 or more; -1 means out of memory. */
int32_t colli_expr_leaf(colli_exprs *exprs, int rank, int chunk, int pass);
int32_t colli_expr_op(colli_exprs *exprs, int32_t left, int32_t right);
int32_t colli_expr_final(colli_exprs *exprs, int32_t of);

/* Whether the expression contains each of nranks ranks exactly once. */
bool colli_expr_whole(const colli_exprs *exprs, int32_t id, int nranks);

void colli_exprs_free(colli_exprs *exprs);

#endif
