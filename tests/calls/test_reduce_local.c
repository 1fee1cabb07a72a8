/* test_reduce_local.c: coll_reduce_local() against a plain reference. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "data.h"
#include "number.h"
#include "tests/proc/support_ranks.h"

#define GUARD 64

static const size_t counts[] = {0, 1, 2, 3, 7, 64, 1000, 4099, 300001};
enum { COUNTS = sizeof(counts) / sizeof(counts[0]) };

/* Combines what two ranks would give, from buffers that begin `offset` bytes after an aligned
 * address; true if the result is right and nothing else was written. */
static bool combine(coll_comm *comm, coll_type type, coll_op op, coll_op handle, size_t count,
                    size_t offset) {
  size_t bytes = count * coll_type_bytes(type), all = bytes + 2 * GUARD;
  unsigned char *in = malloc(all), *inout = malloc(all), *aligned = malloc(all);
  cr_assert(in && inout && aligned);
  memset(inout, 0xa5, all);
  data_fill(aligned, count, type, op, 1, 7);
  memcpy(inout + offset, aligned, bytes);
  data_fill(aligned, count, type, op, 0, 7);
  memcpy(in + offset, aligned, bytes);
  bool ok = coll_reduce_local(in + offset, inout + offset, count, type, handle, comm) == COLL_OK &&
            memcmp(in + offset, aligned, bytes) == 0;
  memcpy(aligned, inout + offset, bytes);
  ok &= data_wrong(aligned, count, type, op, 2, 7) == 0;
  for (size_t i = 0; i < all; i++)
    ok &= (i >= offset && i < offset + bytes) || inout[i] == 0xa5;
  free(in);
  free(inout);
  free(aligned);
  return ok;
}

Test(reduce_local, every_type_and_operation, .timeout = 100) {
  for (int type = 0; type < COLL_TYPE_COUNT; type++)
    for (int op = 0; op < COLL_OP_COUNT; op++) {
      if (!case_takes((coll_type)type, (coll_op)op) || op == COLL_AVG)
        continue;
      for (int c = 0; c < COUNTS; c++)
        for (size_t offset = 0; offset < 3; offset++)
          cr_expect(combine(NULL, (coll_type)type, (coll_op)op, (coll_op)op, counts[c], offset),
                    "type %d, op %d, count %zu", type, op, counts[c]);
    }
}

/* An operation that does not commute. */
static void compose(const void *left, const void *right, void *result, size_t count, coll_type type,
                    void *context) {
  size_t bytes = coll_type_bytes(type);
  ++*(int *)context;
  for (size_t i = 0; i < count; i++)
    number_affine((const char *)left + i * bytes, (const char *)right + i * bytes,
                  (char *)result + i * bytes, bytes);
}

static int own_operation(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  coll_op op, premul;
  int calls = 0;
  int64_t factor = 3, a = 4, b = 5;
  coll_comm *child = NULL;
  coll_error error = COLL_ERROR_INIT;
  RANK_OK(coll_op_create("compose", compose, &calls, 0, &op));
  RANK_OK(coll_op_create_premul_sum(&factor, COLL_INT64, &premul));
  RANK_OK(coll_comm_dup(comm, NULL, &child));
  for (int c = 0; c < COUNTS; c++) {
    RANK_CHECK(combine(comm, CASE_TYPE_AFFINE, CASE_OP_AFFINE, op, counts[c], 0));
    RANK_CHECK(combine(child, CASE_TYPE_AFFINE, CASE_OP_AFFINE, op, counts[c], 4));
  }
  RANK_CHECK(calls == 2 * (COUNTS - 1)); /* not for 0 elements */
  RANK_CHECK(coll_reduce_local(&a, &b, 1, COLL_INT64, premul, comm) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_last_error(comm, &error) == COLL_OK && strstr(error.message, "pre-multiplied"));
  RANK_CHECK(combine(NULL, CASE_TYPE_AFFINE, CASE_OP_AFFINE, op, 5, 0));
  RANK_OK(coll_op_free(&op));
  RANK_OK(coll_op_free(&premul));
  RANK_CHECK(coll_reduce_local(&a, &b, 1, COLL_INT64, op, comm) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_last_error(comm, &error) == COLL_OK && strstr(error.message, "coll_op_create"));
  coll_comm_destroy(&child);

  coll_comm_revoke(comm); /* it is no business of other ranks */
  RANK_CHECK(coll_barrier(comm) == COLL_ERR_ABORTED);
  RANK_CHECK(coll_reduce_local(&a, &b, 1, COLL_INT64, COLL_SUM, comm) == COLL_OK && b == 9);
  RANK_CHECK(nranks == 2);
  return 0;
}

