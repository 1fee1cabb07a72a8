/* direct.c: the ranks of a communicator share GPU memory, and stop that. */
#include "libcoll/stream/direct.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/comm/comm.h"
#include "libcoll/progress/enter.h"
#include "libcoll/run/run.h"
#include "libcoll/stream/direct_agree.h"
#include "libcoll/stream/direct_meet.h"
#include "libcoll/stream/direct_party.h"
#include "libcoll/stream/direct_register.h"

#define LEAVE_NS COLLI_NS_PER_S /* how long a destroy waits for the others' */
#define WORDS    64             /* for calls that are open at a time, pinned ahead */

const colli_direct_matter colli_direct_joining = {
    "comm_use_gpu", COLLI_MAKES_DIRECT, "calls in streams are staged through host memory"};

bool colli_direct_wanted(const coll_comm *comm) {
  if (!comm->gpu || comm->nranks == 1 ||
      comm->params.number[COLLI_PARAM_GPU_MODE] == COLLI_GPU_STAGED)
    return false;
  colli_cu_context context = NULL;
  return comm->gpu->cuda.ctx_get_current(&context) == COLLI_CUDA_SUCCESS && context;
}

/* ---- what this rank has ---------------------------------------------------------------------- */

/* Refuses for a reason that this rank knows alone. */
static coll_status refuse(coll_error *error, const char *reason) {
  return colli_error_set(error, COLL_ERR_UNSUPPORTED, NULL, "%s", reason);
}

/* The device of this thread's context. */
static coll_status find_device(const coll_comm *comm, int *device, coll_error *error) {
  const colli_cuda *cuda = &comm->gpu->cuda;
  colli_cu_context context = NULL;
  if (cuda->ctx_get_current(&context) != COLLI_CUDA_SUCCESS || !context)
    return refuse(error, "the thread has no CUDA context; call cudaSetDevice() first");
  const colli_cu_result result = cuda->ctx_get_device(device);
  if (result != COLLI_CUDA_SUCCESS)
    return colli_cuda_fail(cuda, error, "cuCtxGetDevice", 0, result);
  if (*device >= comm->gpu->ndevices)
    return refuse(error, "there are too many GPUs");
  bool primary = false;
  const coll_status status = colli_gpu_is_primary(comm->gpu, *device, context, &primary, error);
  if (status != COLL_OK || primary)
    return status;
  return refuse(error, "the thread's CUDA context is not the device's primary one");
}

coll_status colli_direct_check(const coll_comm *comm, int *device, coll_error *error) {
  if (!comm->gpu)
    return refuse(error, "its process has not loaded CUDA's driver, or it finds no GPU");
  if (comm->params.number[COLLI_PARAM_GPU_MODE] == COLLI_GPU_STAGED)
    return refuse(error, "COLL_GPU_MODE is staged");
  if (!comm->gpu->cuda.stream_wait_value_32 || !comm->gpu->cuda.stream_write_value_32)
    return refuse(error, "CUDA's driver is older than 11.7");
  return find_device(comm, device, error);
}

/* Makes a party for all ranks, in case that they are threads that share this GPU: rank 0 does. */
static coll_status make_party(const coll_comm *comm, colli_direct *direct, int device,
                              colli_gpu_offer *offer, coll_error *error) {
  if (comm->rank > 0 || comm->nranks > COLL_GPU_PLACES)
    return COLL_OK;
  const coll_status status =
      colli_direct_party_make(&comm->gpu->cuda, device, &direct->party, error);
  offer->party = (uint64_t)direct->party;
  return status;
}

/* Joins that party, if there is one and ranks meet as threads do. */
static void join_party(colli_direct *direct, const colli_gpu_offer *offers) {
  colli_direct_party *party = (colli_direct_party *)(uintptr_t)offers[0].party;
  if (direct->mode != COLLI_GPU_MEET || !party || direct->party)
    return;
  colli_direct_party_join(party);
  direct->party = party;
}

/* Leaves it; not if other ranks are perhaps about to join. */
static void leave_party(coll_comm *comm, colli_direct *direct, bool keep) {
  colli_gpu_thread before;
  if (!direct->party || (keep && !direct->joined) ||
      colli_gpu_enter(comm->gpu, direct->peers->device, &before, NULL) != COLL_OK)
    return;
  colli_direct_party_leave(direct->party, &comm->gpu->cuda);
  colli_gpu_leave(comm->gpu, &before);
}

/* Makes this rank's part. */
static coll_status make_part(const coll_comm *comm, colli_direct *direct, colli_gpu_offer *offer,
                             coll_error *error) {
  int device;
  const size_t slot_bytes = (size_t)comm->params.number[COLLI_PARAM_GPU_SLOT_BYTES];
  coll_status status = colli_direct_check(comm, &device, error);
  if (status == COLL_OK)
    status = colli_gpu_get_programs(comm->gpu, device, &comm->log, &direct->programs, error);
  if (status == COLL_OK)
    status = colli_gpu_peers_open(comm->gpu, device, comm->rank, comm->nranks, slot_bytes,
                                  &direct->peers, offer, error);
  if (status == COLL_OK)
    status = colli_gpu_reserve_words(comm->gpu, WORDS, error);
  if (status != COLL_OK)
    return status;
  colli_gpu_thread before;
  status = colli_gpu_enter(comm->gpu, device, &before, error);
  if (status == COLL_OK) {
    status = colli_direct_make_events(direct, &comm->gpu->cuda, device, offer, error);
    if (status == COLL_OK)
      status = make_party(comm, direct, device, offer, error);
    colli_gpu_leave(comm->gpu, &before);
  }
  offer->ready = status == COLL_OK;
  return status;
}

