/*
 * Reduction kernels of each instruction set against a reference that computes single elements in a
 * different way: bit for bit, in every form that the executor uses.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/exec/reduce.h"
#include "support_reduce.h"

#define MAX_COUNT 4103 /* elements: more than two blocks of any kernel */
#define GUARD     256  /* guard bytes around each buffer */
#define FRAME     (MAX_COUNT * 16 + 2 * GUARD)

/* Buffers of one test, with guards around what the kernels may touch. */
typedef struct buffers {
  unsigned char a[FRAME], b[FRAME], d[FRAME], d2[FRAME], want[FRAME], before[FRAME];
} buffers;

typedef enum form {
  SEPARATE,
  IN_A,
  IN_B,
  TWO,
  TWO_IN_A,
  TWO_IN_B,
  STREAM, /* past the caches */
  STREAM_IN_A,
  STREAM_IN_B,
  STREAM_TWO,
  FORMS
} form;

/* How many bytes of a buffer are checked for this many bytes of elements. */
static size_t frame_of(size_t bytes) {
  return bytes + 2 * GUARD;
}

/* Whether a buffer holds `want` between untouched guards of 0xa5. */
static bool holds(const unsigned char *buffer, size_t frame, size_t offset, size_t bytes,
                  const unsigned char *want) {
  for (size_t i = 0; i < frame; i++) {
    bool inside = i >= offset && i < offset + bytes;
    if (buffer[i] != (inside ? want[i - offset] : 0xa5))
      return false;
  }
  return true;
}

/* Runs one kernel in one form and compares. */
static void check_kernel(buffers *t, const colli_kernels *k, coll_type type, coll_op op,
                         size_t count, size_t offset, form how) {
  size_t bytes = count * ref_bytes(type), frame = frame_of(bytes);
  memset(t->d, 0xa5, frame);
  memset(t->d2, 0xa5, frame);
  unsigned char *d = t->d + offset, *a = t->a + offset, *b = t->b + GUARD;
  bool in_a = how == IN_A || how == TWO_IN_A || how == STREAM_IN_A;
  bool in_b = how == IN_B || how == TWO_IN_B || how == STREAM_IN_B;
  bool two = how == TWO || how == TWO_IN_A || how == TWO_IN_B || how == STREAM_TWO;
  unsigned char *d2 = two ? t->d2 + offset : NULL;
  colli_reduce_fn reduce = k->reduce[type][op];
  if (in_a || in_b)
    memcpy(d, in_a ? a : b, bytes);
  a = in_a ? d : a;
  b = in_b ? d : b;
  if (how >= STREAM)
    colli_reduce_stream(reduce, d, d2, a, b, count, ref_bytes(type), count % 2);
  else
    reduce(d, d2, a, b, count);
  cr_assert(holds(t->d, frame, offset, bytes, t->want), "%s type %d op %d count %zu form %d",
            colli_isa_name(k->isa), type, (int)op, count, how);
  cr_assert(holds(t->d2, frame, offset, two ? bytes : 0, t->want),
            "%s type %d op %d count %zu form %d: second result", colli_isa_name(k->isa), type,
            (int)op, count, how);
}

/* All sizes and forms of one type and operation, for each instruction set of this processor. */
static void check_all(coll_type type, coll_op op) {
  buffers *t = malloc(sizeof(*t));
  colli_prng prng = {1000u * (unsigned)type + (unsigned)op};
  size_t each = ref_bytes(type);
  for (size_t step = 0; step < 70; step++) {
    /* 0 .. 66 covers each remainder of each vector length; then larger ones. */
    size_t count = step < 67 ? step : (size_t[]){129, 200, MAX_COUNT}[step - 67];
    size_t offset = GUARD - (size_t[]){0, 1, 8, 3}[step % 4];
    ref_fill(&prng, type, t->a + offset, count);
    ref_fill(&prng, type, t->b + GUARD, count);
    for (size_t i = 0; i < count; i++)
      ref_element(type, op, t->want + i * each, t->a + offset + i * each, t->b + GUARD + i * each);
    for (int isa = 0; isa < COLLI_ISA_COUNT; isa++) {
      const colli_kernels *k = colli_kernels_for((colli_isa)isa);
      for (int how = 0; k && how < FORMS; how++)
        check_kernel(t, k, type, op, count, offset, (form)how);
    }
  }
  free(t);
}

/* All operations on the types from `first` to `last`. */
static void check_types(coll_type first, coll_type last) {
  for (coll_type type = first; type <= last; type++)
    for (coll_op op = 0; op < COLL_OP_COUNT; op++)
      if (ref_takes(type, op))
        check_all(type, op);
}

