/* test_ops.c: creating and freeing user-defined operations, their numbers, and what is refused. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

Test(ops, a_created_operation_keeps_what_it_was_given) {
  coll_op a, b;
  int context;
  char name[] = "first";
  cr_assert_eq(coll_op_create(name, unused_op, &context, 2, &a), COLL_OK);
  cr_assert_eq(coll_op_create("second", other_op, NULL, 0, &b), COLL_OK);
  name[0] = 'x'; /* it was copied */
  colli_user_op *first = colli_user_op_of(a), *second = colli_user_op_of(b);
  cr_assert(first->fn == unused_op && first->context == &context);
  cr_assert(first->commutative && !first->premul);
  cr_assert_str_eq(first->name, "first");
  cr_assert(second->fn == other_op && second->context == NULL);
  cr_assert(!second->commutative && !second->premul);
  cr_assert_eq(coll_op_free(&a), COLL_OK);
  cr_assert_eq(a, NO_OP);
  cr_assert_eq(coll_op_free(&b), COLL_OK);
}

Test(ops, no_other_number_is_an_operation) {
  static const coll_op numbers[] = {NO_OP, 0,     COLL_MAXLOC, COLL_OP_COUNT, 256,
                                    4096,  65535, 65537,       INTPTR_MAX,    INTPTR_MIN};
  for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
    coll_op op = numbers[i];
    cr_assert_null(colli_user_op_of(op), "%jd", (intmax_t)op);
    cr_assert_eq(coll_op_free(&op), COLL_ERR_INVALID_ARGUMENT);
    cr_assert_eq(op, numbers[i]);
  }
}

/* The number of an operation that is made and freed. */
static uint32_t number_of(const char *name, int commutative) {
  coll_op op;
  cr_assert_eq(coll_op_create(name, unused_op, NULL, commutative, &op), COLL_OK);
  uint32_t number = colli_user_op_of(op)->number;
  cr_assert_eq(colli_user_op_code(op), COLLI_TAG_USER_OP_CODE << 16 | number);
  cr_assert_eq(coll_op_free(&op), COLL_OK);
  return number;
}

Test(ops, equal_names_have_equal_numbers) {
  cr_assert_eq(number_of("a", 1), number_of("a", 7));
  cr_assert_neq(number_of("a", 1), number_of("a", 0));
  cr_assert_neq(number_of("a", 1), number_of("aa", 1));
  /* Processes of different builds compare them. */
  cr_assert_eq(number_of("quaternion product", 0), 0x2b57bau);
  cr_assert_eq(number_of("matrix maximum", 1), 0x07a4c6u);
}

static int by_number(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

/* As many pairs of similar names are equal as of random numbers. */
Test(ops, different_names_have_different_numbers) {
  enum { NAMES = 20000 };
  static uint32_t numbers[NAMES];
  int equal = 0;
  for (int i = 0; i < NAMES; i++) {
    char name[32];
    snprintf(name, sizeof(name), "library.operation%d", i / 2);
    numbers[i] = colli_user_op_number(name, i % 2);
    cr_assert(numbers[i] != COLLI_OP_PREMUL && numbers[i] < COLLI_OP_NUMBERS);
  }
  qsort(numbers, NAMES, sizeof(*numbers), by_number);
  for (int i = 1; i < NAMES; i++)
    equal += numbers[i] == numbers[i - 1];
  cr_assert_lt(equal, 60, "%d", equal); /* 24 are to be expected */
}

Test(ops, a_long_name_counts_whole) {
  char name[300], other[300];
  memset(name, 'n', sizeof(name) - 1);
  memcpy(other, name, sizeof(other));
  name[299] = other[299] = 0;
  other[298] = 'm';
  cr_assert_neq(number_of(name, 1), number_of(other, 1));
}

Test(ops, a_premultiplied_sum_copies_its_factor) {
  unsigned char factor[8] = {1, 2, 3, 4, 5, 6, 7, 8}, want[8];
  for (int type = COLL_INT8; type <= COLL_FLOAT8_E5M2; type++) {
    coll_op op;
    memset(want, 0, 8);
    memcpy(want, factor, coll_type_bytes((coll_type)type));
    cr_assert_eq(coll_op_create_premul_sum(factor, (coll_type)type, &op), COLL_OK);
    const colli_user_op *user = colli_user_op_of(op);
    cr_assert(user->premul && user->commutative && !user->fn);
    cr_assert_eq(user->number, COLLI_OP_PREMUL);
    cr_assert_eq((int)user->type, type);
    cr_assert_eq(memcmp(user->factor, want, 8), 0, "type %d", type);
    cr_assert_eq(coll_op_free(&op), COLL_OK);
  }
}

Test(ops, what_cannot_be_multiplied_is_refused) {
  double factor[2] = {0};
  static const int types[] = {-1, COLL_INT32_LOC, COLL_FLOAT32_LOC64, COLL_TYPE_COUNT,
                              (int)COLL_TYPE_USER(4)};
  for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
    coll_op op = COLL_SUM;
    cr_assert_eq(coll_op_create_premul_sum(factor, (coll_type)types[i], &op),
                 COLL_ERR_INVALID_ARGUMENT);
    cr_assert_eq(op, NO_OP);
  }
}

