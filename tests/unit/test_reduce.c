/*
 * Reduction kernels of each instruction set against a reference that computes single elements in
 * its own way: bit for bit, with every buffer form that the executor uses.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/prng.h"
#include "libcoll/exec/reduce.h"

#define MOST  4099 /* elements */
#define GUARD 64   /* bytes around each buffer that must stay as they are */
#define FRAME (MOST * 8 + 2 * GUARD)

static const size_t elem_bytes[COLL_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8};

/* ---- the reference ----------------------------------------------------------------------------
 */

/* The value of a small float with `frac` fraction bits and `exp` exponent bits, from its parts. */
static double small_value(unsigned bits, int exp, int frac) {
  int bias = (1 << (exp - 1)) - 1, e = (int)(bits >> frac) & ((1 << exp) - 1);
  double f = bits & ((1u << frac) - 1), sign = bits >> 15 ? -1 : 1;
  if (e == (1 << exp) - 1)
    return f != 0 ? (double)NAN : sign * (double)INFINITY;
  return e == 0 ? sign * ldexp(f, 1 - bias - frac) : sign * ldexp(f + (1 << frac), e - bias - frac);
}

/* The small float nearest to a value, ties to the even one; any NaN gives `nan`. */
static unsigned small_nearest(double value, int exp, int frac, unsigned nan) {
  if (isnan(value))
    return nan;
  unsigned sign = signbit(value) ? 0x8000u : 0, inf = ((1u << exp) - 1) << frac;
  int bias = (1 << (exp - 1)) - 1;
  double size = fabs(value);
  if (isinf(size))
    return sign | inf;
  int e = size > 0 ? ilogb(size) : -10000;
  if (e < 1 - bias)
    e = 1 - bias;
  /* A whole number of steps of this binade; a carry into the next one counts on correctly. */
  double steps = nearbyint(ldexp(size, frac - e));
  double bits = steps + ldexp(e - (1 - bias), frac);
  return sign | (bits >= inf ? inf : (unsigned)bits);
}

static unsigned ref_narrow(coll_type type, double value) {
  return type == COLL_FLOAT16 ? small_nearest(value, 5, 10, 0x7e00)
                              : small_nearest(value, 8, 7, 0x7fc0);
}

static double ref_widen(coll_type type, unsigned bits) {
  return type == COLL_FLOAT16 ? small_value(bits, 5, 10) : small_value(bits, 8, 7);
}

/* One float operation in double or float precision. */
static double ref_float_op(coll_type type, coll_op op, double a, double b) {
  if (op == COLL_MIN || op == COLL_MAX) {
    if (isnan(a) || isnan(b))
      return NAN;
    bool a_less = a < b || (a == b && signbit(a) && !signbit(b));
    return (op == COLL_MIN) == a_less ? a : b;
  }
  if (type == COLL_FLOAT64)
    return op == COLL_PROD ? a * b : a + b;
  return op == COLL_PROD ? (float)((float)a * (float)b) : (float)((float)a + (float)b);
}

/* Reads a float element. */
static double load_float(coll_type type, const unsigned char *p) {
  float f;
  double d;
  uint16_t h;
  if (type == COLL_FLOAT32)
    return memcpy(&f, p, 4), (double)f;
  if (type == COLL_FLOAT64)
    return memcpy(&d, p, 8), d;
  memcpy(&h, p, 2);
  return ref_widen(type, h);
}

/* Writes a float element; NaN as the canonical one. */
static void store_float(coll_type type, unsigned char *p, double value) {
  float f = (float)value;
  uint32_t nan32 = 0x7fc00000;
  uint64_t nan64 = 0x7ff8000000000000;
  if (type == COLL_FLOAT32) {
    memcpy(p, isnan(value) ? (void *)&nan32 : (void *)&f, 4);
  } else if (type == COLL_FLOAT64) {
    memcpy(p, isnan(value) ? (void *)&nan64 : (void *)&value, 8);
  } else {
    uint16_t h = (uint16_t)ref_narrow(type, value);
    memcpy(p, &h, 2);
  }
}

