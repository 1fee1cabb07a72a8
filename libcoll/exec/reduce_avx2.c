/* reduce_avx2.c: the kernels for processors with AVX2 and F16C. */
#include <immintrin.h>

#include "libcoll/exec/reduce_ops.h"

#define COLLI_KERNELS colli_kernels_avx2
#define COLLI_ISA     COLLI_ISA_AVX2
#define COLLI_CHEAP_MAX
#define COLLI_F16_LANES 8
typedef __m256 colli_f16v;
#define colli_f16v_load(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define colli_f16v_store(p, v)                                                                     \
  _mm_storeu_si128((__m128i *)(void *)(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT))
#define colli_f16v_get(p)    _mm256_loadu_ps((const float *)(const void *)(p))
#define colli_f16v_put(p, v) _mm256_storeu_ps((float *)(void *)(p), v)
#define colli_f16v_all(x)    _mm256_set1_ps(x)

/* NaN to the canonical NaN. */
static inline __m256 colli_f16v_canon(__m256 v) {
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
  return _mm256_blendv_ps(v, nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}

/* 16 short floats as float32, in two vectors. */
typedef struct colli_wide {
  __m256 one, two;
} colli_wide;

/* bfloat16: the elements at even and at odd positions, so that none changes its position. */
static inline colli_wide colli_bf16_widen(const colli_mem_u16 *p) {
  __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)p);
  return (colli_wide){
      _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)),
      _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000u)))};
}

/*
 * Back, to nearest even: the upper halves, plus the carry of the lower ones and 0x7fff, and 1 more
 * where the upper half is odd. That carry is the top bit of an average, which adds 1 and is exact.
 */
static inline __m256i colli_bf16_narrow(colli_wide v) {
  __m256i one = _mm256_castps_si256(v.one), two = _mm256_castps_si256(v.two);
  __m256i upper = _mm256_blend_epi16(_mm256_srli_epi32(one, 16), two, 0xaa);
  __m256i lower = _mm256_blend_epi16(one, _mm256_slli_epi32(two, 16), 0xaa);
  __m256i more =
      _mm256_or_si256(_mm256_and_si256(upper, _mm256_set1_epi16(1)), _mm256_set1_epi16(0x7ffe));
  return _mm256_add_epi16(upper, _mm256_srli_epi16(_mm256_avg_epu16(lower, more), 15));
}

/* float16: the lower and the upper half of a vector. */
static inline colli_wide colli_f16_widen(const colli_mem_u16 *p) {
  return (colli_wide){colli_f16v_load(p), colli_f16v_load(p + COLLI_F16_LANES)};
}
static inline __m256i colli_f16_narrow(colli_wide v) {
  return _mm256_set_m128i(_mm256_cvtps_ph(v.two, _MM_FROUND_TO_NEAREST_INT),
                          _mm256_cvtps_ph(v.one, _MM_FROUND_TO_NEAREST_INT));
}

/* Makes NaNs among short floats canonical: those whose magnitude is above `inf`. */
static void colli_canon_shorts(colli_mem_u16 *d, size_t count, uint16_t inf, uint16_t nan) {
  for (size_t i = 0; i < count; i++)
    d[i] = (d[i] & 0x7fff) > inf ? nan : d[i];
}

/*
 * Defines a kernel of short floats with operator `op`, and OP for the elements after the last
 * vector. The largest result shows whether a block contains a NaN, which is rare.
 */
#define COLLI_REDUCE_SHORTS(name, type, op, inf, nan, OP)                                          \
  static void name(void *dst, void *dst2, const void *a, const void *b, size_t count) {            \
    enum { LANES = 16, BLOCK = 2048 };                                                             \
    colli_mem_u16 *d = dst, *d2 = dst2;                                                            \
    const colli_mem_u16 *x = a, *y = b;                                                            \
    for (size_t some; count >= LANES; count -= some, x += some, y += some, d += some) {            \
      __m256i largest = _mm256_setzero_si256();                                                    \
      some = count < BLOCK ? count / LANES * LANES : BLOCK;                                        \
      for (size_t i = 0; i < some; i += LANES) {                                                   \
        colli_wide u = colli_##type##_widen(x + i), v = colli_##type##_widen(y + i);               \
        __m256i r = colli_##type##_narrow((colli_wide){u.one op v.one, u.two op v.two});           \
        largest = _mm256_max_epu16(largest, _mm256_add_epi16(r, r));                               \
        _mm256_storeu_si256((__m256i *)(void *)(d + i), r);                                        \
        if (d2)                                                                                    \
          _mm256_storeu_si256((__m256i *)(void *)(d2 + i), r);                                     \
      }                                                                                            \
      __m256i above = _mm256_subs_epu16(largest, _mm256_set1_epi16((short)(2 * (inf))));           \
      if (__builtin_expect(!_mm256_testz_si256(above, above), 0)) {                                \
        colli_canon_shorts(d, some, inf, nan);                                                     \
        if (d2)                                                                                    \
          memcpy(d2, d, some * sizeof(*d));                                                        \
      }                                                                                            \
      d2 = d2 ? d2 + some : NULL;                                                                  \
    }                                                                                              \
    for (size_t i = 0; i < count; i++) {                                                           \
      d[i] = (uint16_t)OP(x[i], y[i]);                                                             \
      if (d2)                                                                                      \
        d2[i] = d[i];                                                                              \
    }                                                                                              \
  }
#define COLLI_HAS_SHORTS
COLLI_REDUCE_SHORTS(sum_bf16, bf16, +, 0x7f80, COLLI_NAN_BF16, COLLI_SUM_BF16)
COLLI_REDUCE_SHORTS(prod_bf16, bf16, *, 0x7f80, COLLI_NAN_BF16, COLLI_PROD_BF16)
COLLI_REDUCE_SHORTS(sum_f16, f16, +, 0x7c00, COLLI_NAN_F16, COLLI_SUM_F16)
COLLI_REDUCE_SHORTS(prod_f16, f16, *, 0x7c00, COLLI_NAN_F16, COLLI_PROD_F16)

#include "libcoll/exec/reduce_template.h"
