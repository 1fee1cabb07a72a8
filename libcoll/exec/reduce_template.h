/*
 * reduce_template.h: all kernels of one instruction set, included once by each file that is
 * compiled for one. Defines before the include:
 *
 *   COLLI_KERNELS, COLLI_ISA   name of the table, and its colli_isa
 *   COLLI_F16_LANES            absent where float16 has no instructions of its own; else the floats
 *                              of a vector, with
 *     colli_f16v               a vector of COLLI_F16_LANES floats, on which + and * work
 *     colli_f16v_load(p)       widens as many float16 at p
 *     colli_f16v_store(p, v)   rounds them to nearest even
 *     colli_f16v_get(p), colli_f16v_put(p, v)   the same without conversion
 *     colli_f16v_canon(v)      NaN to the canonical NaN
 *     colli_f16v_all(x)        all lanes x
 *   COLLI_HAS_SHORTS           sum_f16, prod_f16, sum_bf16 and prod_bf16 are there already
 *   COLLI_CHEAP_MAX            the larger of two uint32 costs less than to make a NaN canonical
 */
#include "libcoll/exec/reduce_isa.h"
#include "libcoll/exec/reduce_loc.h"
#include "libcoll/exec/reduce_ops.h"

/*
 * Buffers may be equal but do not overlap otherwise, so iterations are independent. The compiler
 * does not know this: it would add a test and fall back to single elements.
 */
#if defined(__clang__)
/* It warns if it cannot vectorise a loop, and it never does without optimisation. */
#pragma clang diagnostic ignored "-Wpass-failed"
#define COLLI_VECTOR _Pragma("clang loop vectorize(assume_safety)")
#else
#define COLLI_VECTOR _Pragma("GCC ivdep")
#endif

