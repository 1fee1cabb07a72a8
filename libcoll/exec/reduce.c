/* reduce.c: selects the kernels for this processor, and defines the reference conversions. */
#include "libcoll/exec/reduce.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "libcoll/exec/reduce_isa.h"
#include "libcoll/exec/reduce_ops.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* Whether the processor converts float16 (bit 29 of leaf 1; compilers differ in its name). */
static bool has_f16c(void) {
  unsigned a, b, c = 0, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 29));
}

/* The kernels for an x86-64 extension, if the processor and the system support it. */
static const colli_kernels *kernels_x86(colli_isa isa) {
  __builtin_cpu_init();
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  if (isa == COLLI_ISA_AVX2)
    return avx2 ? &colli_kernels_avx2 : NULL;
  bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return avx512 ? &colli_kernels_avx512 : NULL;
}
#endif

const colli_kernels *colli_kernels_for(colli_isa isa) {
  if (isa == COLLI_ISA_PORTABLE)
    return &colli_kernels_portable;
#if defined(__x86_64__)
  if (isa == COLLI_ISA_AVX2 || isa == COLLI_ISA_AVX512)
    return kernels_x86(isa);
#elif defined(__aarch64__)
  if (isa == COLLI_ISA_NEON)
    return &colli_kernels_neon;
#endif
  return NULL;
}

const colli_kernels *colli_kernels_best(void) {
  static _Atomic(const colli_kernels *) found; /* virtual machines answer CPUID slowly, in 20 us */
  const colli_kernels *best = atomic_load_explicit(&found, memory_order_relaxed);
  for (int isa = COLLI_ISA_COUNT - 1; !best; isa--)
    best = colli_kernels_for((colli_isa)isa);
  atomic_store_explicit(&found, best, memory_order_relaxed);
  return best;
}

const char *colli_isa_name(colli_isa isa) {
  static const char *const names[COLLI_ISA_COUNT] = {"portable", "avx2", "avx512", "neon"};
  return (unsigned)isa < COLLI_ISA_COUNT ? names[isa] : "unknown";
}

float colli_half_to_float(uint16_t half) {
  return colli_canon_f32(colli_widen_f16(half));
}

uint16_t colli_float_to_half(float value) {
  return (uint16_t)colli_narrow_f16(value);
}

float colli_bfloat_to_float(uint16_t bfloat) {
  return colli_canon_f32(colli_widen_bf16(bfloat));
}

uint16_t colli_float_to_bfloat(float value) {
  return (uint16_t)colli_narrow_bf16(value);
}
