/* virtual_memory.c: how several processes, or devices of one, map the same virtual memory. */
#include "libcoll/gpu/virtual_memory.h"

#include <fcntl.h>

#include "libcoll/base/error.h"
#include "libcoll/base/fork.h"
#include "libcoll/gpu/devices.h"

colli_cu_result colli_gpu_find_memory(const colli_cuda *cuda, uint64_t at, colli_gpu_found *found) {
  colli_cu_pointer_attribute attributes[] = {COLLI_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                             COLLI_CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                             COLLI_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                             COLLI_CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                             COLLI_CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                                             COLLI_CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
  void *values[] = {&found->type,  &found->managed,      &found->device,
                    &found->plain, &found->handle_types, &found->pool};
  *found = (colli_gpu_found){.device = COLLI_GPU_HOST};
  const colli_cu_result result = cuda->pointer_get_attributes(6, attributes, values, at);
  if (result != COLLI_CUDA_SUCCESS || found->type != COLLI_CU_MEMORYTYPE_DEVICE)
    return result;
  /* The attributes RANGE_START_ADDR and RANGE_SIZE tell of several mappings as if they were one. */
  return cuda->mem_get_address_range(&found->begin, &found->bytes, at);
}

/* ---- the owner's part ------------------------------------------------------------------------ */

/* Whether an address is one of virtual memory: *is. Its allocation is held for a moment only, since
 * the program keeps the memory. */
static coll_status look(const colli_cuda *cuda, int device, uint64_t at, bool *is,
                        coll_error *error) {
  colli_cu_allocation handle;
  const colli_cu_result result = cuda->mem_retain_allocation_handle(&handle, (void *)at);
  *is = result == COLLI_CUDA_SUCCESS;
  if (*is)
    cuda->mem_release(handle);
  if (*is || result == COLLI_CUDA_ERROR_INVALID_VALUE || result == COLLI_CUDA_ERROR_NOT_SUPPORTED)
    return COLL_OK;
  return colli_cuda_fail(cuda, error, "cuMemRetainAllocationHandle", device, result);
}

coll_status colli_gpu_virtual_measure(const colli_cuda *cuda, int device, uint64_t at, size_t bytes,
                                      colli_gpu_extent *extent, coll_error *error) {
  bool is;
  const coll_status status = look(cuda, device, at, &is, error);
  *extent = (colli_gpu_extent){.has_handles = true};
  if (status != COLL_OK || !is)
    return status;
  uint64_t begin = 0;
  for (uint64_t next = at; next < at + bytes; next = begin + extent->bytes) {
    colli_gpu_found it;
    const colli_cu_result result = colli_gpu_find_memory(cuda, next, &it);
    if (result != COLLI_CUDA_SUCCESS)
      return colli_cuda_fail(cuda, error, "cuPointerGetAttributes", device, result);
    if (next == at)
      begin = it.begin;
    if (it.type != COLLI_CU_MEMORYTYPE_DEVICE || it.device != device || it.bytes == 0 ||
        it.begin != begin + extent->bytes)
      return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, NULL,
                             "%zu bytes are more than are mapped on GPU %d from ptr on", bytes,
                             device);
    extent->bytes += it.bytes;
    if (!(it.handle_types & COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
      extent->has_handles = false;
  }
  extent->offset = at - begin;
  return COLL_OK;
}

coll_status colli_gpu_virtual_export(const colli_cuda *cuda, int device, uint64_t at, int *fd,
                                     uint64_t *bytes, coll_error *error) {
  colli_gpu_found it;
  colli_cu_allocation handle;
  const char *function = "cuPointerGetAttributes";
  colli_cu_result result = colli_gpu_find_memory(cuda, at, &it);
  if (result == COLLI_CUDA_SUCCESS) {
    function = "cuMemRetainAllocationHandle";
    result = cuda->mem_retain_allocation_handle(&handle, (void *)at);
  }
  if (result != COLLI_CUDA_SUCCESS)
    return colli_cuda_fail(cuda, error, function, device, result);
  result = cuda->mem_export(fd, handle, COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  cuda->mem_release(handle);
  if (result != COLLI_CUDA_SUCCESS)
    return colli_cuda_fail(cuda, error, "cuMemExportToShareableHandle", device, result);
  *bytes = it.bytes;
  *fd = COLLI_FD(*fd); /* not around the call, which may wait for kernels */
  (void)fcntl(*fd, F_SETFD, FD_CLOEXEC);
  return COLL_OK;
}

/* ---- the others' part ------------------------------------------------------------------------ */

coll_status colli_gpu_view_reserve(const colli_cuda *cuda, int device, uint64_t bytes,
                                   colli_gpu_view *view, coll_error *error) {
  *view = (colli_gpu_view){.at = 0};
  const colli_cu_result result = cuda->mem_address_reserve(&view->at, bytes, 0, 0, 0);
  if (result != COLLI_CUDA_SUCCESS) {
    view->at = 0;
    return colli_cuda_fail(cuda, error, "cuMemAddressReserve", device, result);
  }
  view->reserved = bytes;
  return COLL_OK;
}

/* Lets the device access a view. To read would do, but drivers are only known to take this. */
static colli_cu_result allow(const colli_cuda *cuda, int device, const colli_gpu_view *view) {
  const colli_cu_access access = {{COLLI_CU_MEM_LOCATION_TYPE_DEVICE, device},
                                  COLLI_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return cuda->mem_set_access(view->at, view->reserved, &access, 1);
}

/* Maps the next bytes, of an allocation that is released: the mapping keeps it. */
static coll_status map_next(const colli_cuda *cuda, int device, colli_gpu_view *view,
                            colli_cu_allocation handle, uint64_t bytes, coll_error *error) {
  const char *function = "cuMemMap";
  colli_cu_result result = cuda->mem_map(view->at + view->mapped, bytes, 0, handle, 0);
  cuda->mem_release(handle);
  if (result == COLLI_CUDA_SUCCESS) {
    view->mapped += bytes;
    if (view->mapped == view->reserved) {
      function = "cuMemSetAccess";
      result = allow(cuda, device, view);
    }
  }
  return result == COLLI_CUDA_SUCCESS ? COLL_OK
                                      : colli_cuda_fail(cuda, error, function, device, result);
}

coll_status colli_gpu_view_import(const colli_cuda *cuda, int device, colli_gpu_view *view, int fd,
                                  uint64_t bytes, coll_error *error) {
  colli_cu_allocation handle;
  if (bytes > view->reserved - view->mapped)
    return colli_error_set(error, COLL_ERR_PROTOCOL, NULL,
                           "a rank gives more virtual memory than it said");
  const colli_cu_result result = cuda->mem_import(&handle, (void *)(intptr_t)fd,
                                                  COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != COLLI_CUDA_SUCCESS)
    return colli_cuda_fail(cuda, error, "cuMemImportFromShareableHandle", device, result);
  return map_next(cuda, device, view, handle, bytes, error);
}

coll_status colli_gpu_view_copy(const colli_cuda *cuda, int device, colli_gpu_view *view,
                                uint64_t from, coll_error *error) {
  coll_status status = COLL_OK;
  while (view->mapped < view->reserved && status == COLL_OK) {
    colli_gpu_found it;
    colli_cu_allocation handle;
    const char *function = "cuPointerGetAttributes";
    colli_cu_result result = colli_gpu_find_memory(cuda, from + view->mapped, &it);
    if (result == COLLI_CUDA_SUCCESS) {
      function = "cuMemRetainAllocationHandle";
      result = cuda->mem_retain_allocation_handle(&handle, (void *)(from + view->mapped));
    }
    if (result != COLLI_CUDA_SUCCESS)
      return colli_cuda_fail(cuda, error, function, device, result);
    status = map_next(cuda, device, view, handle, it.bytes, error);
  }
  return status;
}

void colli_gpu_view_end(const colli_cuda *cuda, colli_gpu_view *view) {
  if (view->mapped > 0)
    cuda->mem_unmap(view->at, view->mapped);
  if (view->reserved > 0)
    cuda->mem_address_free(view->at, view->reserved);
  *view = (colli_gpu_view){.at = 0};
}
