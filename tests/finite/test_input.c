/*
 * test_input.c: COLL_CHECK_FINITE finds NaN and infinity of every type wherever they are in the
 * input, and only there, and names rank, operation, element and value.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/prng.h"
#include "libcoll/exec/finite.h"
#include "tests/proc/support_ranks.h"

#define COUNT 5000

/* ---- the search ------------------------------------------------------------------------------ */

/* Whether the bits of a value are those of NaN or infinity. */
static bool is_nonfinite(int type, uint64_t bits) {
  float single;
  double both;
  uint32_t low = (uint32_t)bits;
  switch (type) {
  case COLL_FLOAT16:
    return (bits >> 10 & 31) == 31;
  case COLL_BFLOAT16:
    low = (uint32_t)(bits << 16); /* fall through */
  case COLL_FLOAT32:
    memcpy(&single, &low, 4);
    return !isfinite(single);
  case COLL_FLOAT64:
    memcpy(&both, &bits, 8);
    return !isfinite(both);
  case COLL_FLOAT8_E4M3:
    return bits == 0x7f || bits == 0xff;
  default:
    return (bits >> 2 & 31) == 31; /* float8_e5m2 */
  }
}

static const struct {
  int type;
  size_t bytes;
} types[] = {{COLL_FLOAT16, 2}, {COLL_BFLOAT16, 2},    {COLL_FLOAT32, 4},
             {COLL_FLOAT64, 8}, {COLL_FLOAT8_E4M3, 1}, {COLL_FLOAT8_E5M2, 1}};
#define TYPES (sizeof(types) / sizeof(*types))

/* Random bits: of two or fewer bytes all values, of others often those around the largest. */
static uint64_t some_bits(colli_prng *prng, int type, size_t i) {
  uint64_t bits = colli_prng_below(prng, UINT64_MAX);
  uint64_t top = type == COLL_FLOAT32 ? 0x7f7fffff : 0x7fefffffffffffff;
  if (type != COLL_FLOAT32 && type != COLL_FLOAT64)
    return i;
  return bits % 4 ? bits : (top + bits / 4 % 4) ^ (bits >> 63 << (type == COLL_FLOAT32 ? 31 : 63));
}

Test(finite, every_value) {
  colli_prng prng = {3};
  for (size_t t = 0; t < TYPES; t++)
    for (size_t i = 0; i < 1 << 16; i++) {
      uint64_t bits = some_bits(&prng, types[t].type, i);
      bits &= ~0ull >> (64 - 8 * types[t].bytes);
      size_t index = 99;
      bool found = colli_find_nonfinite(types[t].type, &bits, 1, &index);
      cr_assert_eq(found, is_nonfinite(types[t].type, bits), "type %d, %llx", types[t].type,
                   (unsigned long long)bits);
      cr_assert_eq(index, found ? 0 : 99);
    }
}

/* The first of two, anywhere, in vectors of any length, at any address. */
Test(finite, every_place) {
  static unsigned char memory[8 * 20000 + 16];
  colli_prng prng = {4};
  for (size_t t = 0; t < TYPES; t++)
    for (int i = 0; i < 2000; i++) {
      size_t bytes = types[t].bytes, count = 1 + colli_prng_below(&prng, i % 10 ? 100 : 20000);
      unsigned char *at = memory + colli_prng_below(&prng, 16);
      size_t first = colli_prng_below(&prng, count);
      size_t other = first + colli_prng_below(&prng, count - first), index = 0;
      memset(at, 0x33, count * bytes);
      cr_assert(!colli_find_nonfinite(types[t].type, at, count, &index));
      memset(at + other * bytes, 0xff, bytes);
      memset(at + first * bytes, 0xff, bytes);
      cr_assert(colli_find_nonfinite(types[t].type, at, count, &index));
      cr_assert_eq(index, first, "type %d, %zu of %zu", types[t].type, first, count);
    }
}

