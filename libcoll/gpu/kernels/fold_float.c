/* fold_float.c: reductions of float32, float64, float16 and bfloat16. */
#include "libcoll/gpu/kernels/fold_float.h"

/* Sums and products; those of short floats are rounded after each step. */
COLL_ELEMENT_F(32, sum_f32, COLLI_SUM_F32)
COLL_ELEMENT_F(32, prod_f32, COLLI_PROD_F32)
COLL_ELEMENT_F(32, min_f32, colli_min_f32)
COLL_ELEMENT_F(32, max_f32, colli_max_f32)
COLL_ELEMENT_F(64, sum_f64, COLLI_SUM_F64)
COLL_ELEMENT_F(64, prod_f64, COLLI_PROD_F64)
COLL_ELEMENT_F(64, min_f64, colli_min_f64)
COLL_ELEMENT_F(64, max_f64, colli_max_f64)
COLL_ELEMENT_SHORT(16, f16, coll_widen_f16, coll_narrow_f16)
COLL_ELEMENT_BITS(16, min_f16, COLLI_MIN_F16)
COLL_ELEMENT_BITS(16, max_f16, COLLI_MAX_F16)
COLL_ELEMENT_SHORT(16, bf16, colli_widen_bf16, colli_narrow_bf16)
COLL_ELEMENT_BITS(16, min_bf16, COLLI_MIN_BF16)
COLL_ELEMENT_BITS(16, max_bf16, COLLI_MAX_BF16)

/* Averages: the sum times 1/nranks; of float64, divided. `y` is `x` again. */
#define COLL_BY_F32(x, y)  colli_bits_of_f32(COLLI_AVG_F32(colli_f32_of_bits(x), COLL_FACTOR_32))
#define COLL_BY_F64(x, y)  colli_bits_of_f64(COLLI_AVG_F64(colli_f64_of_bits(x), COLL_FACTOR_64))
#define COLL_BY_F16(x, y)  ((uint16_t)coll_narrow_f16(coll_widen_f16(x) * COLL_FACTOR_32))
#define COLL_BY_BF16(x, y) ((uint16_t)COLLI_AVG_BF16(x, COLL_FACTOR_32))

COLL_FOLD_FLOAT(f32, 32, 4, COLL_BY_F32)
COLL_FOLD_FLOAT(f64, 64, 4, COLL_BY_F64)
COLL_FOLD_FLOAT(f16, 16, 4, COLL_BY_F16)
COLL_FOLD_FLOAT(bf16, 16, 4, COLL_BY_BF16)
COLL_FOLD_WIDE(f16, 16, 4, coll_widen_f16, coll_narrow_f16)
COLL_FOLD_WIDE(bf16, 16, 4, colli_widen_bf16, colli_narrow_bf16)
