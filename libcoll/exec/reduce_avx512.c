/* reduce_avx512.c: the kernels for processors with AVX-512 (F, BW, DQ, VL). */
#include <immintrin.h>

#define COLLI_KERNELS   colli_kernels_avx512
#define COLLI_ISA       COLLI_ISA_AVX512
#define COLLI_F16_LANES 16
typedef __m512 colli_f16v;
#define colli_f16v_load(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define colli_f16v_store(p, v)                                                                     \
  _mm256_storeu_si256((__m256i *)(void *)(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT))
#define colli_f16v_get(p)    _mm512_loadu_ps((const float *)(const void *)(p))
#define colli_f16v_put(p, v) _mm512_storeu_ps((float *)(void *)(p), v)
#define colli_f16v_all(x)    _mm512_set1_ps(x)

/* NaN to the canonical NaN. */
static inline __m512 colli_f16v_canon(__m512 v) {
  const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));
  return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), nan);
}

#include "libcoll/exec/reduce_template.h"
