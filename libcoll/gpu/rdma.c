/* rdma.c: lends memory of GPUs to devices of a network. */
#include "libcoll/gpu/rdma.h"

#include <unistd.h>

#include "libcoll/base/fork.h"

bool colli_gpu_lends(colli_gpu *gpu, int device) {
  pthread_mutex_lock(&gpu->mutex);
  const bool lends = !gpu->devices[device].lends_nothing;
  pthread_mutex_unlock(&gpu->mutex);
  return lends;
}

void colli_gpu_lend_refused(colli_gpu *gpu, int device, bool none, const colli_log *log,
                            const char *why) {
  pthread_mutex_lock(&gpu->mutex);
  colli_gpu_device *it = &gpu->devices[device];
  const bool news = !it->told_of_lending || (none && !it->lends_nothing);
  it->told_of_lending = true;
  it->lends_nothing |= none;
  pthread_mutex_unlock(&gpu->mutex);
  if (news)
    colli_log_write(log, COLLI_LOG_INFO, "%s messages of GPU %d are copied in host memory: %s",
                    none ? "all" : "some", device, why);
}

/* A device's attribute; 0: the driver does not know it. */
static int ask(const colli_cuda *cuda, int device, colli_cu_device_attribute attribute) {
  int value = 0;
  return cuda->device_get_attribute(&value, attribute, device) == COLLI_CUDA_SUCCESS ? value : 0;
}

/* Whether kernels may miss what the network has written, unless that is flushed. */
static bool needs_flush(const colli_cuda *cuda, int device) {
  return ask(cuda, device, COLLI_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) <
         COLLI_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER;
}

/* Why a device does not lend memory; NULL: it does. */
static const char *find_reason(const colli_cuda *cuda, int device) {
  const int options =
      ask(cuda, device, COLLI_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
  if (!cuda->mem_get_range_handle)
    return "that takes a driver for CUDA 11.7 or newer";
  if (ask(cuda, device, COLLI_CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) != 1)
    return "the GPU or its kernel driver makes no dma-buf, as NVIDIA's open kernel modules do from "
           "Linux 5.12 on";
  if (needs_flush(cuda, device) &&
      (!cuda->flush_rdma_writes || !(options & COLLI_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST)))
    return "the GPU does not order what a network writes to it, and its driver cannot flush that";
  return NULL;
}

bool colli_gpu_can_lend(colli_gpu *gpu, int device, const colli_log *log) {
  colli_gpu_thread before;
  if (!colli_gpu_lends(gpu, device) || colli_gpu_enter(gpu, device, &before, NULL) != COLL_OK)
    return false;
  const char *why = find_reason(&gpu->cuda, device);
  colli_gpu_leave(gpu, &before);
  if (why)
    colli_gpu_lend_refused(gpu, device, true, log, why);
  return why == NULL;
}

bool colli_gpu_lend(colli_gpu *gpu, int device, const void *memory, size_t bytes,
                    const colli_log *log, colli_gpu_dmabuf *lent) {
  const colli_cuda *cuda = &gpu->cuda;
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const colli_cu_deviceptr at = (colli_cu_deviceptr)memory, begin = at & ~(page - 1);
  const size_t whole = ((at + bytes + page - 1) & ~(page - 1)) - begin;
  const unsigned on = 1;
  colli_gpu_thread before;
  coll_error error = COLL_ERROR_INIT;
  if (colli_gpu_enter(gpu, device, &before, &error) != COLL_OK)
    return false; /* the copies will say why */
  colli_cu_result result = COLLI_CUDA_ERROR_NOT_SUPPORTED;
  const char *why = find_reason(cuda, device);
  *lent = (colli_gpu_dmabuf){-1, at - begin};
  if (!why)
    result = cuda->mem_get_range_handle(&lent->fd, begin, whole,
                                        COLLI_CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  if (result == COLLI_CUDA_SUCCESS)
    lent->fd = COLLI_FD(lent->fd);  /* not around the call, which may wait for kernels */
  if (result == COLLI_CUDA_SUCCESS) /* virtual memory has no such attribute */
    (void)cuda->pointer_set_attribute(&on, COLLI_CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at);
  else if (!why)
    colli_cuda_fail(cuda, &error, "cuMemGetHandleForAddressRange", device, result);
  colli_gpu_leave(gpu, &before);
  if (result != COLLI_CUDA_SUCCESS)
    colli_gpu_lend_refused(gpu, device, why != NULL, log, why ? why : error.message);
  return result == COLLI_CUDA_SUCCESS;
}

coll_status colli_gpu_flush(colli_gpu *gpu, int device, coll_error *error) {
  colli_gpu_thread before;
  const coll_status status = colli_gpu_enter(gpu, device, &before, error);
  if (status != COLL_OK)
    return status;
  colli_cu_result result = COLLI_CUDA_SUCCESS;
  if (needs_flush(&gpu->cuda, device))
    result = gpu->cuda.flush_rdma_writes(COLLI_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                         COLLI_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
  colli_gpu_leave(gpu, &before);
  return colli_cuda_status(&gpu->cuda, error, "cuFlushGPUDirectRDMAWrites", device, result);
}
