/* case_ops.c: the operations of cases that are no predefined ones. */
#include <pthread.h>
#include <stdlib.h>

#include "case.h"
#include "number.h"

static void affine(const void *left, const void *right, void *result, size_t count, coll_type type,
                   void *context) {
  size_t bytes = coll_type_bytes(type);
  (void)context;
  for (size_t i = 0; i < count; i++)
    number_affine((const char *)left + bytes * i, (const char *)right + bytes * i,
                  (char *)result + bytes * i, bytes);
}

static void add_bytes(const void *left, const void *right, void *result, size_t count,
                      coll_type type, void *context) {
  (void)context;
  number_add_bytes(left, right, result, count * coll_type_bytes(type));
}

static coll_op affine_op, bytes_op;

/* Makes both operations. */
static void make_ops(void) {
  if (coll_op_create("case affine", affine, NULL, 0, &affine_op) != COLL_OK ||
      coll_op_create("case bytes", add_bytes, NULL, 1, &bytes_op) != COLL_OK)
    abort();
}

static pthread_once_t ops_made = PTHREAD_ONCE_INIT;

coll_op case_affine(void) {
  pthread_once(&ops_made, make_ops);
  return affine_op;
}

coll_op case_bytes(void) {
  pthread_once(&ops_made, make_ops);
  return bytes_op;
}