Test(reduce, integers) {
  check_types(COLL_INT8, COLL_UINT64);
}

Test(reduce, floats) {
  check_types(COLL_FLOAT16, COLL_FLOAT64);
}

Test(reduce, float8) {
  check_types(COLL_FLOAT8_E4M3, COLL_FLOAT8_E5M2);
}

Test(reduce, values_with_location) {
  check_types(COLL_INT32_LOC, COLL_FLOAT32_LOC64);
}

/* Kernels that do not exist are absent in every instruction set. */
Test(reduce, the_table_has_what_the_header_says) {
  for (int isa = 0; isa < COLLI_ISA_COUNT; isa++) {
    const colli_kernels *k = colli_kernels_for((colli_isa)isa);
    for (coll_type type = 0; k && type < COLL_TYPE_COUNT; type++) {
      for (coll_op op = 0; op < COLL_OP_COUNT; op++)
        cr_assert_eq(k->reduce[type][op] != NULL, ref_takes(type, op), "type %d op %d", type,
                     (int)op);
      cr_assert_eq(k->average[type] != NULL, ref_takes(type, COLL_AVG), "type %d", type);
      cr_assert_eq(k->widen[type] != NULL, ref_is_short(type), "type %d", type);
      cr_assert_eq(k->narrow[type] != NULL, ref_is_short(type), "type %d", type);
    }
  }
}

Test(reduce, either_order_gives_the_same_bits) {
  buffers *t = malloc(sizeof(*t));
  colli_prng prng = {7};
  for (int isa = 0; isa < COLLI_ISA_COUNT; isa++) {
    const colli_kernels *k = colli_kernels_for((colli_isa)isa);
    for (int i = 0; k && i < COLL_TYPE_COUNT * COLL_OP_COUNT; i++) {
      coll_type type = (coll_type)(i / COLL_OP_COUNT);
      colli_reduce_fn reduce = k->reduce[type][i % COLL_OP_COUNT];
      if (!reduce)
        continue;
      ref_fill(&prng, type, t->a, MAX_COUNT);
      ref_fill(&prng, type, t->b, MAX_COUNT);
      reduce(t->d, NULL, t->a, t->b, MAX_COUNT);
      reduce(t->d2, NULL, t->b, t->a, MAX_COUNT);
      cr_assert_eq(memcmp(t->d, t->d2, MAX_COUNT * ref_bytes(type)), 0, "%s type %d op %d",
                   colli_isa_name(k->isa), type, i % COLL_OP_COUNT);
    }
  }
  free(t);
}

/* Minimum and maximum, with location or without, and the bit operations have one result in whatever
 * order ranks are combined, and so have sums of integers. */
Test(reduce, what_does_not_round_is_associative) {
  buffers *t = malloc(sizeof(*t));
  const colli_kernels *k = colli_kernels_best();
  colli_prng prng = {11};
  for (int i = 0; i < COLL_TYPE_COUNT * COLL_OP_COUNT; i++) {
    coll_type type = (coll_type)(i / COLL_OP_COUNT);
    coll_op op = (coll_op)(i % COLL_OP_COUNT);
    colli_reduce_fn reduce = k->reduce[type][op];
    bool rounds = op == COLL_SUM || op == COLL_PROD || op == COLL_AVG;
    if (!reduce || (rounds && type > COLL_UINT64))
      continue;
    ref_fill(&prng, type, t->a, MAX_COUNT);
    ref_fill(&prng, type, t->b, MAX_COUNT);
    ref_fill(&prng, type, t->before, MAX_COUNT);
    reduce(t->d, NULL, t->a, t->b, MAX_COUNT);
    reduce(t->d, NULL, t->d, t->before, MAX_COUNT);
    reduce(t->d2, NULL, t->b, t->before, MAX_COUNT);
    reduce(t->d2, NULL, t->a, t->d2, MAX_COUNT);
    cr_assert_eq(memcmp(t->d, t->d2, MAX_COUNT * ref_bytes(type)), 0, "type %d op %d", type,
                 (int)op);
  }
  free(t);
}

Test(reduce, averages) {
  static const int ns[] = {1, 2, 3, 7, 64, 1000};
  buffers *t = malloc(sizeof(*t));
  colli_prng prng = {42};
  for (coll_type type = 0; type <= COLL_FLOAT8_E5M2; type++)
    for (size_t step = 0; step < 140; step++) {
      size_t count = step < 139 ? step : MAX_COUNT, offset = GUARD - step % 3;
      int n = ns[step % 6];
      size_t bytes = count * ref_bytes(type);
      ref_fill(&prng, type, t->before, count);
      for (size_t i = 0; i < count; i++)
        ref_average(type, t->want + i * ref_bytes(type), t->before + i * ref_bytes(type), n);
      for (int isa = 0; isa < COLLI_ISA_COUNT; isa++) {
        const colli_kernels *k = colli_kernels_for((colli_isa)isa);
        if (!k)
          continue;
        memset(t->d, 0xa5, frame_of(bytes));
        memcpy(t->d + offset, t->before, bytes);
        k->average[type](t->d + offset, count, n);
        cr_assert(holds(t->d, frame_of(bytes), offset, bytes, t->want), "%s type %d count %zu n %d",
                  colli_isa_name(k->isa), type, count, n);
      }
    }
  free(t);
}

