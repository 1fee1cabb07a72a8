/* test_ops.c: creating, inheriting and freeing user-defined operations, and what is refused. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

#include "libcoll/comm/comm.h"

#define NO_OP ((coll_op)-1)

/* An operation that is never called here. */
static void unused_op(const void *left, const void *right, void *result, size_t count,
                      coll_type type, void *context) {
  (void)left, (void)right, (void)result, (void)count, (void)type, (void)context;
}

/* Another one. */
static void other_op(const void *left, const void *right, void *result, size_t count,
                     coll_type type, void *context) {
  unused_op(right, left, result, count, type, context);
}

/* A communicator with one rank. */
static coll_comm *alone(void) {
  coll_comm *comm = NULL;
  cr_assert_eq(coll_comm_create_local(&comm, 1, NULL), COLL_OK);
  return comm;
}

/* Whether the last failure has this status, names `operation`, and contains `words`. */
static bool says(const coll_comm *comm, coll_status status, const char *operation,
                 const char *words) {
  coll_error error = COLL_ERROR_INIT;
  coll_last_error(comm, &error);
  return error.status == status && strcmp(error.operation, operation) == 0 &&
         strstr(error.message, words) != NULL;
}

Test(ops, a_created_operation_is_found_and_keeps_what_it_was_given) {
  coll_comm *comm = alone();
  coll_op a, b;
  int context;
  cr_assert_null(colli_ops_find(&comm->calls.ops, COLL_OP_USER_BASE));
  cr_assert_eq(coll_op_create(comm, unused_op, &context, 2, &a), COLL_OK);
  cr_assert_eq(coll_op_create(comm, other_op, NULL, 0, &b), COLL_OK);
  cr_assert_eq((int)a, COLL_OP_USER_BASE);
  cr_assert_eq((int)b, COLL_OP_USER_BASE + 1);
  const colli_user_op *first = colli_ops_find(&comm->calls.ops, (int)a),
                      *second = colli_ops_find(&comm->calls.ops, (int)b);
  cr_assert(first->fn == unused_op && first->context == &context);
  cr_assert(first->commutative && !first->premul);
  cr_assert(second->fn == other_op && second->context == NULL);
  cr_assert(!second->commutative && !second->premul);
  coll_comm_destroy(&comm);
}

Test(ops, no_other_number_is_an_operation) {
  coll_comm *comm = alone();
  coll_op op;
  for (int i = 0; i < COLL_OP_USER_MAX; i++)
    cr_assert_eq(coll_op_create(comm, unused_op, NULL, 1, &op), COLL_OK);
  static const int numbers[] = {-1,
                                0,
                                COLL_MAXLOC,
                                COLL_OP_COUNT,
                                COLL_OP_USER_BASE - 1,
                                COLL_OP_USER_BASE + COLL_OP_USER_MAX,
                                INT32_MAX,
                                INT32_MIN};
  for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
    cr_assert_null(colli_ops_find(&comm->calls.ops, numbers[i]), "%d", numbers[i]);
  coll_comm_destroy(&comm);
}

Test(ops, the_lowest_free_handle_is_given) {
  coll_comm *comm = alone();
  coll_op ops[5], again;
  for (int i = 0; i < 5; i++)
    coll_op_create(comm, unused_op, NULL, 1, &ops[i]);
  coll_op third = ops[3], first = ops[1];
  cr_assert_eq(coll_op_free(comm, &ops[3]), COLL_OK);
  cr_assert_eq(coll_op_free(comm, &ops[1]), COLL_OK);
  cr_assert_eq(ops[3], NO_OP);
  cr_assert_null(colli_ops_find(&comm->calls.ops, (int)third));
  cr_assert_eq(coll_op_create(comm, other_op, NULL, 1, &again), COLL_OK);
  cr_assert_eq(again, first);
  cr_assert_eq(coll_op_create(comm, other_op, NULL, 1, &again), COLL_OK);
  cr_assert_eq(again, third);
  cr_assert_eq(coll_op_create(comm, other_op, NULL, 1, &again), COLL_OK);
  cr_assert_eq((int)again, COLL_OP_USER_BASE + 5);
  coll_comm_destroy(&comm);
}

