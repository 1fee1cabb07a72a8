/*
 * fold_int.c: reductions of integers. Signed types share what wraps around and what works on bits
 * with the unsigned ones, as on the host.
 */
#include "libcoll/gpu/kernels/fold.h"

/* Defines kernel coll_fold_`op`_`type`: OP on elements of `bits` as numbers of type `number`. */
#define COLL_FOLD_INT(op, type, bits, number, OP)                                                  \
  COLL_DEVICE uint##bits##_t op##_##type(uint##bits##_t x, uint##bits##_t y) {                     \
    const number a = (number)x, b = (number)y;                                                     \
    return (uint##bits##_t)OP(a, b);                                                               \
  }                                                                                                \
  COLL_FOLD_BY(op##_##type, bits, 1, op##_##type)

/* The same for a logical operation. A single input becomes 0 or 1 as well. */
#define COLL_FOLD_TRUTH(op, bits, OP)                                                              \
  COLL_DEVICE uint##bits##_t op##_u##bits(uint##bits##_t a, uint##bits##_t b) {                    \
    return (uint##bits##_t)OP(a, b);                                                               \
  }                                                                                                \
  COLL_NEXT(op##_u##bits, bits, op##_u##bits)                                                      \
  COLL_DEVICE coll_vec first_##op##_u##bits(coll_vec x) {                                          \
    return COLL_LANES_##bits(truth_u##bits, x, x);                                                 \
  }                                                                                                \
  COLL_FOLD(op##_u##bits, bits, 1, coll_vec, first_##op##_u##bits, next_##op##_u##bits, COLL_RESULT)

/* Whether an element is not 0. */
#define COLL_TRUTH(bits)                                                                           \
  COLL_DEVICE uint##bits##_t truth_u##bits(uint##bits##_t a, uint##bits##_t b) {                   \
    return COLLI_LAND(a, b);                                                                       \
  }

/* Everything on integers of `bits`, of which PROD is the product. */
#define COLL_FOLD_INTS(bits, PROD)                                                                 \
  COLL_FOLD_INT(sum, u##bits, bits, uint##bits##_t, COLLI_SUM_INT)                                 \
  COLL_FOLD_INT(prod, u##bits, bits, uint##bits##_t, PROD)                                         \
  COLL_FOLD_INT(min, u##bits, bits, uint##bits##_t, COLLI_MIN_INT)                                 \
  COLL_FOLD_INT(max, u##bits, bits, uint##bits##_t, COLLI_MAX_INT)                                 \
  COLL_FOLD_INT(min, i##bits, bits, int##bits##_t, COLLI_MIN_INT)                                  \
  COLL_FOLD_INT(max, i##bits, bits, int##bits##_t, COLLI_MAX_INT)                                  \
  COLL_FOLD_INT(band, u##bits, bits, uint##bits##_t, COLLI_BAND)                                   \
  COLL_FOLD_INT(bor, u##bits, bits, uint##bits##_t, COLLI_BOR)                                     \
  COLL_FOLD_INT(bxor, u##bits, bits, uint##bits##_t, COLLI_BXOR)                                   \
  COLL_TRUTH(bits)                                                                                 \
  COLL_FOLD_TRUTH(land, bits, COLLI_LAND)                                                          \
  COLL_FOLD_TRUTH(lor, bits, COLLI_LOR)                                                            \
  COLL_FOLD_TRUTH(lxor, bits, COLLI_LXOR)
COLL_FOLD_INTS(8, COLLI_PROD_SMALL)
COLL_FOLD_INTS(16, COLLI_PROD_SMALL)
COLL_FOLD_INTS(32, COLLI_PROD_INT)
COLL_FOLD_INTS(64, COLLI_PROD_INT)

/* Averages: the sum divided by nranks. `y` is `x` again. */
#define COLL_BY_U8(x, y)  ((uint8_t)COLLI_AVG_U8(x, COLL_FACTOR_32))
#define COLL_BY_I8(x, y)  ((uint8_t)COLLI_AVG_I8(x, COLL_FACTOR_32))
#define COLL_BY_U16(x, y) ((uint16_t)COLLI_AVG_U16(x, COLL_FACTOR_32))
#define COLL_BY_I16(x, y) ((uint16_t)COLLI_AVG_I16(x, COLL_FACTOR_32))
#define COLL_BY_I32(x, y) ((uint32_t)COLLI_AVG_I32((int32_t)(x), COLL_FACTOR_64))
COLL_FOLD_AVG(u8, 8, 1, sum_u8, COLL_BY_U8)
COLL_FOLD_AVG(i8, 8, 1, sum_u8, COLL_BY_I8)
COLL_FOLD_AVG(u16, 16, 1, sum_u16, COLL_BY_U16)
COLL_FOLD_AVG(i16, 16, 1, sum_u16, COLL_BY_I16)
COLL_FOLD_AVG(i32, 32, 1, sum_u32, COLL_BY_I32)

/* These divide by 2 and more only. */
#define COLL_DIVISOR                                                                               \
  (colli_divisor) {                                                                                \
    fold->factor_64, (int)fold->shift                                                              \
  }
#define COLL_BY_U32(x, y) (fold->shift ? COLLI_AVG_U32(x, COLL_FACTOR_64) : (x))
#define COLL_BY_U64(x, y) (fold->shift ? colli_avg_u64(x, COLL_DIVISOR) : (x))
#define COLL_BY_I64(x, y) (fold->shift ? (uint64_t)colli_avg_i64((int64_t)(x), COLL_DIVISOR) : (x))
COLL_FOLD_AVG(u32, 32, 1, sum_u32, COLL_BY_U32)
COLL_FOLD_AVG(u64, 64, 1, sum_u64, COLL_BY_U64)
COLL_FOLD_AVG(i64, 64, 1, sum_u64, COLL_BY_I64)