/* Reads an integer element, widened by its sign. */
static __int128 load_int(coll_type type, const unsigned char *p) {
  uint64_t raw = 0;
  memcpy(&raw, p, elem_bytes[type]);
  unsigned bits = (unsigned)elem_bytes[type] * 8;
  bool is_signed = type % 2 == 0;
  if (is_signed && (raw >> (bits - 1)) & 1)
    return (__int128)raw - ((__int128)1 << bits);
  return raw;
}

/* out = a op b for one element. */
static void ref_element(coll_type type, coll_op op, unsigned char *out, const unsigned char *a,
                        const unsigned char *b) {
  if (type >= COLL_FLOAT16) {
    double r = ref_float_op(type, op, load_float(type, a), load_float(type, b));
    store_float(type, out, r);
    return;
  }
  __int128 x = load_int(type, a), y = load_int(type, b), r;
  if (op == COLL_PROD)
    r = (__int128)((unsigned __int128)x * (unsigned __int128)y);
  else if (op == COLL_MIN || op == COLL_MAX)
    r = (op == COLL_MIN) == (x < y) ? x : y;
  else
    r = x + y;
  uint64_t low = (uint64_t)r;
  memcpy(out, &low, elem_bytes[type]);
}

/* ---- data -------------------------------------------------------------------------------------
 */

/* Fills a buffer with random bits, in between values that lie on edges and small whole numbers. */
static void fill(colli_prng *prng, coll_type type, unsigned char *p, size_t count) {
  static const double edges[] = {0.0,         -0.0,     1.0,     -1.0,    INFINITY, -INFINITY,
                                 (double)NAN, 65504.0,  65520.0, 0x1p-24, 0x1p-14,  -0x1p-25,
                                 0x1p-126,    0x1p-149, 3.3e38,  -1e-40,  0.5,      2049.0};
  static const uint64_t ints[] = {0,
                                  1,
                                  ~0ull,
                                  0x80,
                                  0x7f,
                                  0x8000,
                                  0x7fff,
                                  1ull << 31,
                                  (1ull << 31) - 1,
                                  1ull << 63,
                                  (1ull << 63) - 1};
  for (size_t i = 0; i < count; i++) {
    unsigned char *at = p + i * elem_bytes[type];
    uint64_t bits = colli_prng_next(prng);
    unsigned kind = (unsigned)colli_prng_below(prng, 4);
    if (kind == 0 && type >= COLL_FLOAT16)
      store_float(type, at, edges[colli_prng_below(prng, sizeof(edges) / sizeof(*edges))]);
    else if (kind == 0)
      memcpy(at, &ints[colli_prng_below(prng, sizeof(ints) / sizeof(*ints))], elem_bytes[type]);
    else if (kind == 1 && type >= COLL_FLOAT16)
      store_float(type, at, (double)(bits % 2001) / 8 - 125);
    else
      memcpy(at, &bits, elem_bytes[type]);
  }
}

/* Buffers of one test, with guards around what the kernels may touch. */
typedef struct buffers {
  unsigned char a[FRAME], b[FRAME], d[FRAME], d2[FRAME], want[FRAME], before[FRAME];
} buffers;

typedef enum form { SEPARATE, IN_A, IN_B, TWO, TWO_IN_A, TWO_IN_B, FORMS } form;

/* Whether a buffer holds `want` and an untouched frame of 0xa5 around it. */
static bool holds(const unsigned char *frame, size_t offset, size_t bytes,
                  const unsigned char *want) {
  for (size_t i = 0; i < FRAME; i++) {
    bool inside = i >= offset && i < offset + bytes;
    if (frame[i] != (inside ? want[i - offset] : 0xa5))
      return false;
  }
  return true;
}

/* Runs one kernel in one form and compares. */
static void check(buffers *t, const colli_kernels *k, coll_type type, coll_op op, size_t count,
                  size_t offset, form how) {
  size_t bytes = count * elem_bytes[type];
  memset(t->d, 0xa5, FRAME);
  memset(t->d2, 0xa5, FRAME);
  unsigned char *d = t->d + offset, *a = t->a + offset, *b = t->b + GUARD;
  bool in_a = how == IN_A || how == TWO_IN_A, in_b = how == IN_B || how == TWO_IN_B;
  if (in_a || in_b)
    memcpy(d, in_a ? a : b, bytes);
  k->reduce[type][op](d, how >= TWO ? t->d2 + offset : NULL, in_a ? d : a, in_b ? d : b, count);
  cr_assert(holds(t->d, offset, bytes, t->want), "%s type %d op %d count %zu form %d",
            colli_isa_name(k->isa), type, op, count, how);
  cr_assert(holds(t->d2, offset, how >= TWO ? bytes : 0, t->want),
            "%s type %d op %d count %zu form %d: second place", colli_isa_name(k->isa), type, op,
            count, how);
}