Test(reduce_local, own_operation, .timeout = 60) {
  cr_assert_eq(run_threads(2, NULL, own_operation, NULL), 0);
}

/* The same bits as a reduction of two ranks, whatever the bits of the input. */
static int same_bits(coll_comm *comm, int rank, int nranks, void *arg) {
  enum { COUNT = 3001 };
  static const coll_type types[] = {COLL_FLOAT16, COLL_BFLOAT16,    COLL_FLOAT32,
                                    COLL_FLOAT64, COLL_FLOAT8_E4M3, COLL_FLOAT8_E5M2};
  unsigned char in[2][COUNT * 8], want[COUNT * 8];
  (void)arg;
  RANK_CHECK(nranks == 2);
  for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
    for (int op = COLL_SUM; op <= COLL_MAX; op++) {
      for (int r = 0; r < 2; r++)
        data_fill_bytes(in[r], sizeof(in[r]), (uint64_t)(t * 100 + (size_t)op * 10) + (uint64_t)r);
      RANK_OK(coll_allreduce(in[rank], want, COUNT, types[t], (coll_op)op, comm));
      RANK_OK(coll_reduce_local(in[0], in[1], COUNT, types[t], (coll_op)op, NULL));
      RANK_CHECK(memcmp(in[1], want, COUNT * coll_type_bytes(types[t])) == 0);
    }
  return 0;
}

Test(reduce_local, same_bits, .timeout = 60) {
  cr_assert_eq(run_threads(2, NULL, same_bits, NULL), 0);
}

Test(reduce_local, the_same_buffer) {
  int32_t value[3] = {1, -2, 70000};
  cr_assert_eq(coll_reduce_local(value, value, 3, COLL_INT32, COLL_SUM, NULL), COLL_OK);
  cr_assert(value[0] == 2 && value[1] == -4 && value[2] == 140000);
}

Test(reduce_local, bad_arguments) {
  int32_t a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8};
#define REFUSED(...) cr_assert_eq(coll_reduce_local(__VA_ARGS__, NULL), COLL_ERR_INVALID_ARGUMENT)
  REFUSED(NULL, b, 1, COLL_INT32, COLL_SUM);
  REFUSED(a, NULL, 1, COLL_INT32, COLL_SUM);
  REFUSED(a, b, 1, COLL_TYPE_COUNT, COLL_SUM);
  REFUSED(a, b, 1, (coll_type)-1, COLL_SUM);
  REFUSED(a, b, 1, COLL_INT32, COLL_OP_COUNT);
  REFUSED(a, b, 1, COLL_INT32, (coll_op)-1);
  REFUSED(a, b, 1, COLL_INT32, COLL_AVG);
  REFUSED(a, b, 1, COLL_INT32, COLL_MINLOC);
  REFUSED(a, b, 1, COLL_FLOAT32, COLL_BXOR);
  REFUSED(a, b, 1, COLL_TYPE_USER(4), COLL_SUM);
  REFUSED(a, b, SIZE_MAX / 2, COLL_INT32, COLL_SUM);
  REFUSED(a, a + 1, 3, COLL_INT32, COLL_SUM);
  REFUSED(a + 1, a, 3, COLL_INT32, COLL_SUM);
  cr_assert_eq(coll_reduce_local(NULL, NULL, 0, COLL_INT32, COLL_SUM, NULL), COLL_OK);
  cr_assert_eq(coll_reduce_local(a, a + 2, 2, COLL_INT32, COLL_SUM, NULL), COLL_OK);
  cr_assert(a[0] == 1 && a[1] == 2 && a[2] == 4 && a[3] == 6 && b[0] == 5);
}