/* Defines kernel `name` for elements `mem`: OP(a, b) to one or two destinations. */
#define COLLI_REDUCE(name, mem, OP)                                                                \
  static void name(void *dst, void *dst2, const void *a, const void *b, size_t count) {            \
    colli_mem_##mem *d = dst, *d2 = dst2;                                                          \
    const colli_mem_##mem *x = a, *y = b;                                                          \
    if (!d2) {                                                                                     \
      COLLI_VECTOR for (size_t i = 0; i < count; i++) d[i] = (colli_mem_##mem)OP(x[i], y[i]);      \
      return;                                                                                      \
    }                                                                                              \
    COLLI_VECTOR for (size_t i = 0; i < count; i++) {                                              \
      colli_mem_##mem r = (colli_mem_##mem)OP(x[i], y[i]);                                         \
      d[i] = r;                                                                                    \
      d2[i] = r;                                                                                   \
    }                                                                                              \
  }

/* Defines how a float32 kernel with operator `op` handles a block; STORE stores the results.
 * Returns the bits of the largest result, without the sign, shifted up by one. */
#define COLLI_BLOCK(name, op, STORE)                                                               \
  static uint32_t name(colli_mem_f32 *d, colli_mem_f32 *d2, const colli_mem_f32 *x,                \
                       const colli_mem_f32 *y, size_t count) {                                     \
    uint32_t largest = 0;                                                                          \
    (void)d2;                                                                                      \
    COLLI_VECTOR for (size_t i = 0; i < count; i++) {                                              \
      float r = x[i] op y[i];                                                                      \
      uint32_t size = colli_bits_of_f32(r) << 1;                                                   \
      largest = size > largest ? size : largest;                                                   \
      STORE;                                                                                       \
    }                                                                                              \
    return largest;                                                                                \
  }

/*
 * Defines a float32 kernel like COLLI_REDUCE with operator `op`, block by block. If the largest
 * result is not above infinity, the block has no NaN, as usual.
 */
#define COLLI_REDUCE_BLOCKS(name, op)                                                              \
  COLLI_BLOCK(name##_one, op, d[i] = r)                                                            \
  COLLI_BLOCK(name##_two, op, d[i] = d2[i] = r)                                                    \
  static void name(void *dst, void *dst2, const void *a, const void *b, size_t count) {            \
    enum { BLOCK = 1024 };                                                                         \
    colli_mem_f32 *d = dst, *d2 = dst2;                                                            \
    const colli_mem_f32 *x = a, *y = b;                                                            \
    for (size_t some; count > 0; count -= some, x += some, y += some, d += some) {                 \
      some = count < BLOCK ? count : BLOCK;                                                        \
      uint32_t largest = d2 ? name##_two(d, d2, x, y, some) : name##_one(d, NULL, x, y, some);     \
      if (__builtin_expect(largest > COLLI_INF_F32 << 1, 0)) {                                     \
        COLLI_VECTOR for (size_t i = 0; i < some; i++) d[i] = colli_canon_f32(d[i]);               \
        if (d2)                                                                                    \
          memcpy(d2, d, some * sizeof(*d));                                                        \
      }                                                                                            \
      d2 = d2 ? d2 + some : NULL;                                                                  \
    }                                                                                              \
  }

/* Defines the averaging of elements `mem`: each becomes OP(element, factor). */
#define COLLI_AVERAGE(name, mem, factor_type, factor, OP)                                          \
  static void name(void *buf, size_t count, int nranks) {                                          \
    colli_mem_##mem *x = buf;                                                                      \
    const factor_type f = factor;                                                                  \
    COLLI_VECTOR for (size_t i = 0; i < count; i++) x[i] = (colli_mem_##mem)OP(x[i], f);           \
  }

/* The factor that replaces a division by n; n = 1 leaves numbers unchanged. */
#define COLLI_INVERSE_F32(n) ((n) == 1 ? 1.0f : 1.0f / (float)(n) * (1 + 0x1p-22f))
#define COLLI_INVERSE_F64(n) ((n) == 1 ? 1.0 : 1.0 / (n) * (1 + 0x1p-51))

/* Defines the averaging of integers of 64 bits. */
#define COLLI_AVERAGE_64(name, mem, OP)                                                            \
  static void name(void *buf, size_t count, int nranks) {                                          \
    colli_mem_##mem *x = buf;                                                                      \
    if (nranks == 1)                                                                               \
      return;                                                                                      \
    const colli_divisor by = colli_divisor_for((uint64_t)nranks);                                  \
    for (size_t i = 0; i < count; i++)                                                             \
      x[i] = OP(x[i], by);                                                                         \
  }

/* Defines kernel `name` for short floats `mem`, `per` of which make a word. */
#define COLLI_REDUCE_WORDS(name, mem, per, OP)                                                     \
  static void name(void *dst, void *dst2, const void *a, const void *b, size_t count) {            \
    colli_mem_u32 *d = dst, *d2 = dst2;                                                            \
    const colli_mem_u32 *x = a, *y = b;                                                            \
    colli_mem_##mem *e = dst, *e2 = dst2;                                                          \
    const colli_mem_##mem *v = a, *w = b;                                                          \
    const size_t words = count / per;                                                              \
    if (!d2) {                                                                                     \
      COLLI_VECTOR for (size_t i = 0; i < words; i++) d[i] = COLLI_WORD_##per(OP, x[i], y[i]);     \
    } else {                                                                                       \
      COLLI_VECTOR for (size_t i = 0; i < words; i++) {                                            \
        uint32_t r = COLLI_WORD_##per(OP, x[i], y[i]);                                             \
        d[i] = r;                                                                                  \
        d2[i] = r;                                                                                 \
      }                                                                                            \
    }                                                                                              \
    for (size_t i = words * per; i < count; i++) {                                                 \
      colli_mem_##mem r = (colli_mem_##mem)OP(v[i], w[i]);                                         \
      e[i] = r;                                                                                    \
      if (e2)                                                                                      \
        e2[i] = r;                                                                                 \
    }                                                                                              \
  }

/* Defines the averaging of elements `mem`, `per` of which make a word. */
#define COLLI_AVERAGE_WORDS(name, mem, per, factor, OP)                                            \
  static void name(void *buf, size_t count, int nranks) {                                          \
    colli_mem_u32 *x = buf;                                                                        \
    colli_mem_##mem *v = buf;                                                                      \
    const float f = factor;                                                                        \
    const size_t words = count / per;                                                              \
    COLLI_VECTOR for (size_t i = 0; i < words; i++) x[i] = COLLI_WORD_##per##_BY(OP, x[i], f);     \
    for (size_t i = words * per; i < count; i++)                                                   \
      v[i] = (colli_mem_##mem)OP(v[i], f);                                                         \
  }

#define COLLI_MIN_MAX(mem, MIN, MAX)                                                               \
  COLLI_REDUCE(min_##mem, mem, MIN)                                                                \
  COLLI_REDUCE(max_##mem, mem, MAX)

/* Defines kernel `name` for structs `mem`, of which OP picks one. */
#define COLLI_REDUCE_LOC(name, mem)                                                                \
  static void name(void *dst, void *dst2, const void *a, const void *b, size_t count) {            \
    colli_mem_##mem *d = dst, *d2 = dst2;                                                          \
    const colli_mem_##mem *x = a, *y = b;                                                          \
    for (size_t i = 0; i < count; i++) {                                                           \
      colli_mem_##mem r = colli_##name(x[i], y[i]);                                                \
      d[i] = r;                                                                                    \
      if (d2)                                                                                      \
        d2[i] = r;                                                                                 \
    }                                                                                              \
  }

/* Defines the conversions of elements `mem` of a short float to float32 and back. */
#define COLLI_CONVERT(name, mem, NARROW)                                                           \
  static void widen_##name(void *to, const void *from, size_t count) {                             \
    colli_mem_f32 *d = to;                                                                         \
    const colli_mem_##mem *x = from;                                                               \
    COLLI_VECTOR for (size_t i = 0; i < count; i++) d[i] =                                         \
        colli_canon_f32(colli_widen_##name(x[i]));                                                 \
  }                                                                                                \
  static void narrow_##name(void *to, const void *from, size_t count) {                            \
    colli_mem_##mem *d = to;                                                                       \
    const colli_mem_f32 *x = from;                                                                 \
    COLLI_VECTOR for (size_t i = 0; i < count; i++) d[i] = (colli_mem_##mem)NARROW(x[i]);          \
  }

#define COLLI_BITS(mem)                                                                            \
  COLLI_REDUCE(band_##mem, mem, COLLI_BAND)                                                        \
  COLLI_REDUCE(bor_##mem, mem, COLLI_BOR)                                                          \
  COLLI_REDUCE(bxor_##mem, mem, COLLI_BXOR)                                                        \
  COLLI_REDUCE(land_##mem, mem, COLLI_LAND)                                                        \
  COLLI_REDUCE(lor_##mem, mem, COLLI_LOR)                                                          \
  COLLI_REDUCE(lxor_##mem, mem, COLLI_LXOR)

/* Integers */
COLLI_BITS(u8)
COLLI_BITS(u16)
COLLI_BITS(u32)
COLLI_BITS(u64)
COLLI_REDUCE(sum_u8, u8, COLLI_SUM_INT)
COLLI_REDUCE(sum_u16, u16, COLLI_SUM_INT)
COLLI_REDUCE(sum_u32, u32, COLLI_SUM_INT)
COLLI_REDUCE(sum_u64, u64, COLLI_SUM_INT)
COLLI_REDUCE(prod_u8, u8, COLLI_PROD_SMALL)
COLLI_REDUCE(prod_u16, u16, COLLI_PROD_SMALL)
COLLI_REDUCE(prod_u32, u32, COLLI_PROD_INT)
COLLI_REDUCE(prod_u64, u64, COLLI_PROD_INT)
COLLI_MIN_MAX(i8, COLLI_MIN_INT, COLLI_MAX_INT)
COLLI_MIN_MAX(u8, COLLI_MIN_INT, COLLI_MAX_INT)
COLLI_MIN_MAX(i16, COLLI_MIN_INT, COLLI_MAX_INT)
COLLI_MIN_MAX(u16, COLLI_MIN_INT, COLLI_MAX_INT)
COLLI_MIN_MAX(i32, COLLI_MIN_INT, COLLI_MAX_INT)
COLLI_MIN_MAX(u32, COLLI_MIN_INT, COLLI_MAX_INT)
COLLI_MIN_MAX(i64, COLLI_MIN_INT, COLLI_MAX_INT)
COLLI_MIN_MAX(u64, COLLI_MIN_INT, COLLI_MAX_INT)
COLLI_AVERAGE_WORDS(avg_i8, u8, 4, COLLI_INVERSE_F32(nranks), COLLI_AVG_I8)
COLLI_AVERAGE_WORDS(avg_u8, u8, 4, COLLI_INVERSE_F32(nranks), COLLI_AVG_U8)
COLLI_AVERAGE_WORDS(avg_i16, u16, 2, COLLI_INVERSE_F32(nranks), COLLI_AVG_I16)
COLLI_AVERAGE_WORDS(avg_u16, u16, 2, COLLI_INVERSE_F32(nranks), COLLI_AVG_U16)
COLLI_AVERAGE(avg_i32, i32, double, COLLI_INVERSE_F64(nranks), COLLI_AVG_I32)
COLLI_AVERAGE(avg_u32_by, u32, double, COLLI_INVERSE_F64(nranks), COLLI_AVG_U32)

/* The averaging of uint32: only quotients by 2 and more fit into the type that computes them. */
static void avg_u32(void *buf, size_t count, int nranks) {
  if (nranks > 1)
    avg_u32_by(buf, count, nranks);
}

COLLI_AVERAGE_64(avg_i64, i64, colli_avg_i64)
COLLI_AVERAGE_64(avg_u64, u64, colli_avg_u64)

/* Floats */
#ifdef COLLI_CHEAP_MAX
COLLI_REDUCE_BLOCKS(sum_f32, +)
COLLI_REDUCE_BLOCKS(prod_f32, *)
#else
COLLI_REDUCE(sum_f32, f32, COLLI_SUM_F32)
COLLI_REDUCE(prod_f32, f32, COLLI_PROD_F32)
#endif
COLLI_MIN_MAX(f32, colli_min_f32, colli_max_f32)
COLLI_AVERAGE(avg_f32, f32, float, 1.0f / (float)nranks, COLLI_AVG_F32)
COLLI_REDUCE(sum_f64, f64, COLLI_SUM_F64)
COLLI_REDUCE(prod_f64, f64, COLLI_PROD_F64)
COLLI_MIN_MAX(f64, colli_min_f64, colli_max_f64)
COLLI_AVERAGE(avg_f64, f64, double, nranks, COLLI_AVG_F64)

#ifndef COLLI_HAS_SHORTS
COLLI_REDUCE_WORDS(sum_bf16, u16, 2, COLLI_SUM_BF16)
COLLI_REDUCE_WORDS(prod_bf16, u16, 2, COLLI_PROD_BF16)
#endif
COLLI_REDUCE(min_bf16, u16, COLLI_MIN_BF16)
COLLI_REDUCE(max_bf16, u16, COLLI_MAX_BF16)
COLLI_AVERAGE_WORDS(avg_bf16, u16, 2, 1.0f / (float)nranks, COLLI_AVG_BF16)
COLLI_CONVERT(bf16, u16, colli_narrow_bf16)

#define COLLI_FLOAT8(name, NAME)                                                                   \
  COLLI_REDUCE(min_##name, u8, COLLI_MIN_##NAME)                                                   \
  COLLI_REDUCE(max_##name, u8, COLLI_MAX_##NAME)                                                   \
  COLLI_AVERAGE_WORDS(avg_##name, u8, 4, 1.0f / (float)nranks, COLLI_AVG_##NAME)                   \
  COLLI_CONVERT(name, u8, colli_narrow_##name)
COLLI_FLOAT8(e4m3, E4M3)
COLLI_FLOAT8(e5m2, E5M2)

COLLI_REDUCE(min_f16, u16, COLLI_MIN_F16)
COLLI_REDUCE(max_f16, u16, COLLI_MAX_F16)
#ifndef COLLI_F16_LANES
COLLI_REDUCE_WORDS(sum_f16, u16, 2, COLLI_SUM_F16)
COLLI_REDUCE_WORDS(prod_f16, u16, 2, COLLI_PROD_F16)
COLLI_REDUCE_WORDS(sum_e4m3, u8, 4, COLLI_SUM_E4M3)
COLLI_REDUCE_WORDS(prod_e4m3, u8, 4, COLLI_PROD_E4M3)
COLLI_REDUCE_WORDS(sum_e5m2, u8, 4, COLLI_SUM_E5M2)
COLLI_REDUCE_WORDS(prod_e5m2, u8, 4, COLLI_PROD_E5M2)
COLLI_AVERAGE_WORDS(avg_f16, u16, 2, 1.0f / (float)nranks, COLLI_AVG_F16)
COLLI_CONVERT(f16, u16, colli_narrow_f16)
#else
#ifndef COLLI_HAS_SHORTS
/* Defines a float16 kernel: vectors with operator `op`, and single elements with OP at the end. */
#define COLLI_REDUCE_F16(name, op, OP)                                                             \
  static void name(void *dst, void *dst2, const void *a, const void *b, size_t count) {            \
    colli_mem_u16 *d = dst, *d2 = dst2;                                                            \
    const colli_mem_u16 *x = a, *y = b;                                                            \
    size_t i = 0;                                                                                  \
    for (; i + COLLI_F16_LANES <= count; i += COLLI_F16_LANES) {                                   \
      colli_f16v r = colli_f16v_canon(colli_f16v_load(x + i) op colli_f16v_load(y + i));           \
      colli_f16v_store(d + i, r);                                                                  \
      if (d2)                                                                                      \
        colli_f16v_store(d2 + i, r);                                                               \
    }                                                                                              \
    for (; i < count; i++) {                                                                       \
      uint16_t r = (uint16_t)OP(x[i], y[i]);                                                       \
      d[i] = r;                                                                                    \
      if (d2)                                                                                      \
        d2[i] = r;                                                                                 \
    }                                                                                              \
  }
COLLI_REDUCE_F16(sum_f16, +, COLLI_SUM_F16)
COLLI_REDUCE_F16(prod_f16, *, COLLI_PROD_F16)
#endif

/*
 * Defines a kernel of float8 that works in float16: `op` on vectors, then a multiplication by
 * `scale`, which corrects the scale of products.
 */
#define COLLI_REDUCE_F8(name, type, op, scale)                                                     \
  static void name(void *dst, void *dst2, const void *a, const void *b, size_t count) {            \
    enum { BLOCK = 512 };                                                                          \
    colli_mem_u8 *d = dst, *d2 = dst2;                                                             \
    const colli_mem_u8 *x = a, *y = b;                                                             \
    uint16_t u[BLOCK], v[BLOCK];                                                                   \
    while (count > 0) {                                                                            \
      size_t some = count < BLOCK ? count : BLOCK;                                                 \
      COLLI_VECTOR for (size_t i = 0; i < some; i++) u[i] = colli_##type##_to_f16(x[i]);           \
      COLLI_VECTOR for (size_t i = 0; i < some; i++) v[i] = colli_##type##_to_f16(y[i]);           \
      for (size_t i = 0; i < some; i += COLLI_F16_LANES)                                           \
        colli_f16v_store(u + i, (colli_f16v_load(u + i) op colli_f16v_load(v + i)) *               \
                                    colli_f16v_all(scale));                                        \
      COLLI_VECTOR for (size_t i = 0; i < some; i++) d[i] = colli_f16_to_##type(u[i]);             \
      if (d2)                                                                                      \
        memcpy(d2, d, some);                                                                       \
      x += some;                                                                                   \
      y += some;                                                                                   \
      d += some;                                                                                   \
      d2 = d2 ? d2 + some : NULL;                                                                  \
      count -= some;                                                                               \
    }                                                                                              \
  }
COLLI_REDUCE_F8(sum_e4m3, e4m3, +, 1.0f)
COLLI_REDUCE_F8(prod_e4m3, e4m3, *, 0x1p8f)
COLLI_REDUCE_F8(sum_e5m2, e5m2, +, 1.0f)
COLLI_REDUCE_F8(prod_e5m2, e5m2, *, 1.0f)

/* The averaging of float16. */
static void avg_f16(void *buf, size_t count, int nranks) {
  colli_mem_u16 *x = buf;
  const float factor = 1.0f / (float)nranks;
  size_t i = 0;
  for (; i + COLLI_F16_LANES <= count; i += COLLI_F16_LANES)
    colli_f16v_store(x + i, colli_f16v_canon(colli_f16v_load(x + i) * colli_f16v_all(factor)));
  for (; i < count; i++)
    x[i] = (uint16_t)COLLI_AVG_F16(x[i], factor);
}

/* float16 to float32. */
static void widen_f16(void *to, const void *from, size_t count) {
  colli_mem_f32 *d = to;
  const colli_mem_u16 *x = from;
  size_t i = 0;
  for (; i + COLLI_F16_LANES <= count; i += COLLI_F16_LANES)
    colli_f16v_put(d + i, colli_f16v_canon(colli_f16v_load(x + i)));
  for (; i < count; i++)
    d[i] = colli_canon_f32(colli_widen_f16(x[i]));
}

/* And back. */
static void narrow_f16(void *to, const void *from, size_t count) {
  colli_mem_u16 *d = to;
  const colli_mem_f32 *x = from;
  size_t i = 0;
  for (; i + COLLI_F16_LANES <= count; i += COLLI_F16_LANES)
    colli_f16v_store(d + i, colli_f16v_canon(colli_f16v_get(x + i)));
  for (; i < count; i++)
    d[i] = (uint16_t)colli_narrow_f16(x[i]);
}
#endif

/* Minimum and maximum with location */
COLLI_REDUCE_LOC(min_i32_loc, i32_loc)
COLLI_REDUCE_LOC(max_i32_loc, i32_loc)
COLLI_REDUCE_LOC(min_i64_loc, i64_loc)
COLLI_REDUCE_LOC(max_i64_loc, i64_loc)
COLLI_REDUCE_LOC(min_f32_loc, f32_loc)
COLLI_REDUCE_LOC(max_f32_loc, f32_loc)
COLLI_REDUCE_LOC(min_f64_loc, f64_loc)
COLLI_REDUCE_LOC(max_f64_loc, f64_loc)
COLLI_REDUCE_LOC(min_i32_loc64, i32_loc64)
COLLI_REDUCE_LOC(max_i32_loc64, i32_loc64)
COLLI_REDUCE_LOC(min_f32_loc64, f32_loc64)
COLLI_REDUCE_LOC(max_f32_loc64, f32_loc64)

/* Rows of the table; the average begins as a sum. */
#define COLLI_ROW_FLOAT(t)                                                                         \
  {                                                                                                \
    [COLL_SUM] = sum_##t, [COLL_PROD] = prod_##t, [COLL_MIN] = min_##t, [COLL_MAX] = max_##t,      \
    [COLL_AVG] = sum_##t                                                                           \
  }
#define COLLI_ROW_INT(u, t)                                                                        \
  {                                                                                                \
    [COLL_SUM] = sum_##u, [COLL_PROD] = prod_##u, [COLL_MIN] = min_##t, [COLL_MAX] = max_##t,      \
    [COLL_AVG] = sum_##u, [COLL_BAND] = band_##u, [COLL_BOR] = bor_##u, [COLL_BXOR] = bxor_##u,    \
    [COLL_LAND] = land_##u, [COLL_LOR] = lor_##u, [COLL_LXOR] = lxor_##u                           \
  }
#define COLLI_ROW_LOC(t)                                                                           \
  { [COLL_MINLOC] = min_##t, [COLL_MAXLOC] = max_##t }

const colli_kernels COLLI_KERNELS = {
    .isa = COLLI_ISA,
    .reduce = {[COLL_INT8] = COLLI_ROW_INT(u8, i8),
               [COLL_UINT8] = COLLI_ROW_INT(u8, u8),
               [COLL_INT16] = COLLI_ROW_INT(u16, i16),
               [COLL_UINT16] = COLLI_ROW_INT(u16, u16),
               [COLL_INT32] = COLLI_ROW_INT(u32, i32),
               [COLL_UINT32] = COLLI_ROW_INT(u32, u32),
               [COLL_INT64] = COLLI_ROW_INT(u64, i64),
               [COLL_UINT64] = COLLI_ROW_INT(u64, u64),
               [COLL_FLOAT16] = COLLI_ROW_FLOAT(f16),
               [COLL_BFLOAT16] = COLLI_ROW_FLOAT(bf16),
               [COLL_FLOAT32] = COLLI_ROW_FLOAT(f32),
               [COLL_FLOAT64] = COLLI_ROW_FLOAT(f64),
               [COLL_FLOAT8_E4M3] = COLLI_ROW_FLOAT(e4m3),
               [COLL_FLOAT8_E5M2] = COLLI_ROW_FLOAT(e5m2),
               [COLL_INT32_LOC] = COLLI_ROW_LOC(i32_loc),
               [COLL_INT64_LOC] = COLLI_ROW_LOC(i64_loc),
               [COLL_FLOAT32_LOC] = COLLI_ROW_LOC(f32_loc),
               [COLL_FLOAT64_LOC] = COLLI_ROW_LOC(f64_loc),
               [COLL_INT32_LOC64] = COLLI_ROW_LOC(i32_loc64),
               [COLL_FLOAT32_LOC64] = COLLI_ROW_LOC(f32_loc64)},
    .average = {[COLL_INT8] = avg_i8,
                [COLL_UINT8] = avg_u8,
                [COLL_INT16] = avg_i16,
                [COLL_UINT16] = avg_u16,
                [COLL_INT32] = avg_i32,
                [COLL_UINT32] = avg_u32,
                [COLL_INT64] = avg_i64,
                [COLL_UINT64] = avg_u64,
                [COLL_FLOAT16] = avg_f16,
                [COLL_BFLOAT16] = avg_bf16,
                [COLL_FLOAT32] = avg_f32,
                [COLL_FLOAT64] = avg_f64,
                [COLL_FLOAT8_E4M3] = avg_e4m3,
                [COLL_FLOAT8_E5M2] = avg_e5m2},
    .widen = {[COLL_FLOAT16] = widen_f16,
              [COLL_BFLOAT16] = widen_bf16,
              [COLL_FLOAT8_E4M3] = widen_e4m3,
              [COLL_FLOAT8_E5M2] = widen_e5m2},
    .narrow = {[COLL_FLOAT16] = narrow_f16,
               [COLL_BFLOAT16] = narrow_bf16,
               [COLL_FLOAT8_E4M3] = narrow_e4m3,
               [COLL_FLOAT8_E5M2] = narrow_e5m2},
};
