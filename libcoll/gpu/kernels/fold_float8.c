/*
 * fold_float8.c: reductions of float8_e4m3 and float8_e5m2. They are computed by way of float16,
 * see reduce_ops.h.
 */
#include "libcoll/gpu/kernels/fold_float.h"

/* Elements as float32, that of float8_e4m3 times 2^-8. */
#define COLL_WIDEN_E4M3_LOW(x) coll_widen_f16(colli_e4m3_to_f16((uint8_t)(x)))
#define COLL_WIDEN_E4M3(x)     (COLL_WIDEN_E4M3_LOW(x) * 0x1p8f)
#define COLL_WIDEN_E5M2(x)     coll_widen_f16(colli_e5m2_to_f16((uint8_t)(x)))

/* Sums and products. They are rounded twice, which is right only for two float8. */
#define COLL_SUM_E4M3(x, y)                                                                        \
  colli_f16_to_e4m3((uint16_t)coll_narrow_f16(COLL_WIDEN_E4M3_LOW(x) + COLL_WIDEN_E4M3_LOW(y)))
#define COLL_PROD_E4M3(x, y)                                                                       \
  colli_f16_to_e4m3((uint16_t)coll_narrow_f16(COLL_WIDEN_E4M3_LOW(x) * COLL_WIDEN_E4M3(y)))
#define COLL_SUM_E5M2(x, y)                                                                        \
  colli_f16_to_e5m2((uint16_t)coll_narrow_f16(COLL_WIDEN_E5M2(x) + COLL_WIDEN_E5M2(y)))
#define COLL_PROD_E5M2(x, y)                                                                       \
  colli_f16_to_e5m2((uint16_t)coll_narrow_f16(COLL_WIDEN_E5M2(x) * COLL_WIDEN_E5M2(y)))
COLL_ELEMENT_BITS(8, sum_e4m3, COLL_SUM_E4M3)
COLL_ELEMENT_BITS(8, prod_e4m3, COLL_PROD_E4M3)
COLL_ELEMENT_BITS(8, min_e4m3, COLLI_MIN_E4M3)
COLL_ELEMENT_BITS(8, max_e4m3, COLLI_MAX_E4M3)
COLL_ELEMENT_BITS(8, sum_e5m2, COLL_SUM_E5M2)
COLL_ELEMENT_BITS(8, prod_e5m2, COLL_PROD_E5M2)
COLL_ELEMENT_BITS(8, min_e5m2, COLLI_MIN_E5M2)
COLL_ELEMENT_BITS(8, max_e5m2, COLLI_MAX_E5M2)

/* Averages. `y` is `x` again. */
#define COLL_BY_E4M3(x, y) ((uint8_t)colli_narrow_e4m3(COLL_WIDEN_E4M3(x) * COLL_FACTOR_32))
#define COLL_BY_E5M2(x, y) ((uint8_t)colli_narrow_e5m2(COLL_WIDEN_E5M2(x) * COLL_FACTOR_32))

COLL_FOLD_FLOAT(e4m3, 8, 1, COLL_BY_E4M3)
COLL_FOLD_FLOAT(e5m2, 8, 1, COLL_BY_E5M2)
COLL_FOLD_WIDE(e4m3, 8, 1, COLL_WIDEN_E4M3, colli_narrow_e4m3)
COLL_FOLD_WIDE(e5m2, 8, 1, COLL_WIDEN_E5M2, colli_narrow_e5m2)