/* Whether a call is refused, and gives no operation. */
#define REFUSED(op, call)                                                                          \
  do {                                                                                             \
    (op) = COLL_SUM;                                                                               \
    cr_assert_eq(call, COLL_ERR_INVALID_ARGUMENT);                                                 \
    cr_assert_eq(op, NO_OP);                                                                       \
  } while (0)

Test(ops, bad_arguments_are_refused) {
  coll_op op;
  int factor = 1;
  REFUSED(op, coll_op_create(NULL, unused_op, NULL, 1, &op));
  REFUSED(op, coll_op_create("", unused_op, NULL, 1, &op));
  REFUSED(op, coll_op_create("a", NULL, NULL, 1, &op));
  REFUSED(op, coll_op_create_premul_sum(NULL, COLL_INT32, &op));
  cr_assert_eq(coll_op_create("a", unused_op, NULL, 1, NULL), COLL_ERR_INVALID_ARGUMENT);
  cr_assert_eq(coll_op_create_premul_sum(&factor, COLL_INT32, NULL), COLL_ERR_INVALID_ARGUMENT);
  cr_assert_eq(coll_op_free(NULL), COLL_ERR_INVALID_ARGUMENT);
  op = NO_OP;
  cr_assert_eq(coll_op_free(&op), COLL_ERR_INVALID_ARGUMENT);
}

/* The references of an operation: its handle's, and those of plans and kept calls. */
static unsigned references(const colli_user_op *user) {
  return atomic_load(&((colli_user_op *)(uintptr_t)user)->references);
}

Test(ops, plans_and_kept_calls_have_references_and_give_them_back) {
  coll_comm *comm = NULL;
  coll_op op;
  int in = 1, out;
  coll_request *request;
  cr_assert_eq(coll_comm_create_local(&comm, 1, NULL), COLL_OK);
  cr_assert_eq(coll_op_create("a", unused_op, NULL, 1, &op), COLL_OK);
  colli_user_op *user = colli_user_op_of(op);
  colli_user_op_retain(user); /* this test's */
  cr_assert_eq(coll_allreduce(&in, &out, 1, COLL_INT32, op, comm), COLL_OK);
  cr_assert_eq(references(user), 3);
  cr_assert_eq(coll_allreduce_init(&in, &out, 1, COLL_INT32, op, comm, &request), COLL_OK);
  cr_assert_eq(references(user), 4);
  cr_assert_eq(coll_group_start(comm), COLL_OK);
  for (int i = 0; i < 3; i++)
    cr_assert_eq(coll_allreduce(&in, &out, 1, COLL_INT32, op, comm), COLL_OK);
  cr_assert_eq(references(user), 7);
  cr_assert_eq(coll_op_free(&op), COLL_OK);
  cr_assert_eq(coll_group_end(comm), COLL_OK);
  cr_assert_eq(references(user), 3);
  cr_assert_eq(coll_request_free(&request), COLL_OK);
  cr_assert_eq(references(user), 2);
  for (size_t count = 1; count <= 2 * COLLI_PLANS; count++) { /* evicts the plan */
    char bytes[2 * COLLI_PLANS];
    cr_assert_eq(coll_broadcast(bytes, bytes, count, COLL_UINT8, 0, comm), COLL_OK);
  }
  cr_assert_eq(references(user), 1);
  coll_op again = colli_user_op_handle(user);
  cr_assert_eq(coll_allreduce_init(&in, &out, 1, COLL_INT32, again, comm, &request), COLL_OK);
  cr_assert_eq(coll_group_start(comm), COLL_OK);
  cr_assert_eq(coll_allreduce(&in, &out, 1, COLL_INT32, again, comm), COLL_OK);
  cr_assert_eq(references(user), 4);
  cr_assert_eq(coll_comm_destroy(&comm), COLL_OK); /* all that is open */
  cr_assert_eq(references(user), 1);
  cr_assert_eq(coll_op_free(&again), COLL_OK);
}

Test(ops, sizes_of_all_types) {
  static const size_t bytes[COLL_TYPE_COUNT] = {1, 1, 2, 2, 4, 4,  8, 8,  2,  2,
                                                4, 8, 1, 1, 8, 16, 8, 16, 16, 16};
  for (int type = 0; type < COLL_TYPE_COUNT; type++)
    cr_assert_eq(coll_type_bytes((coll_type)type), bytes[type], "type %d", type);
  cr_assert_eq(sizeof(coll_int32_loc), coll_type_bytes(COLL_INT32_LOC));
  cr_assert_eq(sizeof(coll_int64_loc), coll_type_bytes(COLL_INT64_LOC));
  cr_assert_eq(sizeof(coll_float32_loc), coll_type_bytes(COLL_FLOAT32_LOC));
  cr_assert_eq(sizeof(coll_float64_loc), coll_type_bytes(COLL_FLOAT64_LOC));
  cr_assert_eq(sizeof(coll_int32_loc64), coll_type_bytes(COLL_INT32_LOC64));
  cr_assert_eq(sizeof(coll_float32_loc64), coll_type_bytes(COLL_FLOAT32_LOC64));
  cr_assert_eq(offsetof(coll_int32_loc64, index), 8);
  cr_assert_eq(offsetof(coll_float32_loc64, index), 8);
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
