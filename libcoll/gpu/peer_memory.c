/* peer_memory.c: memory of the program into which all ranks look. */
#include "libcoll/gpu/peer_memory.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"

#define GRAIN ((size_t)2 << 20) /* as in peers.c */
#define LOW   255u              /* allocations and mappings begin at multiples of 256 */

/* Whether an address is in memory of this rank's device. */
static bool is_there(const colli_gpu_peers *peers, const colli_gpu_found *it) {
  return it->type == COLLI_CU_MEMORYTYPE_DEVICE && !it->managed && it->device == peers->device;
}

/* Refuses memory that ends too early. */
static coll_status refuse_length(size_t bytes, coll_error *error) {
  return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, NULL,
                         "%zu bytes are more than the allocation has from ptr on", bytes);
}

/* Finds where the memory begins in its allocation, which must have all of it. */
static coll_status locate(const colli_gpu_found *it, colli_gpu_memory_offer *offer,
                          coll_error *error) {
  offer->offset = offer->at - it->begin;
  return offer->offset + offer->bytes > it->bytes ? refuse_length(offer->bytes, error) : COLL_OK;
}

/* Describes memory of an allocation that has handles. */
static coll_status describe_plain(const colli_cuda *cuda, const colli_gpu_found *it,
                                  colli_gpu_memory_offer *offer, coll_error *error) {
  offer->kind = COLLI_GPU_PLAIN;
  offer->shared = cuda->ipc_get_mem_handle(&offer->by.handle, it->begin) == COLLI_CUDA_SUCCESS;
  return locate(it, offer, error);
}

/* Describes memory of a pool. */
static coll_status describe_pooled(const colli_cuda *cuda, const colli_gpu_found *it,
                                   colli_gpu_memory_offer *offer, coll_error *error) {
  offer->kind = COLLI_GPU_POOLED;
  offer->extent = it->bytes;
  offer->shared = colli_gpu_pool_describe(cuda, it->begin, &offer->by.pointer);
  return locate(it, offer, error);
}

/* Describes other memory. */
static coll_status describe_other(const colli_gpu_peers *peers, colli_gpu_memory_offer *offer,
                                  coll_error *error) {
  const colli_cuda *cuda = &peers->gpu->cuda;
  colli_gpu_extent extent;
  colli_gpu_found last;
  const coll_status status =
      colli_gpu_virtual_measure(cuda, peers->device, offer->at, offer->bytes, &extent, error);
  if (status != COLL_OK)
    return status;
  if (extent.bytes > 0) {
    offer->kind = COLLI_GPU_VIRTUAL;
    offer->offset = extent.offset;
    offer->extent = extent.bytes;
    offer->shared = extent.has_handles;
    return COLL_OK;
  }
  const colli_cu_result result = colli_gpu_find_memory(cuda, offer->at + offer->bytes - 1, &last);
  if (result != COLLI_CUDA_SUCCESS)
    return colli_cuda_fail(cuda, error, "cuPointerGetAttributes", peers->device, result);
  offer->kind = COLLI_GPU_UNSHARED;
  return is_there(peers, &last) ? COLL_OK : refuse_length(offer->bytes, error);
}

/* Describes memory; the device is entered. */
static coll_status describe(const colli_gpu_peers *peers, colli_gpu_memory_offer *offer,
                            coll_error *error) {
  const colli_cuda *cuda = &peers->gpu->cuda;
  colli_gpu_found it;
  const colli_cu_result result = colli_gpu_find_memory(cuda, offer->at, &it);
  if (result != COLLI_CUDA_SUCCESS)
    return colli_cuda_fail(cuda, error, "cuPointerGetAttributes", peers->device, result);
  if (!is_there(peers, &it))
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, NULL,
                           "ptr is not memory of GPU %d, which the communicator uses",
                           peers->device);
  return it.pool    ? describe_pooled(cuda, &it, offer, error)
         : it.plain ? describe_plain(cuda, &it, offer, error)
                    : describe_other(peers, offer, error);
}

coll_status colli_gpu_memory_describe(const colli_gpu_peers *peers, const void *at, size_t bytes,
                                      colli_gpu_memory_offer *offer, coll_error *error) {
  *offer = (colli_gpu_memory_offer){.at = (uint64_t)at, .bytes = bytes, .device = peers->device};
  colli_gpu_thread before;
  if (!at || bytes == 0 || (uint64_t)at + bytes < bytes)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, NULL,
                           !at     ? "ptr is NULL"
                           : bytes ? "bytes is too large"
                                   : "bytes is 0");
  coll_status status = colli_gpu_enter(peers->gpu, peers->device, &before, error);
  if (status != COLL_OK)
    return status;
  status = describe(peers, offer, error);
  colli_gpu_leave(peers->gpu, &before);
  return status;
}

/* ---- the others ------------------------------------------------------------------------------ */

