/* peers.c: areas into GPU memory, and who can look into whose. */
#include "libcoll/gpu/peers.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"

/* Drivers hand out memory to other processes in blocks of this size; a shorter area could share
 * its block with other memory of the program. */
#define GRAIN ((size_t)2 << 20)

/* Distinguishes this process from others of its host, which may be in other pid namespaces. */
static uint64_t own_process(void) {
  struct stat ns = {0};
  (void)stat("/proc/self/ns/pid", &ns);
  return (uint64_t)ns.st_ino << 32 ^ (uint64_t)getpid();
}

/* The length of an area. */
static size_t area_bytes(size_t slot_bytes) {
  const size_t bytes = COLLI_GPU_WORDS_BYTES + (COLLI_GPU_SLOTS + 2) * slot_bytes;
  return (bytes + GRAIN - 1) / GRAIN * GRAIN;
}

/* Fails for a function of the driver; memory of the device may be short. */
static coll_status fail(const colli_gpu_peers *peers, coll_error *error, const char *function,
                        colli_cu_result result) {
  if (result != COLLI_CUDA_ERROR_OUT_OF_MEMORY)
    return colli_cuda_fail(&peers->gpu->cuda, error, function, peers->device, result);
  return colli_error_set(error, COLL_ERR_NO_MEMORY, NULL,
                         "GPU %d has no %zu bytes left for an area; lower COLL_GPU_SLOT_BYTES",
                         peers->device, area_bytes(peers->slot_bytes));
}

/* Allocates this rank's area, with words that are 0, and describes it. The device is entered. */
static coll_status make_area(colli_gpu_peers *peers, colli_gpu_offer *offer, coll_error *error) {
  const colli_cuda *cuda = &peers->gpu->cuda;
  const colli_cu_stream stream = peers->gpu->devices[peers->device].stream;
  colli_cu_deviceptr *area = &peers->area[peers->rank];
  const char *function = "cuMemAlloc";
  colli_cu_result result = cuda->mem_alloc(area, area_bytes(peers->slot_bytes));
  if (result != COLLI_CUDA_SUCCESS) {
    *area = 0;
    return fail(peers, error, function, result);
  }
  function = "cuMemsetD32Async";
  result = cuda->memset_d32_async(*area, 0, COLLI_GPU_WORDS_BYTES / 4, stream);
  if (result == COLLI_CUDA_SUCCESS) {
    function = "cuStreamSynchronize";
    result = cuda->stream_synchronize(stream);
    if (result != COLLI_CUDA_SUCCESS)
      *area = 0; /* kept, because the stream may still write to it */
  }
  if (result == COLLI_CUDA_SUCCESS) {
    function = "cuDeviceGetUuid";
    result = cuda->device_get_uuid(&offer->uuid, peers->device);
  }
  if (result != COLLI_CUDA_SUCCESS)
    return fail(peers, error, function, result);
  offer->shared = cuda->ipc_get_mem_handle(&offer->handle, *area) == COLLI_CUDA_SUCCESS;
  offer->at = *area;
  offer->device = peers->device;
  offer->process = own_process();
  offer->slot_bytes = peers->slot_bytes;
  offer->ready = true;
  return COLL_OK;
}

coll_status colli_gpu_peers_open(colli_gpu *gpu, int device, int rank, int nranks,
                                 size_t slot_bytes, colli_gpu_peers **out, colli_gpu_offer *offer,
                                 coll_error *error) {
  COLLI_ASSERT_RANK(rank >= 0 && rank < nranks && slot_bytes % 64 == 0, rank);
  *out = NULL;
  colli_gpu_peers *peers = calloc(1, sizeof(*peers));
  if (peers) {
    *peers = (colli_gpu_peers){gpu, device, rank, nranks, slot_bytes, NULL, NULL};
    peers->area = calloc((size_t)nranks, sizeof(*peers->area));
    peers->opened = calloc((size_t)nranks, sizeof(*peers->opened));
  }
  colli_gpu_thread before;
  coll_status status;
  if (!peers || !peers->area || !peers->opened)
    status = colli_error_set(error, COLL_ERR_NO_MEMORY, NULL,
                             "out of memory for the areas of %d ranks", nranks);
  else
    status = colli_gpu_enter(gpu, device, &before, error);
  if (status == COLL_OK) {
    status = make_area(peers, offer, error);
    colli_gpu_leave(gpu, &before);
  }
  if (status == COLL_OK)
    *out = peers;
  else
    colli_gpu_peers_free(peers, false);
  return status;
}

/* ---- the others ------------------------------------------------------------------------------ */

/* The number that this process has for a peer's device, or -1: it does not see it. */
static int find_device(const colli_gpu *gpu, const colli_cu_uuid *wanted) {
  for (int device = 0; device < gpu->ndevices; device++) {
    colli_cu_uuid uuid;
    if (gpu->cuda.device_get_uuid(&uuid, device) == COLLI_CUDA_SUCCESS &&
        memcmp(&uuid, wanted, sizeof(uuid)) == 0)
      return device;
  }
  return -1;
}

