/* driver_copy.c: copies and fills. Copies reach the memory of all devices, as CUDA's do: without
 * access of peers they go through the host. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

/*
 * Memory that no range knows is pageable memory of the program, and CUDA treats it thus: what a
 * copy reads from there is read before the call returns; a copy to there has ended when it returns.
 */
static colli_cu_result put(driver_stream *stream, driver_op *op) {
  if (!op->bytes)
    return COLLI_CUDA_SUCCESS;
  const bool to = driver_memory_has(op->to, op->bytes);
  const bool from = driver_memory_has(op->from, op->bytes);
  if ((!to && driver_memory_overlaps(op->to, op->bytes)) ||
      (!from && driver_memory_overlaps(op->from, op->bytes)) || (!to && !from))
    return COLLI_CUDA_ERROR_INVALID_VALUE;
  op->kind = COPY;
  op->check_to = to;
  op->check_from = from;
  if (!from && !stream->capture) { /* a graph reads when it runs */
    op->staged = malloc(op->bytes);
    if (!op->staged)
      return COLLI_CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(op->staged, (const void *)(uintptr_t)op->from, op->bytes);
  }
  const colli_cu_result result = driver_submit(stream, op);
  if (result != COLLI_CUDA_SUCCESS)
    free(op->staged);
  else if (!to && !stream->capture)
    return driver_drain(stream, stream->queued);
  return result;
}

colli_cu_result cuMemcpyAsync(colli_cu_deviceptr to, colli_cu_deviceptr from, size_t bytes,
                              colli_cu_stream handle) {
  driver_stream *stream;
  const colli_cu_result result = driver_enter_stream(handle, &stream);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  return driver_leave(put(stream, &(driver_op){.to = to, .from = from, .bytes = bytes}));
}

static atomic_ullong copied; /* bytes, from and to the host */

uint64_t fake_gpu_copied(void) {
  return atomic_load(&copied);
}

colli_cu_result cuMemcpyHtoDAsync_v2(colli_cu_deviceptr to, const void *from, size_t bytes,
                                     colli_cu_stream stream) {
  atomic_fetch_add(&copied, bytes);
  return cuMemcpyAsync(to, (uint64_t)(uintptr_t)from, bytes, stream);
}

colli_cu_result cuMemcpyDtoHAsync_v2(void *to, colli_cu_deviceptr from, size_t bytes,
                                     colli_cu_stream stream) {
  atomic_fetch_add(&copied, bytes);
  return cuMemcpyAsync((uint64_t)(uintptr_t)to, from, bytes, stream);
}

colli_cu_result cuMemcpyDtoDAsync_v2(colli_cu_deviceptr to, colli_cu_deviceptr from, size_t bytes,
                                     colli_cu_stream stream) {
  return cuMemcpyAsync(to, from, bytes, stream);
}

/* Where rows begin; 0: in none of the two kinds of memory that are supported. */
static uint64_t rows_at(int type, const void *host, uint64_t device, const void *array) {
  if (array)
    return 0;
  return type == COLLI_CU_MEMORYTYPE_HOST     ? (uint64_t)(uintptr_t)host
         : type == COLLI_CU_MEMORYTYPE_DEVICE ? device
                                              : 0;
}

/* Copies rows one after the other. */
colli_cu_result cuMemcpy2DAsync_v2(const colli_cu_memcpy_2d *it, colli_cu_stream handle) {
  driver_stream *stream;
  colli_cu_result result = driver_enter_stream(handle, &stream);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  const size_t most = (size_t)driver_get()->settings.pitch;
  const uint64_t to = rows_at(it->to_type, it->to_host, it->to_device, it->to_array);
  const uint64_t from = rows_at(it->from_type, it->from_host, it->from_device, it->from_array);
  if (!to || !from || it->to_x || it->to_y || it->from_x || it->from_y)
    return driver_leave(COLLI_CUDA_ERROR_NOT_SUPPORTED);
  if (it->to_pitch < it->row_bytes || it->from_pitch < it->row_bytes || it->to_pitch > most ||
      it->from_pitch > most)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  for (size_t i = 0; i < it->rows && result == COLLI_CUDA_SUCCESS; i++)
    result = put(stream, &(driver_op){.to = to + i * it->to_pitch,
                                      .from = from + i * it->from_pitch,
                                      .bytes = it->row_bytes});
  return driver_leave(result);
}

colli_cu_result cuMemsetD32Async(colli_cu_deviceptr at, unsigned value, size_t count,
                                 colli_cu_stream handle) {
  driver_stream *stream;
  colli_cu_result result = driver_enter_stream(handle, &stream);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (!count)
    return driver_leave(COLLI_CUDA_SUCCESS);
  if (at % 4 || count > SIZE_MAX / 4 || !driver_memory_has(at, count * 4))
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  const driver_op op = {
      .kind = FILL, .to = at, .check_to = true, .bytes = count * 4, .value = value};
  return driver_leave(driver_submit(stream, &op));
}
