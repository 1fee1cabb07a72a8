/* devices.c: the GPUs of this process: whose memory is whose, and copies. */
#include "libcoll/gpu/devices.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"

#define SPIN_POLLS 64 /* of a copy, before its thread sleeps between them */
#define POLL_NS    20000

/* ---- open and close -------------------------------------------------------------------------- */

/* Whether the program, or a library of its own, has loaded the driver. */
static bool is_loaded(void) {
  void *handle = dlopen(COLLI_CUDA_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
  if (handle)
    dlclose(handle);
  return handle != NULL;
}

coll_status colli_gpu_open(colli_gpu **out, const colli_log *log, coll_error *error) {
  *out = NULL;
  if (!is_loaded())
    return COLL_OK;
  colli_gpu *gpu = calloc(1, sizeof(*gpu));
  if (!gpu)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "out of memory for the GPUs");
  coll_error reason = COLL_ERROR_INIT;
  if (colli_cuda_load(&gpu->cuda, COLLI_CUDA_LIBRARY, &reason) != COLL_OK) {
    colli_log_write(log, COLLI_LOG_INFO, "GPU memory cannot be used: %s", reason.message);
    free(gpu);
    return COLL_OK;
  }
  const colli_cu_result result = gpu->cuda.device_get_count(&gpu->ndevices);
  if (result != COLLI_CUDA_SUCCESS || gpu->ndevices == 0) {
    colli_log_write(log, COLLI_LOG_INFO, "GPU memory cannot be used: %d devices, %s", gpu->ndevices,
                    colli_cuda_result_name(&gpu->cuda, result));
    colli_cuda_close(&gpu->cuda);
    free(gpu);
    return COLL_OK;
  }
  if (gpu->ndevices > COLLI_GPU_DEVICES)
    gpu->ndevices = COLLI_GPU_DEVICES;
  pthread_mutex_init(&gpu->mutex, NULL);
  pthread_mutex_init(&gpu->wakes, NULL);
  pthread_mutex_init(&gpu->pool.mutex, NULL);
  *out = gpu;
  return COLL_OK;
}

void colli_gpu_close(colli_gpu *gpu) {
  if (!gpu)
    return;
  colli_gpu_thread before; /* this thread may have no context, and freeing needs one */
  const bool entered =
      gpu->pool.count > 0 && colli_gpu_enter(gpu, COLLI_GPU_CURRENT, &before, NULL) == COLL_OK;
  colli_pinned_free(&gpu->pool, &gpu->cuda);
  if (entered)
    colli_gpu_leave(gpu, &before);
  for (int i = 0; i < gpu->ndevices; i++) {
    if (gpu->devices[i].stream && colli_gpu_enter(gpu, i, &before, NULL) == COLL_OK) {
      colli_gpu_programs_free(&gpu->cuda, gpu->devices[i].programs);
      gpu->cuda.stream_destroy(gpu->devices[i].stream);
      colli_gpu_leave(gpu, &before);
    }
    if (gpu->devices[i].context)
      gpu->cuda.primary_ctx_release(i);
  }
  pthread_mutex_destroy(&gpu->mutex);
  pthread_mutex_destroy(&gpu->wakes);
  pthread_mutex_destroy(&gpu->pool.mutex);
  colli_cuda_close(&gpu->cuda);
  free(gpu);
}