/* Lets this rank's device use memory that another device of this process allocated. */
static coll_status reach(const colli_gpu_peers *peers, int device, coll_error *error) {
  const colli_cuda *cuda = &peers->gpu->cuda;
  colli_cu_context context;
  const char *function = "cuDevicePrimaryCtxRetain"; /* its owner is a thread that has it as well */
  colli_cu_result result = cuda->primary_ctx_retain(&context, device);
  if (result != COLLI_CUDA_SUCCESS)
    return fail(peers, error, function, result);
  function = "cuCtxEnablePeerAccess";
  result = cuda->ctx_enable_peer_access(context, 0);
  cuda->primary_ctx_release(device);
  if (result == COLLI_CUDA_SUCCESS || result == COLLI_CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
    return COLL_OK;
  return fail(peers, error, function, result);
}

/* Whether a device can use memory of another one, in its own way. */
static bool can_access(const colli_gpu *gpu, int from, int device) {
  int can = 0;
  if (device == from)
    return true;
  return device >= 0 && device < gpu->ndevices &&
         gpu->cuda.device_can_access_peer(&can, from, device) == COLLI_CUDA_SUCCESS && can;
}

bool colli_gpu_reaches(const colli_gpu *gpu, int device, const colli_cu_uuid *uuid) {
  return can_access(gpu, device, find_device(gpu, uuid));
}

/* Maps the area of one other rank. */
static coll_status map(colli_gpu_peers *peers, int rank, const colli_gpu_offer *offer,
                       coll_error *error) {
  const colli_cuda *cuda = &peers->gpu->cuda;
  const bool here = offer->process == own_process();
  const int device = here ? offer->device : find_device(peers->gpu, &offer->uuid);
  if (device < 0)
    return colli_error_set(error, COLL_ERR_UNSUPPORTED, NULL,
                           "rank %d's GPU is hidden from this process; CUDA_VISIBLE_DEVICES must "
                           "list the GPUs of all ranks",
                           rank);
  if (!can_access(peers->gpu, peers->device, device))
    return colli_error_set(error, COLL_ERR_UNSUPPORTED, NULL,
                           "GPU %d has no peer access to rank %d's GPU %d", peers->device, rank,
                           device);
  if (here) {
    peers->area[rank] = offer->at;
    return device == peers->device ? COLL_OK : reach(peers, device, error);
  }
  if (!offer->shared)
    return colli_error_set(error, COLL_ERR_UNSUPPORTED, NULL,
                           "the driver does not share memory of rank %d's GPU with other processes",
                           rank);
  const colli_cu_result result = cuda->ipc_open_mem_handle(
      &peers->area[rank], offer->handle, COLLI_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (result != COLLI_CUDA_SUCCESS)
    return fail(peers, error, "cuIpcOpenMemHandle", result);
  peers->opened[rank] = true;
  return COLL_OK;
}

coll_status colli_gpu_peers_map(colli_gpu_peers *peers, const colli_gpu_offer *offers,
                                coll_error *error) {
  const colli_gpu_offer *own = &offers[peers->rank];
  colli_gpu_thread before;
  coll_status status = colli_gpu_enter(peers->gpu, peers->device, &before, error);
  if (status != COLL_OK)
    return status;
  for (int rank = 0; rank < peers->nranks && status == COLL_OK; rank++) {
    const colli_gpu_offer *offer = &offers[rank];
    if (offer->slot_bytes != own->slot_bytes || offer->mode != own->mode)
      status = colli_error_set(error, COLL_ERR_UNSUPPORTED, NULL,
                               "COLL_GPU_SLOT_BYTES or COLL_GPU_MODE differ from rank %d's", rank);
    else if (rank != peers->rank)
      status = map(peers, rank, offer, error);
  }
  colli_gpu_leave(peers->gpu, &before);
  return status;
}

void colli_gpu_peers_unmap(colli_gpu_peers *peers) {
  colli_gpu_thread before;
  if (colli_gpu_enter(peers->gpu, peers->device, &before, NULL) != COLL_OK)
    return;
  for (int rank = 0; rank < peers->nranks; rank++)
    if (peers->opened[rank])
      peers->gpu->cuda.ipc_close_mem_handle(peers->area[rank]);
  memset(peers->opened, 0, (size_t)peers->nranks * sizeof(*peers->opened));
  colli_gpu_leave(peers->gpu, &before);
}

void colli_gpu_peers_free(colli_gpu_peers *peers, bool keep) {
  colli_gpu_thread before;
  if (!peers)
    return;
  if (!keep && peers->area && peers->area[peers->rank] &&
      colli_gpu_enter(peers->gpu, peers->device, &before, NULL) == COLL_OK) {
    peers->gpu->cuda.mem_free(peers->area[peers->rank]);
    colli_gpu_leave(peers->gpu, &before);
  }
  free(peers->area);
  free(peers->opened);
  free(peers);
}