/* All sizes and forms of one type and operation, for each instruction set of this processor. */
static void check_all(coll_type type, coll_op op) {
  buffers *t = malloc(sizeof(*t));
  colli_prng prng = {1000u * (unsigned)type + (unsigned)op};
  for (size_t step = 0; step < 70; step++) {
    /* 0 .. 66 covers each remainder of each vector length; then larger ones. */
    size_t count = step < 67 ? step : (size_t[]){200, 1000, MOST}[step - 67];
    size_t offset = GUARD - (size_t[]){0, 1, 8, 3}[step % 4];
    fill(&prng, type, t->a + offset, count);
    fill(&prng, type, t->b + GUARD, count);
    for (size_t i = 0; i < count; i++)
      ref_element(type, op, t->want + i * elem_bytes[type], t->a + offset + i * elem_bytes[type],
                  t->b + GUARD + i * elem_bytes[type]);
    for (int isa = 0; isa < COLLI_ISA_COUNT; isa++) {
      const colli_kernels *k = colli_kernels_for((colli_isa)isa);
      for (int how = 0; k && how < FORMS; how++)
        check(t, k, type, op, count, offset, (form)how);
    }
  }
  free(t);
}

Test(reduce, integers) {
  for (int type = COLL_INT8; type <= COLL_UINT64; type++)
    for (int op = 0; op < COLL_OP_COUNT; op++)
      check_all((coll_type)type, (coll_op)op);
}

Test(reduce, small_floats) {
  for (int type = COLL_FLOAT16; type <= COLL_BFLOAT16; type++)
    for (int op = 0; op < COLL_OP_COUNT; op++)
      check_all((coll_type)type, (coll_op)op);
}

Test(reduce, floats) {
  for (int type = COLL_FLOAT32; type <= COLL_FLOAT64; type++)
    for (int op = 0; op < COLL_OP_COUNT; op++)
      check_all((coll_type)type, (coll_op)op);
}

Test(reduce, either_order_gives_the_same_bits) {
  buffers *t = malloc(sizeof(*t));
  colli_prng prng = {7};
  for (int isa = 0; isa < COLLI_ISA_COUNT; isa++) {
    const colli_kernels *k = colli_kernels_for((colli_isa)isa);
    for (int i = 0; k && i < COLL_TYPE_COUNT * COLL_OP_COUNT; i++) {
      coll_type type = (coll_type)(i / COLL_OP_COUNT);
      fill(&prng, type, t->a, MOST);
      fill(&prng, type, t->b, MOST);
      k->reduce[type][i % COLL_OP_COUNT](t->d, NULL, t->a, t->b, MOST);
      k->reduce[type][i % COLL_OP_COUNT](t->d2, NULL, t->b, t->a, MOST);
      cr_assert_eq(memcmp(t->d, t->d2, MOST * elem_bytes[type]), 0, "%s type %d op %d",
                   colli_isa_name(k->isa), type, i % COLL_OP_COUNT);
    }
  }
  free(t);
}

/* The averages of count elements as coll.h defines them. */
static void ref_average(coll_type type, unsigned char *want, const unsigned char *x, size_t count,
                        int n) {
  for (size_t i = 0; i < count; i++) {
    const unsigned char *p = x + i * elem_bytes[type];
    unsigned char *out = want + i * elem_bytes[type];
    if (type == COLL_FLOAT64) {
      store_float(type, out, load_float(type, p) / n);
    } else if (type >= COLL_FLOAT16) {
      store_float(type, out, (float)load_float(type, p) * (1.0f / (float)n));
    } else {
      uint64_t low = (uint64_t)(load_int(type, p) / n);
      memcpy(out, &low, elem_bytes[type]);
    }
  }
}

