/*
 * limit.c: loops that show the limit. For each instruction set, they do only float32 operations, on
 * as many bytes as a kernel, with ordinary and with nontemporal stores.
 */
#include "kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Defines the loop limit_NAME_ISA: four times a turn, `step` on the vectors from element j on. */
#define LOOP(isa, name, target, step)                                                              \
  target static void limit_##name##_##isa(void *to, void *to2, const void *a, const void *b,       \
                                          size_t bytes) {                                          \
    const size_t lanes = sizeof(isa##_vector) / sizeof(float);                                     \
    float *d = to, *d2 = to2;                                                                      \
    const float *x = a, *y = b;                                                                    \
    for (size_t j = 0; j < bytes / sizeof(float); j += lanes) {                                    \
      step;                                                                                        \
      j += lanes;                                                                                  \
      step;                                                                                        \
      j += lanes;                                                                                  \
      step;                                                                                        \
      j += lanes;                                                                                  \
      step;                                                                                        \
    }                                                                                              \
    (void)d, (void)d2, (void)x, (void)y;                                                           \
  }

#define AT(isa, p)      (*(isa##_vector *)(void *)((p) + j))
#define FROM(isa, p)    (*(const isa##_vector *)(const void *)((p) + j))
#define SUM(isa)        (FROM(isa, x) + FROM(isa, y))
#define PUT_ONE(isa)    AT(isa, d) = SUM(isa)
#define PUT_TWO(isa)    AT(isa, d) = AT(isa, d2) = SUM(isa)
#define PUT_DOUBLE(isa) AT(isa, d) = FROM(isa, x) + FROM(isa, x)
#define PAST_ONE(isa)   isa##_past(d + j, SUM(isa))

/* Defines all loops of an instruction set, and the table of those that match each form. */
#define LIMITS(isa, target)                                                                        \
  LOOP(isa, one, target, PUT_ONE(isa))                                                             \
  LOOP(isa, one_past, target, PAST_ONE(isa))                                                       \
  LOOP(isa, two, target, PUT_TWO(isa))                                                             \
  LOOP(isa, alone, target, PUT_DOUBLE(isa))                                                        \
  static const kernels_limit isa##_limits[FORM_COUNT][KERNELS_LIMITS] =                            \
      {[FORM_ONE] = {limit_one_##isa},                                                             \
       [FORM_TWO] = {limit_two_##isa},                                                             \
       [FORM_IN] = {limit_one_##isa},                                                              \
       [FORM_STREAM] = {limit_one_##isa, limit_one_past_##isa},                                    \
       [FORM_AVERAGE] = {limit_alone_##isa},                                                       \
       [FORM_SCALE] = {limit_alone_##isa}};

/* The baseline of every processor: 16 bytes at a time. */
typedef float base_vector __attribute__((vector_size(16), aligned(4), may_alias));
#if defined(__x86_64__)
#define base_past(p, v) _mm_stream_ps(p, v)
#else
#define base_past(p, v) *(base_vector *)(void *)(p) = v
#endif
LIMITS(base, )

#if defined(__x86_64__)
typedef float avx2_vector __attribute__((vector_size(32), aligned(4), may_alias));
#define avx2_past(p, v) _mm256_stream_ps(p, v)
LIMITS(avx2, __attribute__((target("avx2"))))

typedef float avx512_vector __attribute__((vector_size(64), aligned(4), may_alias));
#define avx512_past(p, v) _mm512_stream_ps(p, v)
LIMITS(avx512, __attribute__((target("avx512f"))))
#endif

const kernels_limit *kernels_limits(colli_isa isa, kernels_form form) {
#if defined(__x86_64__)
  if (isa == COLLI_ISA_AVX2)
    return avx2_limits[form];
  if (isa == COLLI_ISA_AVX512)
    return avx512_limits[form];
#endif
  (void)isa;
  return base_limits[form];
}
