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
static colli_cu_result copy(colli_cu_stream handle, driver_op *op) {
  driver_stream *stream;
  colli_cu_result result = driver_enter_stream(handle, &stream);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (!op->bytes)
    return driver_leave(COLLI_CUDA_SUCCESS);
  const bool to = driver_memory_has(op->to, op->bytes);
  const bool from = driver_memory_has(op->from, op->bytes);
  if ((!to && driver_memory_overlaps(op->to, op->bytes)) ||
      (!from && driver_memory_overlaps(op->from, op->bytes)) || (!to && !from))
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  op->kind = COPY;
  op->check_to = to;
  op->check_from = from;
  if (!from && !stream->capture) { /* a graph reads when it runs */
    op->staged = malloc(op->bytes);
    if (!op->staged)
      return driver_leave(COLLI_CUDA_ERROR_OUT_OF_MEMORY);
    memcpy(op->staged, (const void *)(uintptr_t)op->from, op->bytes);
  }
  result = driver_submit(stream, op);
  if (result != COLLI_CUDA_SUCCESS)
    free(op->staged);
  else if (!to && !stream->capture)
    result = driver_drain(stream, stream->queued);
  return driver_leave(result);
}

colli_cu_result cuMemcpyAsync(colli_cu_deviceptr to, colli_cu_deviceptr from, size_t bytes,
                              colli_cu_stream stream) {
  return copy(stream, &(driver_op){.to = to, .from = from, .bytes = bytes});
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
