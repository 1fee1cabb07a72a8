/* peer_memory.c: memory of the program into which all ranks look. */
#include "libcoll/gpu/peer_memory.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"

#define GRAIN ((size_t)2 << 20) /* as in peers.c */
#define LOW   255u              /* allocations and mappings begin at multiples of 256 */

/* What the driver knows of an address. */
typedef struct found {
  unsigned type, managed, plain;
  int device;
  uint64_t begin;
  size_t bytes; /* of the range that begins there */
} found;

static colli_cu_result ask(const colli_cuda *cuda, uint64_t at, found *it) {
  colli_cu_pointer_attribute attributes[] = {COLLI_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                             COLLI_CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                             COLLI_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                             COLLI_CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                             COLLI_CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                             COLLI_CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
  void *values[] = {&it->type, &it->managed, &it->device, &it->begin, &it->bytes, &it->plain};
  *it = (found){.device = COLLI_GPU_HOST};
  return cuda->pointer_get_attributes(6, attributes, values, at);
}

/* Whether an address is in memory of this rank's device. */
static bool is_there(const colli_gpu_peers *peers, const found *it) {
  return it->type == COLLI_CU_MEMORYTYPE_DEVICE && !it->managed && it->device == peers->device;
}

/* Describes memory; the device is entered. */
static coll_status describe(const colli_gpu_peers *peers, uint64_t at, size_t bytes,
                            colli_gpu_memory_offer *offer, coll_error *error) {
  const colli_cuda *cuda = &peers->gpu->cuda;
  found first, last;
  colli_cu_result result = ask(cuda, at, &first);
  if (result == COLLI_CUDA_SUCCESS)
    result = ask(cuda, at + bytes - 1, &last);
  if (result != COLLI_CUDA_SUCCESS)
    return colli_cuda_fail(cuda, error, "cuPointerGetAttributes", peers->device, result);
  if (!is_there(peers, &first))
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, NULL,
                           "ptr is not memory of GPU %d, which the communicator uses",
                           peers->device);
  const bool one = first.plain ? at + bytes <= first.begin + first.bytes : is_there(peers, &last);
  if (!one)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, NULL,
                           "%zu bytes are more than the allocation has from ptr on", bytes);
  offer->plain = first.plain != 0;
  offer->offset = at - first.begin;
  offer->shared =
      offer->plain && cuda->ipc_get_mem_handle(&offer->handle, first.begin) == COLLI_CUDA_SUCCESS;
  return COLL_OK;
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
  status = describe(peers, (uint64_t)at, bytes, offer, error);
  colli_gpu_leave(peers->gpu, &before);
  return status;
}

/* ---- the others ------------------------------------------------------------------------------ */

/* Maps the memory of one rank; the device is entered. An area that was opened belongs to another
 * process. */
static coll_status map(const colli_gpu_peers *peers, int rank, const colli_gpu_memory_offer *offer,
                       colli_gpu_memory *memory, coll_error *error) {
  const colli_cuda *cuda = &peers->gpu->cuda;
  const bool here = !peers->opened[rank];
  if (here && (offer->device == peers->device || offer->plain)) {
    memory->at[rank] = offer->at;
    return COLL_OK;
  }
  if (!offer->plain)
    return colli_error_set(error, COLL_ERR_UNSUPPORTED, NULL,
                           "rank %d's memory is of a pool or virtual, or the driver shares none; "
                           "use cudaMalloc() or coll_mem_alloc_gpu()",
                           rank);
  if (!offer->shared)
    return colli_error_set(error, COLL_ERR_UNSUPPORTED, NULL,
                           "the driver does not share rank %d's memory with other processes", rank);
  const colli_cu_result result = cuda->ipc_open_mem_handle(
      &memory->opened[rank], offer->handle, COLLI_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (result != COLLI_CUDA_SUCCESS) {
    memory->opened[rank] = 0;
    return colli_cuda_fail(cuda, error, "cuIpcOpenMemHandle", peers->device, result);
  }
  memory->at[rank] = memory->opened[rank] + offer->offset;
  return COLL_OK;
}

coll_status colli_gpu_memory_map(const colli_gpu_peers *peers, const colli_gpu_memory_offer *offers,
                                 colli_gpu_memory *memory, coll_error *error) {
  colli_gpu_thread before;
  *memory = (colli_gpu_memory){.low = 0};
  memory->at = calloc((size_t)peers->nranks, sizeof(*memory->at));
  memory->opened = calloc((size_t)peers->nranks, sizeof(*memory->opened));
  if (!memory->at || !memory->opened)
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

void colli_gpu_memory_unmap(const colli_gpu_peers *peers, colli_gpu_memory *memory) {
  colli_gpu_thread before;
  if (memory->opened && colli_gpu_enter(peers->gpu, peers->device, &before, NULL) == COLL_OK) {
    for (int rank = 0; rank < peers->nranks; rank++)
      if (memory->opened[rank])
        peers->gpu->cuda.ipc_close_mem_handle(memory->opened[rank]);
    colli_gpu_leave(peers->gpu, &before);
  }
  free(memory->at);
  free(memory->opened);
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
  if (result == COLLI_CUDA_SUCCESS)
    return COLL_OK;
  return colli_cuda_fail(cuda, error, function, peers->device, result);
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