Test(finite, texts) {
  float values[] = {NAN, INFINITY, -INFINITY};
  coll_float64_loc pairs[] = {{1, -1}, {-INFINITY, 5}};
  coll_float32_loc64 far[] = {{1, -1}, {2, INT64_MAX}, {-INFINITY, 5}};
  uint8_t small[] = {0x7f, 0x7c, 0xfc};
  int64_t ones[] = {-1, -1};
  size_t index;
  cr_expect_str_eq(colli_nonfinite_text(COLL_FLOAT32, values, 0), "nan");
  cr_expect_str_eq(colli_nonfinite_text(COLL_FLOAT32, values, 1), "inf");
  cr_expect_str_eq(colli_nonfinite_text(COLL_FLOAT32, values, 2), "-inf");
  cr_expect_str_eq(colli_nonfinite_text(COLL_FLOAT8_E4M3, small, 0), "nan");
  cr_expect_str_eq(colli_nonfinite_text(COLL_FLOAT8_E5M2, small, 0), "nan");
  cr_expect_str_eq(colli_nonfinite_text(COLL_FLOAT8_E5M2, small, 1), "inf");
  cr_expect_str_eq(colli_nonfinite_text(COLL_FLOAT8_E5M2, small, 2), "-inf");
  cr_expect(colli_find_nonfinite(COLL_FLOAT64_LOC, pairs, 2, &index) && index == 1);
  cr_expect_str_eq(colli_nonfinite_text(COLL_FLOAT64_LOC, pairs, 1), "-inf");
  cr_expect(colli_find_nonfinite(COLL_FLOAT32_LOC64, far, 3, &index) && index == 2);
  cr_expect_str_eq(colli_nonfinite_text(COLL_FLOAT32_LOC64, far, 2), "-inf");
  cr_expect(!colli_find_nonfinite(COLL_INT64, ones, 2, &index));
  cr_expect(!colli_find_nonfinite(COLL_TYPE_USER(8), ones, 2, &index));
}

/* ---- in communicators ------------------------------------------------------------------------ */

/* How rank 1 comes to have an element that is not finite, in operation 3. */
typedef enum form { BLOCKING, SHORT, NONBLOCKING, PERSISTENT, GROUP, SPLIT, FORMS } form;

/* Where all ranks have returned from the operation before the one that fails: a failure also ends
 * what others are still in. */
typedef struct scene {
  form form;
  pthread_barrier_t returned;
} scene;

/* One all-reduce. */
static coll_status reduce(coll_comm *comm, form f, const float *in, float *out) {
  size_t count = f == SHORT ? 3 : COUNT;
  coll_request *request = NULL;
  coll_status status;
  if (f == NONBLOCKING) {
    status = coll_iallreduce(in, out, count, COLL_FLOAT32, COLL_SUM, comm, &request);
    return status == COLL_OK ? coll_wait(&request, -1) : status;
  }
  if (f == PERSISTENT) {
    status = coll_allreduce_init(in, out, count, COLL_FLOAT32, COLL_SUM, comm, &request);
    if (status == COLL_OK)
      status = coll_start(request);
    if (status == COLL_OK)
      status = coll_wait(&request, -1);
    if (request)
      coll_request_free(&request);
    return status;
  }
  if (f == GROUP)
    coll_group_start(comm);
  status = coll_allreduce(in, out, count, COLL_FLOAT32, COLL_SUM, comm);
  return f == GROUP && status == COLL_OK ? coll_group_end(comm) : status;
}

/* All ranks get the same error, which says who put what in, and where. */
static int run_error(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  form f = s->form;
  float *in = calloc(2 * COUNT, sizeof(float)), *out = in + COUNT;
  coll_comm *used = comm, *child = NULL;
  coll_error error = COLL_ERROR_INIT;
  (void)nranks;
  RANK_CHECK(in);
  if (f == SPLIT) {
    RANK_OK(coll_comm_split(comm, 0, rank, NULL, &child));
    used = child;
  }
  RANK_CHECK(reduce(used, f, in, out) == COLL_OK);
  RANK_CHECK(reduce(used, f, in, out) == COLL_OK);
  pthread_barrier_wait(&s->returned);
  size_t place = f == SHORT ? 2 : 4321;
  if (rank == 1)
    in[place] = -INFINITY;
  RANK_CHECK(reduce(used, f, in, out) == COLL_ERR_INVALID_ARGUMENT);
  coll_last_error(used, &error);
  char wanted[40];
  snprintf(wanted, sizeof(wanted), "element %zu of", place);
  bool right = error.peer == 1 && error.sequence == 3 && strstr(error.message, wanted) &&
               strstr(error.message, "rank 1 (host") && strstr(error.message, "puts -inf into") &&
               strstr(error.message, "operation 3, allreduce");
  if (!right)
    fprintf(stderr, "form %d, rank %d: %s\n", f, rank, error.message);
  RANK_CHECK(right);
  coll_comm_destroy(&child);
  free(in);
  return 0;
}