/* Refuses memory that this process or its device cannot have. */
static coll_status refuse_kind(int rank, const colli_gpu_memory_offer *offer, coll_error *error) {
  const char *why =
      offer->kind == COLLI_GPU_PLAIN ? "memory is not shared with other processes by the driver"
      : offer->kind == COLLI_GPU_VIRTUAL
          ? "virtual memory has no descriptors: request the handle type POSIX_FILE_DESCRIPTOR, "
            "or set TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=1"
      : offer->kind == COLLI_GPU_POOLED
          ? "pool gives no descriptors: make one with the handle type POSIX_FILE_DESCRIPTOR, or "
            "use cudaMalloc() or coll_mem_alloc_gpu()"
          : "memory is shared with no other device by the driver";
  return colli_error_set(error, COLL_ERR_UNSUPPORTED, NULL, "rank %d's %s", rank, why);
}

/* Opens plain memory of another process. */
static coll_status open_plain(const colli_gpu_peers *peers, int rank,
                              const colli_gpu_memory_offer *offer, colli_gpu_memory *memory,
                              coll_error *error) {
  const colli_cuda *cuda = &peers->gpu->cuda;
  colli_gpu_view *view = &memory->views[rank];
  const colli_cu_result result = cuda->ipc_open_mem_handle(
      &view->at, offer->by.handle, COLLI_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (result != COLLI_CUDA_SUCCESS) {
    view->at = 0;
    return colli_cuda_fail(cuda, error, "cuIpcOpenMemHandle", peers->device, result);
  }
  memory->at[rank] = view->at + offer->offset;
  return COLL_OK;
}

/* Reserves addresses for virtual memory; that of this process is mapped there. */
static coll_status open_virtual(const colli_gpu_peers *peers, int rank,
                                const colli_gpu_memory_offer *offer, colli_gpu_memory *memory,
                                coll_error *error) {
  const colli_cuda *cuda = &peers->gpu->cuda;
  colli_gpu_view *view = &memory->views[rank];
  if (offer->offset > offer->extent || offer->bytes > offer->extent - offer->offset)
    return colli_error_set(error, COLL_ERR_PROTOCOL, NULL,
                           "rank %d's virtual memory is longer than its allocations", rank);
  coll_status status = colli_gpu_view_reserve(cuda, peers->device, offer->extent, view, error);
  if (status == COLL_OK && !peers->opened[rank])
    status = colli_gpu_view_copy(cuda, peers->device, view, offer->at - offer->offset, error);
  if (status == COLL_OK)
    memory->at[rank] = view->at + offer->offset;
  return status;
}

/* Lets this device access a pool of this process; that of another one comes by a descriptor. */
static coll_status open_pooled(const colli_gpu_peers *peers, int rank,
                               const colli_gpu_memory_offer *offer, colli_gpu_memory *memory,
                               coll_error *error) {
  if (peers->opened[rank])
    return COLL_OK;
  memory->at[rank] = offer->at;
  return colli_gpu_pool_allow(&peers->gpu->cuda, peers->device, offer->at, error);
}

/* Maps the memory of one rank; the device is entered. An area that was opened belongs to another
 * process. */
static coll_status map(const colli_gpu_peers *peers, int rank, const colli_gpu_memory_offer *offer,
                       colli_gpu_memory *memory, coll_error *error) {
  const bool here = !peers->opened[rank];
  if (here && (offer->device == peers->device || offer->kind == COLLI_GPU_PLAIN)) {
    memory->at[rank] = offer->at;
    return COLL_OK;
  }
  if (offer->kind == COLLI_GPU_UNSHARED || (!here && !offer->shared))
    return refuse_kind(rank, offer, error);
  return offer->kind == COLLI_GPU_PLAIN     ? open_plain(peers, rank, offer, memory, error)
         : offer->kind == COLLI_GPU_VIRTUAL ? open_virtual(peers, rank, offer, memory, error)
                                            : open_pooled(peers, rank, offer, memory, error);
}

coll_status colli_gpu_memory_map(const colli_gpu_peers *peers, const colli_gpu_memory_offer *offers,
                                 colli_gpu_memory *memory, coll_error *error) {
  colli_gpu_thread before;
  *memory = (colli_gpu_memory){.low = 0};
  memory->at = calloc((size_t)peers->nranks, sizeof(*memory->at));
  memory->views = calloc((size_t)peers->nranks, sizeof(*memory->views));
  if (!memory->at || !memory->views)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, NULL, "out of memory for %d addresses",
                           peers->nranks);
  coll_status status = colli_gpu_enter(peers->gpu, peers->device, &before, error);
  if (status != COLL_OK)
    return status;
  for (int rank = 0; rank < peers->nranks && status == COLL_OK; rank++) {
    memory->low |= offers[rank].at & LOW;
    if (rank == peers->rank)
      memory->at[rank] = offers[rank].at;
    else
      status = map(peers, rank, &offers[rank], memory, error);
  }
  colli_gpu_leave(peers->gpu, &before);
  return status;
}

