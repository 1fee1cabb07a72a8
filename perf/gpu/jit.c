/* jit.c: how long the driver takes to load libcoll's kernels: it compiles them, or has them in its
 * cache (CUDA_CACHE_PATH). */
#include <stdio.h>

#include "libcoll/gpu/programs.h"

#include "probe.h"

void probe_jit(const probe_options *options) {
  probe p;
  colli_gpu_programs *programs;
  coll_error error = COLL_ERROR_INIT;
  probe_load(&p);
  probe_use(&p, options->device);
  const double start = probe_now_us();
  if (colli_gpu_programs_load(&p.cuda, p.device, &programs, &error) != COLL_OK)
    probe_die("%s", error.message);
  printf("{\"probe\": \"jit\", \"load_ms\": %.1f}\n", (probe_now_us() - start) / 1e3);
  colli_gpu_programs_free(&p.cuda, programs);
}