Test(finite, error_on_all_ranks, .timeout = 60) {
  setenv("COLL_CHECK_FINITE", "error", 1);
  scene s;
  pthread_barrier_init(&s.returned, NULL, 3);
  for (s.form = 0; s.form < FORMS; s.form++)
    cr_expect_eq(run_threads(3, NULL, run_error, &s), 0, "form %d", s.form);
  pthread_barrier_destroy(&s.returned);
}

/* What is no input is not looked at; of v-forms neither are gaps. */
static int run_no_input(coll_comm *comm, int rank, int nranks, void *arg) {
  float in[8], out[8];
  int32_t ones[4] = {-1, -1, -1, -1}, sums[4];
  size_t counts[2] = {1, 1}, displs[2] = {1, 5};
  (void)nranks;
  for (int i = 0; i < 8; i++)
    in[i] = out[i] = NAN;
  RANK_OK(coll_allreduce(ones, sums, 4, COLL_INT32, COLL_SUM, comm));
  in[1] = in[5] = 1;
  RANK_OK(coll_alltoallv(in, counts, displs, out, counts, displs, COLL_FLOAT32, comm));
  RANK_OK(coll_broadcast(rank == 0 ? &in[1] : out, out, 1, COLL_FLOAT32, 0, comm));
  RANK_OK(coll_reduce(&in[1], out, 1, COLL_FLOAT32, COLL_SUM, 1, comm));
  pthread_barrier_wait(&((scene *)arg)->returned);
  if (rank == 1)
    in[5] = NAN;
  RANK_CHECK(coll_alltoallv(in, counts, displs, out, counts, displs, COLL_FLOAT32, comm) ==
             COLL_ERR_INVALID_ARGUMENT);
  coll_error error = COLL_ERROR_INIT;
  coll_last_error(comm, &error);
  RANK_CHECK(error.peer == 1 && strstr(error.message, "element 5 of"));
  return 0;
}

Test(finite, only_input, .timeout = 60) {
  setenv("COLL_CHECK_FINITE", "error", 1);
  scene s;
  pthread_barrier_init(&s.returned, NULL, 2);
  cr_expect_eq(run_threads(2, NULL, run_no_input, &s), 0);
  pthread_barrier_destroy(&s.returned);
}

/* With `warn` operations run, and rank 1 says once that it was the first. */
static int run_warn(coll_comm *comm, int rank, int nranks, void *arg) {
  float *in = calloc(2 * COUNT, sizeof(float)), *out = in + COUNT;
  (void)nranks;
  RANK_CHECK(in && dup2(*(const int *)arg, STDERR_FILENO) >= 0);
  if (rank == 1)
    in[7] = NAN;
  for (int i = 0; i < 3; i++) {
    RANK_CHECK(coll_allreduce(in, out, COUNT, COLL_FLOAT32, COLL_SUM, comm) == COLL_OK);
    RANK_CHECK(isnan(out[7]) && out[8] == 0);
  }
  free(in);
  return 0;
}

Test(finite, warn_once, .timeout = 60) {
  FILE *log = tmpfile();
  cr_assert_not_null(log);
  int fd = fileno(log);
  setenv("COLL_CHECK_FINITE", "warn", 1);
  cr_assert_eq(run_processes(3, NULL, run_warn, &fd, 30, NULL), 0);
  char line[2000];
  int lines = 0;
  rewind(log);
  while (fgets(line, sizeof(line), log)) {
    lines++;
    cr_expect(strstr(line, "libcoll [1] warn: rank 1 (host") && strstr(line, "puts nan into") &&
                  strstr(line, "operation 1, allreduce") && strstr(line, "element 7 of"),
              "%s", line);
  }
  cr_expect_eq(lines, 1);
  fclose(log);
}
