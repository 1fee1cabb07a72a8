/* reduce_neon.c: the kernels for AArch64, all of which convert float16 (the rest is as portable).
 */
#include <arm_neon.h>

#define COLLI_KERNELS   colli_kernels_neon
#define COLLI_ISA       COLLI_ISA_NEON
#define COLLI_F16_LANES 4
typedef float32x4_t colli_f16v;
#define colli_f16v_load(p)     vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8((const uint8_t *)(p))))
#define colli_f16v_store(p, v) vst1_u8((uint8_t *)(p), vreinterpret_u8_f16(vcvt_f16_f32(v)))
#define colli_f16v_get(p)      vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)(p)))
#define colli_f16v_put(p, v)   vst1q_u8((uint8_t *)(p), vreinterpretq_u8_f32(v))
#define colli_f16v_all(x)      vdupq_n_f32(x)

/* NaN to the canonical NaN. */
static inline float32x4_t colli_f16v_canon(float32x4_t v) {
  const float32x4_t nan = vreinterpretq_f32_u32(vdupq_n_u32(0x7fc00000));
  return vbslq_f32(vceqq_f32(v, v), v, nan);
}

#include "libcoll/exec/reduce_template.h"