/* ---- what all have --------------------------------------------------------------------------- */

/* Unmaps the others' areas. The driver may wait for kernels meanwhile. */
static void unmap(coll_comm *comm, colli_direct *direct) {
  colli_call_pause(comm);
  colli_direct_unmap_registered(direct);
  if (direct->peers)
    colli_gpu_peers_unmap(direct->peers);
  colli_call_resume(comm);
}

/* Frees this rank's part, but keeps what streams of other ranks may still use. */
static void free_part(coll_comm *comm, colli_direct *direct, bool keep) {
  colli_call_pause(comm);
  if (keep && direct->peers)
    colli_log_write(&comm->log, COLLI_LOG_INFO,
                    "other ranks may still look into this one's area of GPU memory, so it is kept");
  leave_party(comm, direct, keep);
  if (direct->peers)
    colli_direct_free_meets(direct, comm->gpu, direct->peers->device,
                            keep && direct->mode == COLLI_GPU_MEET);
  colli_direct_free_registered(direct, keep);
  colli_gpu_peers_free(direct->peers, keep);
  colli_call_resume(comm);
  free(direct);
}

/* Whether all ranks have a part; else who has none is refused, on all of them alike. */
static coll_status check_offers(coll_comm *comm, colli_gpu_offer *offers) {
  for (int rank = 0; rank < comm->nranks; rank++) {
    offers[rank].reason[sizeof(offers[rank].reason) - 1] = 0;
    if (!offers[rank].ready)
      return colli_direct_refuse(comm, &colli_direct_joining, COLL_ERR_UNSUPPORTED, rank,
                                 offers[rank].reason);
  }
  return COLL_OK;
}

/* Makes this rank's part, and maps those of the others. *mapped: some ranks may have. */
static coll_status join(coll_comm *comm, colli_direct *direct, colli_gpu_offer *offers,
                        bool *mapped) {
  coll_error error = COLL_ERROR_INIT;
  colli_gpu_offer mine = {.slot_bytes = 0};
  *mapped = true;
  colli_call_pause(comm); /* the driver may wait for kernels that wait for other ranks */
  if (make_part(comm, direct, &mine, &error) != COLL_OK)
    snprintf(mine.reason, sizeof(mine.reason), "%.116s", error.message);
  mine.mode = (uint8_t)comm->params.number[COLLI_PARAM_GPU_MODE];
  colli_call_resume(comm);
  coll_status status =
      colli_direct_gather(comm, &colli_direct_joining, &mine, offers, sizeof(mine));
  if (status == COLL_OK) {
    status = check_offers(comm, offers);
    *mapped = status == COLL_OK;
  }
  if (status != COLL_OK)
    return status;
  colli_call_pause(comm);
  status = colli_gpu_peers_map(direct->peers, offers, &error);
  if (status == COLL_OK)
    status = colli_direct_choose(direct, offers, &error);
  if (status == COLL_OK)
    join_party(direct, offers);
  colli_call_resume(comm);
  return colli_direct_agree(comm, &colli_direct_joining, status, &error, COLL_ERR_UNSUPPORTED);
}

coll_status colli_direct_join(coll_comm *comm) {
  colli_direct *direct = calloc(1, sizeof(*direct));
  colli_gpu_offer *offers = malloc((size_t)comm->nranks * sizeof(*offers));
  coll_status status = COLL_ERR_NO_MEMORY;
  bool mapped = false;
  if (direct && offers)
    status = join(comm, direct, offers, &mapped);
  else
    (void)colli_comm_refuse(comm, status, "comm_use_gpu", "out of memory");
  free(offers);
  if (status == COLL_OK) { /* on all ranks */
    colli_log_write(&comm->log, COLLI_LOG_INFO, "calls in streams stay in GPU memory, mode %s",
                    colli_param_word(COLLI_PARAM_GPU_MODE, direct->mode));
    direct->joined = true;
    comm->direct = direct;
    return COLL_OK;
  }
  if (mapped)
    unmap(comm, direct);
  if (direct) /* each wait ends by its own deadline */
    free_part(comm, direct,
              mapped && !colli_direct_await(comm, &colli_direct_joining, UINT64_MAX / 2));
  return status;
}

void colli_direct_leave(coll_comm *comm) {
  colli_direct *direct = comm->direct;
  if (!direct)
    return;
  comm->direct = NULL;
  unmap(comm, direct);
  const colli_log log = comm->log;
  comm->log.level = COLLI_LOG_NONE; /* that others have ended is no failure */
  const bool all = colli_direct_await(comm, &colli_direct_joining, LEAVE_NS);
  comm->log = log;
  free_part(comm, direct, !all);
}