Test(reduce, averages) {
  static const int ns[] = {1, 2, 3, 7, 64, 1000};
  buffers *t = malloc(sizeof(*t));
  colli_prng prng = {42};
  for (int type = 0; type < COLL_TYPE_COUNT; type++)
    for (size_t step = 0; step < 200; step++) {
      size_t count = step < 199 ? step : MOST, offset = GUARD - step % 3;
      int n = ns[step % 6];
      size_t bytes = count * elem_bytes[type];
      fill(&prng, (coll_type)type, t->before, count);
      ref_average((coll_type)type, t->want, t->before, count, n);
      for (int isa = 0; isa < COLLI_ISA_COUNT; isa++) {
        const colli_kernels *k = colli_kernels_for((colli_isa)isa);
        if (!k)
          continue;
        memset(t->d, 0xa5, FRAME);
        memcpy(t->d + offset, t->before, bytes);
        k->average[type](t->d + offset, count, n);
        cr_assert(holds(t->d, offset, bytes, t->want), "%s type %d count %zu n %d",
                  colli_isa_name(k->isa), type, count, n);
      }
    }
  free(t);
}

/* ---- conversions ------------------------------------------------------------------------------
 */

/* The library's conversions of a small type. */
static double lib_widen(coll_type type, unsigned bits) {
  return (double)(type == COLL_FLOAT16 ? colli_half_to_float((uint16_t)bits)
                                       : colli_bfloat_to_float((uint16_t)bits));
}
static unsigned lib_narrow(coll_type type, float value) {
  return type == COLL_FLOAT16 ? colli_float_to_half(value) : colli_float_to_bfloat(value);
}

Test(convert, every_small_float_and_back) {
  for (int type = COLL_FLOAT16; type <= COLL_BFLOAT16; type++)
    for (unsigned bits = 0; bits < 65536; bits++) {
      double want = ref_widen((coll_type)type, bits), got = lib_widen((coll_type)type, bits);
      if (isnan(want)) {
        unsigned quiet = type == COLL_FLOAT16 ? 0x200u : 0x40u;
        cr_assert(isnan(got));
        cr_assert_eq(lib_narrow((coll_type)type, (float)got), bits | quiet, "NaN %04x", bits);
        continue;
      }
      cr_assert(want == got && signbit(want) == signbit(got), "%04x: %a, not %a", bits, got, want);
      cr_assert_eq(lib_narrow((coll_type)type, (float)got), bits, "%04x", bits);
    }
}

/* Between two neighbours: the middle goes to the even one, the floats beside it to the nearer. */
Test(convert, every_tie_and_its_neighbours) {
  for (int type = COLL_FLOAT16; type <= COLL_BFLOAT16; type++) {
    unsigned inf = type == COLL_FLOAT16 ? 0x7c00 : 0x7f80;
    for (unsigned bits = 0; bits < inf; bits++) {
      double low = ref_widen((coll_type)type, bits);
      double high = bits + 1 < inf ? ref_widen((coll_type)type, bits + 1)
                                   : ldexp(1, type == COLL_FLOAT16 ? 16 : 128);
      float middle = (float)((low + high) / 2);
      unsigned even = bits + (bits & 1);
      cr_assert_eq(lib_narrow((coll_type)type, middle), even, "%a", (double)middle);
      cr_assert_eq(lib_narrow((coll_type)type, -middle), 0x8000 | even);
      cr_assert_eq(lib_narrow((coll_type)type, nextafterf(middle, 0)), bits);
      cr_assert_eq(lib_narrow((coll_type)type, nextafterf(middle, INFINITY)), bits + 1);
    }
  }
}

Test(convert, random_floats) {
  colli_prng prng = {3};
  for (int i = 0; i < 1000000; i++) {
    uint32_t bits = (uint32_t)colli_prng_next(&prng);
    float value;
    memcpy(&value, &bits, 4);
    if (isnan(value))
      continue;
    cr_assert_eq(colli_float_to_half(value), ref_narrow(COLL_FLOAT16, (double)value), "%a",
                 (double)value);
    cr_assert_eq(colli_float_to_bfloat(value), ref_narrow(COLL_BFLOAT16, (double)value), "%a",
                 (double)value);
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
