/* pool_memory.c: how several processes, or devices of one, reach the same memory of a pool. */
#include "libcoll/gpu/pool_memory.h"

#include <fcntl.h>

#include "libcoll/base/error.h"
#include "libcoll/base/fork.h"

/* The pool that has an address. */
static coll_status find_pool(const colli_cuda *cuda, int device, uint64_t at, colli_cu_pool *pool,
                             coll_error *error) {
  colli_gpu_found it;
  const colli_cu_result result = colli_gpu_find_memory(cuda, at, &it);
  *pool = it.pool;
  return colli_cuda_status(cuda, error, "cuPointerGetAttributes", device, result);
}

/* To read would do, but drivers are only known to take this. */
static colli_cu_result allow(const colli_cuda *cuda, int device, colli_cu_pool pool) {
  const colli_cu_access access = {{COLLI_CU_MEM_LOCATION_TYPE_DEVICE, device},
                                  COLLI_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return cuda->pool_set_access(pool, &access, 1);
}

bool colli_gpu_pool_describe(const colli_cuda *cuda, uint64_t begin,
                             colli_cu_pool_pointer *pointer) {
  return cuda->pool_export_pointer(pointer, begin) == COLLI_CUDA_SUCCESS;
}

coll_status colli_gpu_pool_export(const colli_cuda *cuda, int device, uint64_t at, int *fd,
                                  coll_error *error) {
  colli_cu_pool pool;
  const coll_status status = find_pool(cuda, device, at, &pool, error);
  if (status != COLL_OK)
    return status;
  const colli_cu_result result =
      cuda->pool_export(fd, pool, COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (result != COLLI_CUDA_SUCCESS)
    return colli_cuda_fail(cuda, error, "cuMemPoolExportToShareableHandle", device, result);
  *fd = COLLI_FD(*fd); /* not around the call, which may wait for kernels */
  (void)fcntl(*fd, F_SETFD, FD_CLOEXEC);
  return COLL_OK;
}

coll_status colli_gpu_pool_import(const colli_cuda *cuda, int device, int fd,
                                  const colli_cu_pool_pointer *pointer, colli_gpu_view *view,
                                  coll_error *error) {
  colli_cu_pool_pointer copy = *pointer;
  *view = (colli_gpu_view){.at = 0};
  colli_cu_result result = cuda->pool_import(&view->pool, (void *)(intptr_t)fd,
                                             COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (result != COLLI_CUDA_SUCCESS) {
    view->pool = NULL;
    return colli_cuda_fail(cuda, error, "cuMemPoolImportFromShareableHandle", device, result);
  }
  const char *function = "cuMemPoolSetAccess";
  result = allow(cuda, device, view->pool);
  if (result == COLLI_CUDA_SUCCESS) {
    function = "cuMemPoolImportPointer";
    result = cuda->pool_import_pointer(&view->at, view->pool, &copy);
    if (result != COLLI_CUDA_SUCCESS)
      view->at = 0;
  }
  return colli_cuda_status(cuda, error, function, device, result);
}

void colli_gpu_pool_end(const colli_cuda *cuda, colli_gpu_view *view) {
  if (view->at)
    cuda->mem_free(view->at);
  cuda->pool_destroy(view->pool);
  *view = (colli_gpu_view){.at = 0};
}

coll_status colli_gpu_pool_allow(const colli_cuda *cuda, int device, uint64_t at,
                                 coll_error *error) {
  colli_cu_pool pool;
  const coll_status status = find_pool(cuda, device, at, &pool, error);
  if (status != COLL_OK)
    return status;
  return colli_cuda_status(cuda, error, "cuMemPoolSetAccess", device, allow(cuda, device, pool));
}