Test(ops, no_more_than_there_is_room_for) {
  coll_comm *comm = alone();
  coll_op ops[COLL_OP_USER_MAX], more = COLL_SUM;
  float factor = 2;
  for (int i = 0; i < COLL_OP_USER_MAX; i++)
    cr_assert_eq(coll_op_create(comm, unused_op, NULL, 1, &ops[i]), COLL_OK);
  cr_assert_eq(coll_op_create(comm, unused_op, NULL, 1, &more), COLL_ERR_INVALID_USAGE);
  cr_assert(says(comm, COLL_ERR_INVALID_USAGE, "op_create", "coll_op_free"));
  cr_assert_eq(more, NO_OP);
  cr_assert_eq(coll_op_create_premul_sum(comm, &factor, COLL_FLOAT32, &more),
               COLL_ERR_INVALID_USAGE);
  cr_assert(says(comm, COLL_ERR_INVALID_USAGE, "op_create_premul_sum", "coll_op_free"));
  cr_assert_eq(coll_op_free(comm, &ops[7]), COLL_OK);
  cr_assert_eq(coll_op_create_premul_sum(comm, &factor, COLL_FLOAT32, &more), COLL_OK);
  cr_assert_eq((int)more, COLL_OP_USER_BASE + 7);
  coll_comm_destroy(&comm);
}

Test(ops, a_premultiplied_sum_copies_its_factor) {
  coll_comm *comm = alone();
  unsigned char factor[8] = {1, 2, 3, 4, 5, 6, 7, 8}, want[8];
  for (int type = COLL_INT8; type <= COLL_FLOAT8_E5M2; type++) {
    coll_op op;
    memset(want, 0, 8);
    memcpy(want, factor, coll_type_bytes((coll_type)type));
    cr_assert_eq(coll_op_create_premul_sum(comm, factor, (coll_type)type, &op), COLL_OK);
    const colli_user_op *user = colli_ops_find(&comm->calls.ops, (int)op);
    cr_assert(user->premul && user->commutative && !user->fn);
    cr_assert_eq((int)user->type, type);
    cr_assert_eq(memcmp(user->factor, want, 8), 0, "type %d", type);
  }
  coll_comm_destroy(&comm);
}

Test(ops, what_cannot_be_multiplied_is_refused) {
  coll_comm *comm = alone();
  double factor[2] = {0};
  static const int types[] = {-1, COLL_INT32_LOC, COLL_FLOAT64_LOC, COLL_TYPE_COUNT,
                              (int)COLL_TYPE_USER(4)};
  for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
    coll_op op = COLL_SUM;
    cr_assert_eq(coll_op_create_premul_sum(comm, factor, (coll_type)types[i], &op),
                 COLL_ERR_INVALID_ARGUMENT);
    cr_assert(says(comm, COLL_ERR_INVALID_ARGUMENT, "op_create_premul_sum", "multiplied"));
    cr_assert_eq(op, NO_OP);
  }
  cr_assert_null(colli_ops_find(&comm->calls.ops, COLL_OP_USER_BASE));
  coll_comm_destroy(&comm);
}

Test(ops, bad_pointers_are_refused) {
  coll_comm *comm = alone();
  coll_op op = COLL_SUM;
  int factor = 1;
  cr_assert_eq(coll_op_create(NULL, unused_op, NULL, 1, &op), COLL_ERR_INVALID_ARGUMENT);
  cr_assert_eq(coll_op_create_premul_sum(NULL, &factor, COLL_INT32, &op),
               COLL_ERR_INVALID_ARGUMENT);
  cr_assert_eq(coll_op_free(NULL, &op), COLL_ERR_INVALID_ARGUMENT);
  cr_assert_eq(coll_op_create(comm, NULL, NULL, 1, &op), COLL_ERR_INVALID_ARGUMENT);
  cr_assert(says(comm, COLL_ERR_INVALID_ARGUMENT, "op_create", "fn is NULL"));
  cr_assert_eq(coll_op_create(comm, unused_op, NULL, 1, NULL), COLL_ERR_INVALID_ARGUMENT);
  cr_assert(says(comm, COLL_ERR_INVALID_ARGUMENT, "op_create", "op is NULL"));
  cr_assert_eq(coll_op_create_premul_sum(comm, NULL, COLL_INT32, &op), COLL_ERR_INVALID_ARGUMENT);
  cr_assert(says(comm, COLL_ERR_INVALID_ARGUMENT, "op_create_premul_sum", "factor is NULL"));
  cr_assert_eq(coll_op_create_premul_sum(comm, &factor, COLL_INT32, NULL),
               COLL_ERR_INVALID_ARGUMENT);
  cr_assert(says(comm, COLL_ERR_INVALID_ARGUMENT, "op_create_premul_sum", "op is NULL"));
  cr_assert_eq(coll_op_free(comm, NULL), COLL_ERR_INVALID_ARGUMENT);
  cr_assert(says(comm, COLL_ERR_INVALID_ARGUMENT, "op_free", "op is NULL"));
  coll_comm_destroy(&comm);
}