bool colli_gpu_find_bus(const colli_gpu *gpu, char bus[COLLI_PCI_ADDRESS]) {
  const colli_cuda *cuda = &gpu->cuda;
  colli_cu_context context = NULL;
  colli_cu_device device;
  char text[COLLI_PCI_ADDRESS];
  if (cuda->ctx_get_current(&context) != COLLI_CUDA_SUCCESS || (!context && gpu->ndevices > 1))
    return false;
  const colli_cu_result result =
      context ? cuda->ctx_get_device(&device) : cuda->device_get(&device, 0);
  return result == COLLI_CUDA_SUCCESS &&
         cuda->device_get_pci_bus_id(text, sizeof(text), device) == COLLI_CUDA_SUCCESS &&
         colli_pci_read_address(text, bus);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Asks the driver about an address. */
static colli_cu_result ask(const colli_gpu *gpu, const void *at, unsigned *type, unsigned *managed,
                           int *ordinal) {
  colli_cu_pointer_attribute attributes[] = {COLLI_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                             COLLI_CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                             COLLI_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void *values[] = {type, managed, ordinal};
  return gpu->cuda.pointer_get_attributes(3, attributes, values, (colli_cu_deviceptr)at);
}

/* Whether the processor can read an address: where the driver does not say whose it is, because a
 * kernel has failed, calls on host memory still work. */
static bool is_readable(const void *at) {
  char byte;
  const struct iovec to = {&byte, 1}, from = {(void *)at, 1};
  return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1 || errno != EFAULT;
}

int colli_gpu_device_of(colli_gpu *gpu, const void *at) {
  unsigned type = 0, managed = 0;
  int ordinal = COLLI_GPU_HOST;
  if (!at)
    return COLLI_GPU_HOST;
  colli_cu_result result = ask(gpu, at, &type, &managed, &ordinal);
  colli_gpu_thread before;
  if (result == COLLI_CUDA_ERROR_INVALID_CONTEXT &&
      colli_gpu_enter(gpu, COLLI_GPU_CURRENT, &before, NULL) == COLL_OK) {
    result = ask(gpu, at, &type, &managed, &ordinal);
    colli_gpu_leave(gpu, &before);
  }
  if (result != COLLI_CUDA_SUCCESS)
    return is_readable(at) ? COLLI_GPU_HOST : COLLI_GPU_UNKNOWN;
  const bool there = type == COLLI_CU_MEMORYTYPE_DEVICE && !managed;
  return there && ordinal >= 0 && ordinal < gpu->ndevices ? ordinal : COLLI_GPU_HOST;
}

/* Pinning needs a context, and a thread that has none uses device 0's. */
/* Sets why there are no `bytes` bytes of pinned memory. */
static coll_status fail_pinned(const colli_gpu *gpu, size_t bytes, colli_cu_result result,
                               coll_error *error) {
  if (result != COLLI_CUDA_ERROR_OUT_OF_MEMORY)
    return colli_cuda_fail(&gpu->cuda, error, "cuMemHostAlloc", 0, result);
  return colli_error_set(error, COLL_ERR_NO_MEMORY, NULL,
                         "out of memory for %zu bytes of pinned host memory; see ulimit -v", bytes);
}

colli_pinned *colli_gpu_take_pinned(colli_gpu *gpu, size_t bytes, coll_error *error) {
  colli_gpu_thread before;
  colli_cu_result result;
  if (colli_gpu_enter(gpu, COLLI_GPU_CURRENT, &before, error) != COLL_OK)
    return NULL;
  colli_pinned *block = colli_pinned_take(&gpu->pool, &gpu->cuda, bytes, &result);
  colli_gpu_leave(gpu, &before);
  if (!block)
    (void)fail_pinned(gpu, bytes, result, error);
  return block;
}

coll_status colli_gpu_reserve_words(colli_gpu *gpu, size_t count, coll_error *error) {
  colli_gpu_thread before;
  const coll_status status = colli_gpu_enter(gpu, COLLI_GPU_CURRENT, &before, error);
  if (status != COLL_OK)
    return status;
  const colli_cu_result result = colli_pinned_reserve(&gpu->pool, &gpu->cuda, count);
  colli_gpu_leave(gpu, &before);
  return result == COLLI_CUDA_SUCCESS ? COLL_OK
                                      : fail_pinned(gpu, count * COLLI_PINNED_PAGE, result, error);
}

void colli_gpu_share_pinned(colli_gpu *gpu, colli_pinned *block) {
  colli_pinned_share(&gpu->pool, block);
}

void colli_gpu_put_pinned(colli_gpu *gpu, colli_pinned *block) {
  colli_pinned_put(&gpu->pool, block);
}

/* ---- the thread's context -------------------------------------------------------------------- */

/* Makes what a device needs when it is first used, with the mutex; its context becomes current. */
static coll_status ready_device(colli_gpu *gpu, int device, coll_error *error) {
  colli_gpu_device *it = &gpu->devices[device];
  const colli_cuda *cuda = &gpu->cuda;
  colli_cu_result result = COLLI_CUDA_SUCCESS;
  if (!it->context)
    result = cuda->primary_ctx_retain(&it->context, device);
  if (result != COLLI_CUDA_SUCCESS)
    return colli_cuda_fail(&gpu->cuda, error, "cuDevicePrimaryCtxRetain", device, result);
  result = cuda->ctx_set_current(it->context);
  if (result != COLLI_CUDA_SUCCESS)
    return colli_cuda_fail(&gpu->cuda, error, "cuCtxSetCurrent", device, result);
  if (!it->stream)
    result = cuda->stream_create(&it->stream, COLLI_CU_STREAM_NON_BLOCKING, 0);
  return result == COLLI_CUDA_SUCCESS
             ? COLL_OK
             : colli_cuda_fail(&gpu->cuda, error, "cuStreamCreateWithPriority", device, result);
}

coll_status colli_gpu_enter(colli_gpu *gpu, int device, colli_gpu_thread *before,
                            coll_error *error) {
  COLLI_ASSERT(device == COLLI_GPU_CURRENT || (device >= 0 && device < gpu->ndevices));
  *before = (colli_gpu_thread){.mode = COLLI_CU_STREAM_CAPTURE_MODE_RELAXED};
  colli_cu_result result = gpu->cuda.ctx_get_current(&before->context);
  if (result != COLLI_CUDA_SUCCESS)
    return colli_cuda_fail(&gpu->cuda, error, "cuCtxGetCurrent", device, result);
  result = gpu->cuda.exchange_capture_mode(&before->mode);
  if (result != COLLI_CUDA_SUCCESS)
    return colli_cuda_fail(&gpu->cuda, error, "cuThreadExchangeStreamCaptureMode", device, result);
  if (device == COLLI_GPU_CURRENT && before->context)
    return COLL_OK;
  if (device == COLLI_GPU_CURRENT)
    device = 0;
  before->changed = true;
  pthread_mutex_lock(&gpu->mutex);
  coll_status status = ready_device(gpu, device, error);
  pthread_mutex_unlock(&gpu->mutex);
  if (status != COLL_OK)
    colli_gpu_leave(gpu, before);
  return status;
}

void colli_gpu_leave(colli_gpu *gpu, colli_gpu_thread *before) {
  gpu->cuda.exchange_capture_mode(&before->mode);
  if (before->changed)
    gpu->cuda.ctx_set_current(before->context);
}

coll_status colli_gpu_is_primary(colli_gpu *gpu, int device, colli_cu_context context, bool *is,
                                 coll_error *error) {
  colli_gpu_thread before;
  const coll_status status = colli_gpu_enter(gpu, device, &before, error);
  if (status != COLL_OK)
    return status;
  *is = gpu->devices[device].context == context;
  colli_gpu_leave(gpu, &before);
  return COLL_OK;
}

coll_status colli_gpu_get_programs(colli_gpu *gpu, int device, const colli_log *log,
                                   const colli_gpu_programs **programs, coll_error *error) {
  colli_gpu_thread before;
  coll_status status = colli_gpu_enter(gpu, device, &before, error);
  if (status != COLL_OK)
    return status;
  pthread_mutex_lock(&gpu->mutex);
  colli_gpu_device *it = &gpu->devices[device];
  if (!it->programs) {
    status = colli_gpu_programs_load(&gpu->cuda, device, &it->programs, error);
    if (status == COLL_OK)
      colli_log_write(log, COLLI_LOG_INFO, "kernels of GPU %d: %s", device,
                      colli_gpu_programs_origin(it->programs));
  }
  *programs = it->programs;
  pthread_mutex_unlock(&gpu->mutex);
  colli_gpu_leave(gpu, &before);
  return status;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Waits until a stream has done everything. */
static coll_status await(colli_gpu *gpu, int device, colli_cu_stream stream, uint64_t timeout_ns,
                         coll_error *error) {
  const uint64_t until_ns = colli_now_ns() + timeout_ns;
  unsigned polls = 0;
  colli_cu_result result;
  while ((result = gpu->cuda.stream_query(stream)) == COLLI_CUDA_ERROR_NOT_READY) {
    if (colli_now_ns() >= until_ns)
      return colli_error_set(error, COLL_ERR_TIMEOUT, NULL,
                             "GPU %d has not ended a copy within %llu ms; a kernel of the program "
                             "may hold it, which nvidia-smi shows",
                             device, (unsigned long long)(timeout_ns / COLLI_NS_PER_MS));
    if (++polls < SPIN_POLLS)
      sched_yield();
    else
      nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
  }
  if (result == COLLI_CUDA_SUCCESS)
    return COLL_OK;
  gpu->cuda.stream_synchronize(stream); /* nothing uses the buffers any more when this returns */
  return colli_cuda_fail(&gpu->cuda, error, "cuStreamQuery", device, result);
}

/* Puts a copy of one block into the stream. */
static colli_cu_result put_block(const colli_cuda *cuda, colli_cu_stream stream,
                                 colli_gpu_direction direction, const colli_gpu_piece *piece,
                                 size_t i) {
  const colli_cu_deviceptr at = (colli_cu_deviceptr)piece->device + i * piece->stride;
  void *host = (char *)piece->host + i * piece->bytes;
  return direction == COLLI_GPU_TO_DEVICE ? cuda->memcpy_htod_async(at, host, piece->bytes, stream)
                                          : cuda->memcpy_dtoh_async(host, at, piece->bytes, stream);
}

/* Puts one copy of all blocks into the stream. */
static colli_cu_result put_blocks(const colli_cuda *cuda, colli_cu_stream stream,
                                  colli_gpu_direction direction, const colli_gpu_piece *piece) {
  const bool out = direction == COLLI_GPU_TO_DEVICE;
  const colli_cu_deviceptr at = (colli_cu_deviceptr)piece->device;
  return cuda->memcpy_2d_async(
      &(colli_cu_memcpy_2d){
          .from_type = out ? COLLI_CU_MEMORYTYPE_HOST : COLLI_CU_MEMORYTYPE_DEVICE,
          .from_host = out ? piece->host : NULL,
          .from_device = out ? 0 : at,
          .from_pitch = out ? piece->bytes : piece->stride,
          .to_type = out ? COLLI_CU_MEMORYTYPE_DEVICE : COLLI_CU_MEMORYTYPE_HOST,
          .to_host = out ? NULL : piece->host,
          .to_device = out ? at : 0,
          .to_pitch = out ? piece->stride : piece->bytes,
          .row_bytes = piece->bytes,
          .rows = piece->more + 1,
      },
      stream);
}

/* Whether the device copies all blocks at once: they may be too far apart for that. */
static bool copies_at_once(const colli_cuda *cuda, int device, const colli_gpu_piece *piece) {
  int most = 0;
  return piece->more > 0 &&
         cuda->device_get_attribute(&most, COLLI_CU_DEVICE_ATTRIBUTE_MAX_PITCH, device) ==
             COLLI_CUDA_SUCCESS &&
         piece->stride <= (size_t)most;
}

/* Puts the copy of a piece into the stream; *function: what the driver was asked for. */
static colli_cu_result put_copy(const colli_cuda *cuda, int device, colli_cu_stream stream,
                                colli_gpu_direction direction, const colli_gpu_piece *piece,
                                const char **function) {
  colli_cu_result result = COLLI_CUDA_SUCCESS;
  if (copies_at_once(cuda, device, piece)) {
    *function = "cuMemcpy2DAsync";
    return put_blocks(cuda, stream, direction, piece);
  }
  *function = direction == COLLI_GPU_TO_DEVICE ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync";
  for (size_t i = 0; i <= piece->more && result == COLLI_CUDA_SUCCESS; i++)
    result = put_block(cuda, stream, direction, piece, i);
  return result;
}

coll_status colli_gpu_put_copies(const colli_cuda *cuda, int device, colli_cu_stream stream,
                                 colli_gpu_direction direction, const colli_gpu_piece *pieces,
                                 size_t count, coll_error *error) {
  colli_cu_result result = COLLI_CUDA_SUCCESS;
  const char *function = NULL;
  for (size_t i = 0; i < count && result == COLLI_CUDA_SUCCESS; i++)
    if (pieces[i].bytes > 0)
      result = put_copy(cuda, device, stream, direction, &pieces[i], &function);
  return result == COLLI_CUDA_SUCCESS ? COLL_OK
                                      : colli_cuda_fail(cuda, error, function, device, result);
}

coll_status colli_gpu_copy(colli_gpu *gpu, int device, colli_gpu_direction direction,
                           const colli_gpu_piece *pieces, size_t count, uint64_t timeout_ns,
                           coll_error *error) {
  colli_gpu_thread before;
  coll_status status = colli_gpu_enter(gpu, device, &before, error);
  if (status != COLL_OK)
    return status;
  const colli_cu_stream stream = gpu->devices[device].stream;
  status = colli_gpu_put_copies(&gpu->cuda, device, stream, direction, pieces, count, error);
  if (status == COLL_OK)
    status = await(gpu, device, stream, timeout_ns, error);
  colli_gpu_leave(gpu, &before);
  return status;
}
