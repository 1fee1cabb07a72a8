/* blas.c: sets OpenBLAS up. */
#include "trainer/blas.h"

#include <cblas.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CORETYPE "OPENBLAS_CORETYPE"

/* Whether the processor has all that OpenBLAS's SkylakeX kernels use. */
static bool has_avx512(void) {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

void blas_setup(char **argv, int threads) {
  const char *core = openblas_get_corename();
  bool older = strcmp(core, "Haswell") == 0 || strcmp(core, "Zen") == 0 ||
               strcmp(core, "Prescott") == 0 || strcmp(core, "Sandybridge") == 0;
  if (older && has_avx512() && !getenv(CORETYPE) && setenv(CORETYPE, "SkylakeX", 1) == 0)
    execv("/proc/self/exe", argv); /* if this fails, the slower kernels do as well */
  openblas_set_num_threads(threads);
}