Test(ops, only_what_was_created_can_be_freed_and_once) {
  coll_comm *comm = alone();
  coll_op op, copy, sum = COLL_SUM;
  coll_op_create(comm, unused_op, NULL, 1, &op);
  copy = op;
  cr_assert_eq(coll_op_free(comm, &sum), COLL_ERR_INVALID_ARGUMENT);
  cr_assert_eq(sum, COLL_SUM);
  cr_assert_eq(coll_op_free(comm, &op), COLL_OK);
  cr_assert_eq(coll_op_free(comm, &op), COLL_ERR_INVALID_ARGUMENT);
  cr_assert_eq(coll_op_free(comm, &copy), COLL_ERR_INVALID_ARGUMENT);
  cr_assert(says(comm, COLL_ERR_INVALID_ARGUMENT, "op_free", "256"));
  coll_comm_destroy(&comm);
}

Test(ops, a_child_has_what_its_parent_had) {
  coll_comm *parent = alone(), *child = alone();
  coll_op a, b, later;
  float factor = 0.5f;
  coll_op_create(parent, unused_op, parent, 0, &a);
  coll_op_create_premul_sum(parent, &factor, COLL_FLOAT32, &b);
  child->calls.ops = parent->calls.ops;
  coll_op_free(parent, &(coll_op){a});
  coll_op_create(parent, other_op, NULL, 1, &later);
  const colli_user_op *first = colli_ops_find(&child->calls.ops, (int)a),
                      *second = colli_ops_find(&child->calls.ops, (int)b);
  cr_assert(first->fn == unused_op && first->context == parent && !first->commutative);
  cr_assert(second->premul && memcmp(second->factor, &factor, sizeof(factor)) == 0);
  coll_comm_destroy(&parent);
  cr_assert_eq(colli_ops_find(&child->calls.ops, (int)a), first);
  coll_comm_destroy(&child);
}

Test(ops, sizes_of_all_types) {
  static const size_t bytes[COLL_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 8,  8, 2,
                                                2, 4, 8, 1, 1, 8, 16, 8, 16};
  for (int type = 0; type < COLL_TYPE_COUNT; type++)
    cr_assert_eq(coll_type_bytes((coll_type)type), bytes[type], "type %d", type);
  cr_assert_eq(sizeof(coll_int32_loc), coll_type_bytes(COLL_INT32_LOC));
  cr_assert_eq(sizeof(coll_int64_loc), coll_type_bytes(COLL_INT64_LOC));
  cr_assert_eq(sizeof(coll_float32_loc), coll_type_bytes(COLL_FLOAT32_LOC));
  cr_assert_eq(sizeof(coll_float64_loc), coll_type_bytes(COLL_FLOAT64_LOC));
  cr_assert_eq(coll_type_bytes(COLL_TYPE_USER(1)), 1);
  cr_assert_eq(coll_type_bytes(COLL_TYPE_USER(65536)), 65536);
  cr_assert_eq(coll_type_bytes(COLL_TYPE_USER(COLL_TYPE_USER_BYTES_MAX)), 1 << 30);
  cr_assert_eq((int)COLL_TYPE_USER(COLL_TYPE_USER_BYTES_MAX), (int)COLL_TYPE_USER_LAST);
  cr_assert_eq(coll_type_bytes(COLL_TYPE_USER(0)), 0);
  cr_assert_eq(coll_type_bytes(COLL_TYPE_USER(-1)), 0);
  cr_assert_eq(coll_type_bytes(COLL_TYPE_USER(COLL_TYPE_USER_BYTES_MAX + (size_t)1)), 0);
  cr_assert_eq(coll_type_bytes(COLL_TYPE_USER(((size_t)1 << 32) + 5)), 0);
  static const int none[] = {-1,
                             COLL_TYPE_COUNT,
                             COLL_TYPE_USER_BASE,
                             COLL_TYPE_USER_BASE + COLL_TYPE_USER_BYTES_MAX + 1,
                             INT32_MAX,
                             INT32_MIN};
  for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++)
    cr_assert_eq(coll_type_bytes((coll_type)none[i]), 0, "type %d", none[i]);
}