coll_status colli_gpu_memory_export(const colli_gpu_peers *peers, const colli_gpu_memory_offer *own,
                                    uint64_t given, int *fd, uint64_t *bytes, coll_error *error) {
  colli_gpu_thread before;
  coll_status status = colli_gpu_enter(peers->gpu, peers->device, &before, error);
  if (status != COLL_OK)
    return status;
  const colli_cuda *cuda = &peers->gpu->cuda;
  const uint64_t at = own->at - own->offset + given;
  *bytes = own->extent;
  status = own->kind == COLLI_GPU_POOLED
               ? colli_gpu_pool_export(cuda, peers->device, at, fd, error)
               : colli_gpu_virtual_export(cuda, peers->device, at, fd, bytes, error);
  colli_gpu_leave(peers->gpu, &before);
  return status;
}

coll_status colli_gpu_memory_import(const colli_gpu_peers *peers, int rank,
                                    const colli_gpu_memory_offer *offer, int fd, uint64_t bytes,
                                    colli_gpu_memory *memory, coll_error *error) {
  const colli_cuda *cuda = &peers->gpu->cuda;
  colli_gpu_view *view = &memory->views[rank];
  colli_gpu_thread before;
  coll_status status = colli_gpu_enter(peers->gpu, peers->device, &before, error);
  if (status != COLL_OK)
    return status;
  if (offer->kind == COLLI_GPU_VIRTUAL) {
    status = colli_gpu_view_import(cuda, peers->device, view, fd, bytes, error);
  } else {
    status = colli_gpu_pool_import(cuda, peers->device, fd, &offer->by.pointer, view, error);
    memory->at[rank] = view->at + offer->offset;
  }
  colli_gpu_leave(peers->gpu, &before);
  return status;
}

void colli_gpu_memory_unmap(const colli_gpu_peers *peers, colli_gpu_memory *memory) {
  colli_gpu_thread before;
  if (memory->views && colli_gpu_enter(peers->gpu, peers->device, &before, NULL) == COLL_OK) {
    for (int rank = 0; rank < peers->nranks; rank++)
      if (memory->views[rank].pool)
        colli_gpu_pool_end(&peers->gpu->cuda, &memory->views[rank]);
      else if (memory->views[rank].reserved)
        colli_gpu_view_end(&peers->gpu->cuda, &memory->views[rank]);
      else if (memory->views[rank].at)
        peers->gpu->cuda.ipc_close_mem_handle(memory->views[rank].at);
    colli_gpu_leave(peers->gpu, &before);
  }
  free(memory->at);
  free(memory->views);
  *memory = (colli_gpu_memory){.low = 0};
}

/* ---- memory of the library's own ------------------------------------------------------------- */

/* Makes memory 0; the device is entered. */
static coll_status clear(const colli_gpu_peers *peers, colli_cu_deviceptr at, size_t bytes,
                         coll_error *error) {
  const colli_cuda *cuda = &peers->gpu->cuda;
  const colli_cu_stream stream = peers->gpu->devices[peers->device].stream;
  const char *function = "cuMemsetD32Async";
  colli_cu_result result = cuda->memset_d32_async(at, 0, bytes / sizeof(uint32_t), stream);
  if (result == COLLI_CUDA_SUCCESS) {
    function = "cuStreamSynchronize";
    result = cuda->stream_synchronize(stream);
  }
  return colli_cuda_status(cuda, error, function, peers->device, result);
}

coll_status colli_gpu_memory_take(const colli_gpu_peers *peers, size_t bytes, void **at,
                                  coll_error *error) {
  colli_gpu_thread before;
  colli_cu_deviceptr taken = 0;
  *at = NULL;
  if (bytes == 0 || bytes > SIZE_MAX - GRAIN)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, NULL,
                           bytes ? "bytes is too large" : "bytes is 0");
  coll_status status = colli_gpu_enter(peers->gpu, peers->device, &before, error);
  if (status != COLL_OK)
    return status;
  const size_t whole = (bytes + GRAIN - 1) / GRAIN * GRAIN;
  const colli_cu_result result = peers->gpu->cuda.mem_alloc(&taken, whole);
  if (result == COLLI_CUDA_ERROR_OUT_OF_MEMORY)
    status = colli_error_set(error, COLL_ERR_NO_MEMORY, NULL, "GPU %d has no %zu bytes left",
                             peers->device, whole);
  else if (result != COLLI_CUDA_SUCCESS)
    status = colli_cuda_fail(&peers->gpu->cuda, error, "cuMemAlloc", peers->device, result);
  else
    status = clear(peers, taken, whole, error);
  if (status == COLL_OK)
    *at = (void *)taken; /* else what is there is kept: the driver has failed */
  colli_gpu_leave(peers->gpu, &before);
  return status;
}

void colli_gpu_memory_give(const colli_gpu_peers *peers, void *at) {
  colli_gpu_thread before;
  if (!at || colli_gpu_enter(peers->gpu, peers->device, &before, NULL) != COLL_OK)
    return;
  peers->gpu->cuda.mem_free((colli_cu_deviceptr)at);
  colli_gpu_leave(peers->gpu, &before);
}