/* ---- float8: every pair ---------------------------------------------------------------------- */

/* Values from the specification's tables. */
Test(float8, the_reference_agrees_with_the_specification) {
  cr_assert_eq(ref_widen(COLL_FLOAT8_E4M3, 0x7e), 448);
  cr_assert_eq(ref_widen(COLL_FLOAT8_E4M3, 0x08), 0x1p-6);
  cr_assert_eq(ref_widen(COLL_FLOAT8_E4M3, 0x87), -0.875 * 0x1p-6);
  cr_assert_eq(ref_widen(COLL_FLOAT8_E4M3, 0x01), 0x1p-9);
  cr_assert_eq(ref_widen(COLL_FLOAT8_E5M2, 0x7b), 57344);
  cr_assert_eq(ref_widen(COLL_FLOAT8_E5M2, 0xfc), -(double)INFINITY);
  cr_assert_eq(ref_widen(COLL_FLOAT8_E5M2, 0x04), 0x1p-14);
  cr_assert_eq(ref_widen(COLL_FLOAT8_E5M2, 0x03), 0.75 * 0x1p-14);
  cr_assert_eq(ref_widen(COLL_FLOAT8_E5M2, 0x01), 0x1p-16);
  cr_assert(isnan(ref_widen(COLL_FLOAT8_E4M3, 0xff)) && isnan(ref_widen(COLL_FLOAT8_E5M2, 0x7d)));
}

Test(float8, every_pair_in_every_operation) {
  enum { PAIRS = 65536 };
  static unsigned char a[PAIRS], b[PAIRS], want[PAIRS], got[PAIRS];
  for (unsigned i = 0; i < PAIRS; i++) {
    a[i] = (unsigned char)(i >> 8);
    b[i] = (unsigned char)i;
  }
  for (coll_type type = COLL_FLOAT8_E4M3; type <= COLL_FLOAT8_E5M2; type++)
    for (coll_op op = COLL_SUM; op <= COLL_AVG; op++) {
      for (unsigned i = 0; i < PAIRS; i++)
        ref_element(type, op, &want[i], &a[i], &b[i]);
      for (int isa = 0; isa < COLLI_ISA_COUNT; isa++) {
        const colli_kernels *k = colli_kernels_for((colli_isa)isa);
        if (!k)
          continue;
        k->reduce[type][op](got, NULL, a, b, PAIRS);
        for (unsigned i = 0; i < PAIRS; i++)
          cr_assert_eq(got[i], want[i], "%s type %d op %d: %02x, %02x give %02x, not %02x",
                       colli_isa_name(k->isa), type, (int)op, a[i], b[i], got[i], want[i]);
      }
    }
}

Test(kernels, best_is_one_that_this_processor_has) {
  const colli_kernels *best = colli_kernels_best();
  cr_assert_not_null(best);
  cr_assert_eq(best, colli_kernels_for(best->isa));
  for (int isa = (int)best->isa + 1; isa < COLLI_ISA_COUNT; isa++)
    cr_assert_null(colli_kernels_for((colli_isa)isa));
  cr_assert_null(colli_kernels_for(COLLI_ISA_COUNT));
  cr_assert_str_eq(colli_isa_name(COLLI_ISA_AVX2), "avx2");
}

Test(reduce, copies_past_the_caches) {
  buffers *t = malloc(sizeof(*t));
  colli_prng prng = {7};
  ref_fill(&prng, COLL_INT8, t->b, MAX_COUNT + GUARD);
  for (size_t bytes = 0; bytes <= MAX_COUNT; bytes += bytes < 300 ? 1 : 97)
    for (size_t k = 0; k < 4; k++) {
      size_t offset = GUARD - (size_t[]){0, 1, 8, 3}[k];
      memset(t->d, 0xa5, frame_of(bytes));
      colli_copy_stream(t->d + offset, t->b + k, bytes);
      cr_assert(holds(t->d, frame_of(bytes), offset, bytes, t->b + k), "%zu bytes, offset %zu",
                bytes, offset);
    }
  free(t);
}
