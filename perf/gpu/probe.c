/* probe.c: CUDA's driver, as the parts of gpu_probe use it. */
#include "probe.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH 32 /* calls between two looks at the clock */

static const char kernels[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry empty()\n{\nret;\n}\n"
    ".visible .entry spin(.param .u64 word)\n{\n"
    ".reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %d<2>;\nld.param.u64 %d1, [word];\n"
    "AGAIN: ld.acquire.sys.global.u32 %r1, [%d1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra AGAIN;\n"
    "ret;\n}\n";

void probe_die(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fputs("gpu_probe: ", stderr);
  vfprintf(stderr, format, args);
  fputs("\n", stderr);
  va_end(args);
  exit(1);
}

void probe_check(const probe *p, const char *function, colli_cu_result result) {
  if (result != COLLI_CUDA_SUCCESS)
    probe_die("%s on GPU %d failed with error %d, %s (%s)", function, p->device, result,
              colli_cuda_result_name(&p->cuda, result), colli_cuda_result_text(&p->cuda, result));
}

void probe_load(probe *p) {
  coll_error error = COLL_ERROR_INIT;
  memset(p, 0, sizeof(*p));
  if (colli_cuda_load(&p->cuda, COLLI_CUDA_LIBRARY, &error) != COLL_OK)
    probe_die("%s", error.message);
  PROBE_OK(p, device_get_count, &p->ndevices);
  if (p->ndevices == 0)
    probe_die("CUDA's driver finds no GPU; nvidia-smi lists them, and CUDA_VISIBLE_DEVICES may "
              "hide some");
}

void probe_use(probe *p, int device) {
  colli_cu_context context;
  p->device = device;
  if (device >= p->ndevices)
    probe_die("there is no GPU %d, only %d", device, p->ndevices);
  PROBE_OK(p, primary_ctx_retain, &context, device);
  PROBE_OK(p, ctx_set_current, context);
  PROBE_OK(p, module_load, &p->module, kernels, 0, NULL, NULL);
  PROBE_OK(p, module_get_function, &p->empty, p->module, "empty");
  PROBE_OK(p, module_get_function, &p->spin, p->module, "spin");
  if (!p->cuda.launch_kernel || !p->cuda.stream_wait_value_32)
    probe_die("the driver is older than CUDA 11.7");
  /* A driver that loads lazily must not do so while a kernel spins. */
  probe_word word = probe_pinned(p);
  probe_put(word, 1);
  probe_launch(p, p->empty, NULL, NULL);
  probe_launch(p, p->spin, NULL, (void *[]){&word.at});
  PROBE_OK(p, stream_synchronize, NULL);
}

bool probe_is_software(const probe *p) {
  return dlsym(p->cuda.handle, "fake_gpu_rounds") != NULL;
}

double probe_now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

colli_cu_stream probe_stream(const probe *p) {
  colli_cu_stream stream;
  PROBE_OK(p, stream_create, &stream, COLLI_CU_STREAM_NON_BLOCKING, 0);
  return stream;
}

colli_cu_deviceptr probe_memory(const probe *p, size_t bytes) {
  colli_cu_deviceptr at;
  PROBE_OK(p, mem_alloc, &at, bytes);
  return at;
}

probe_word probe_pinned(const probe *p) {
  void *host;
  probe_word word;
  PROBE_OK(p, mem_host_alloc, &host, sizeof(uint32_t),
           COLLI_CU_MEMHOSTALLOC_PORTABLE | COLLI_CU_MEMHOSTALLOC_DEVICEMAP);
  PROBE_OK(p, mem_host_get_device_pointer, &word.at, host, 0);
  word.host = host;
  probe_put(word, 0);
  return word;
}

void probe_put(probe_word word, uint32_t value) {
  __atomic_store_n(word.host, value, __ATOMIC_SEQ_CST);
}

void probe_launch(const probe *p, colli_cu_function function, colli_cu_stream stream, void **args) {
  const colli_cu_launch_config config = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .stream = stream};
  PROBE_OK(p, launch_kernel, &config, function, args, NULL);
}

bool probe_ends(const probe *p, colli_cu_stream stream, int ms) {
  const double end = probe_now_us() + ms * 1e3;
  colli_cu_result result;
  while ((result = p->cuda.stream_query(stream)) == COLLI_CUDA_ERROR_NOT_READY) {
    if (probe_now_us() > end)
      return false;
    sched_yield();
  }
  probe_check(p, "stream_query", result);
  return true;
}

double probe_time(int ms, void (*put)(void *), void (*wait)(void *), void *context) {
  put(context);
  wait(context);
  double start = probe_now_us();
  put(context);
  wait(context);
  const double one = probe_now_us() - start; /* more than its share of many */
  const int batch = one * BATCH > ms * 1e3 ? 1 : BATCH;
  const double end = probe_now_us() + ms * 1e3;
  long calls = 0;
  start = probe_now_us();
  do {
    for (int i = 0; i < batch; i++)
      put(context);
    wait(context);
    calls += batch;
  } while (probe_now_us() < end);
  return (probe_now_us() - start) / (double)calls;
}
