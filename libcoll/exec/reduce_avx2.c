/* reduce_avx2.c: the kernels for processors with AVX2 and F16C. */
#include <immintrin.h>

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

#include "libcoll/exec/reduce_template.h"
