/* support_device.c: memory of the fake GPUs. */
#include "support_device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static colli_cuda cuda;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Ends the program if a function of the driver failed. */
static void must(colli_cu_result result, const char *what) {
  if (result == COLLI_CUDA_SUCCESS)
    return;
  fprintf(stderr, "%s: %s\n", what, colli_cuda_result_name(&cuda, result));
  abort();
}

#define MUST(call) must(call, #call)

static void load(void) {
  coll_error error = COLL_ERROR_INIT;
  setenv("GPU_DEVICES", "2", 0);
  if (colli_cuda_load(&cuda, COLL_PLUGINS "/fake_gpu.so", &error) == COLL_OK)
    return;
  fprintf(stderr, "%s\n", error.message);
  abort();
}

const colli_cuda *device_use(int device) {
  colli_cu_context context;
  pthread_once(&once, load);
  MUST(cuda.primary_ctx_retain(&context, device));
  MUST(cuda.ctx_set_current(context));
  return &cuda;
}

static void *take(size_t bytes) {
  colli_cu_deviceptr at;
  MUST(cuda.mem_alloc(&at, bytes ? bytes : 1));
  return (void *)at;
}

static void give(void *memory) {
  MUST(cuda.mem_free((colli_cu_deviceptr)memory));
}

static void write_to(void *memory, const void *from, size_t bytes) {
  MUST(cuda.memcpy_htod_async((colli_cu_deviceptr)memory, from, bytes, NULL));
  MUST(cuda.stream_synchronize(NULL));
}

static void read_from(void *to, const void *memory, size_t bytes) {
  MUST(cuda.memcpy_dtoh_async(to, (colli_cu_deviceptr)memory, bytes, NULL));
  MUST(cuda.stream_synchronize(NULL));
}

static void await(void *stream) {
  MUST(cuda.stream_synchronize(stream));
}

colli_cu_stream device_stream(void) {
  colli_cu_stream stream;
  MUST(cuda.stream_create(&stream, COLLI_CU_STREAM_NON_BLOCKING, 0));
  return stream;
}

const case_device device_memory = {take, give, write_to, read_from, await};
