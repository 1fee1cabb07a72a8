/* direct_meet.c: meets of streams. */
#include "libcoll/stream/direct_meet.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/gpu/kernels/meet_args.h"
#include "libcoll/progress/enter.h"
#include "libcoll/progress/wait.h"
#include "libcoll/run/request.h"
#include "libcoll/run/run.h"

/* The first two ranks that have the same GPU; false: all have their own. */
static bool find_shared(const colli_gpu_offer *offers, int nranks, int pair[2]) {
  for (int a = 0; a < nranks; a++)
    for (int b = a + 1; b < nranks; b++)
      if (memcmp(&offers[a].uuid, &offers[b].uuid, sizeof(offers[a].uuid)) == 0) {
        pair[0] = a;
        pair[1] = b;
        return true;
      }
  return false;
}

/* Where a rank's word is at another one. */
static uint64_t word_at(const colli_gpu_peers *peers, int at, int of) {
  return peers->area[at] + sizeof(uint32_t) * (size_t)of;
}

/* Takes pinned memory for words, and for addresses beyond those that kernels take as arguments. */
static coll_status take_words(colli_direct *direct, coll_error *error) {
  const colli_gpu_peers *peers = direct->peers;
  direct->words = colli_gpu_take_pinned(peers->gpu, sizeof(colli_direct_words), error);
  if (!direct->words)
    return error->status;
  memset(direct->words->memory, 0, sizeof(colli_direct_words));
  const size_t gone_bytes = 2 * (size_t)peers->nranks * sizeof(uint32_t);
  direct->gone = colli_gpu_take_pinned(peers->gpu, gone_bytes, error);
  if (!direct->gone)
    return error->status;
  memset(direct->gone->memory, 0, gone_bytes);
  if (direct->mode != COLLI_GPU_SPIN || peers->nranks <= COLL_GPU_PLACES)
    return COLL_OK;
  const size_t beyond = (size_t)peers->nranks - COLL_GPU_PLACES;
  direct->there = colli_gpu_take_pinned(peers->gpu, beyond * sizeof(uint64_t), error);
  if (!direct->there)
    return error->status;
  uint64_t *there = direct->there->memory;
  for (int rank = COLL_GPU_PLACES; rank < peers->nranks; rank++)
    there[rank - COLL_GPU_PLACES] = word_at(peers, rank, peers->rank);
  return COLL_OK;
}

/* Whether all ranks are threads of one process, on one device. */
static bool are_threads(const colli_gpu_offer *offers, int nranks) {
  for (int rank = 1; rank < nranks; rank++)
    if (offers[rank].process != offers[0].process || offers[rank].device != offers[0].device)
      return false;
  return true;
}

/* Takes over the others' events. */
static coll_status take_events(colli_direct *direct, const colli_gpu_offer *offers,
                               coll_error *error) {
  const int nranks = direct->peers->nranks;
  direct->theirs = calloc((size_t)nranks, sizeof(*direct->theirs));
  if (!direct->theirs)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, NULL, "out of memory for events");
  for (int rank = 0; rank < nranks; rank++)
    for (int i = 0; i < 2; i++)
      direct->theirs[rank][i] = (colli_cu_event)(uintptr_t)offers[rank].events[i];
  return COLL_OK;
}

coll_status colli_direct_make_events(colli_direct *direct, const colli_cuda *cuda, int device,
                                     colli_gpu_offer *offer, coll_error *error) {
  for (int i = 0; i < 3; i++) {
    const colli_cu_result result =
        cuda->event_create(&direct->events[i], COLLI_CU_EVENT_DISABLE_TIMING);
    if (result != COLLI_CUDA_SUCCESS) {
      direct->events[i] = NULL;
      return colli_cuda_fail(cuda, error, "cuEventCreate", device, result);
    }
    if (i < 2)
      offer->events[i] = (uint64_t)direct->events[i];
  }
  return COLL_OK;
}

coll_status colli_direct_choose(colli_direct *direct, const colli_gpu_offer *offers,
                                coll_error *error) {
  const int nranks = direct->peers->nranks;
  const colli_gpu_mode asked = (colli_gpu_mode)offers[0].mode;
  int pair[2] = {-1, -1}; /* gcc -Os does not see that it is set */
  const bool shared = find_shared(offers, nranks, pair), threads = are_threads(offers, nranks);
  if (asked == COLLI_GPU_SPIN && shared)
    return colli_error_set(
        error, COLL_ERR_UNSUPPORTED, NULL,
        "ranks %d and %d share a GPU, so that COLL_GPU_MODE=spin could hang; use "
        "auto or ordered",
        pair[0], pair[1]);
  if (asked == COLLI_GPU_MEET && !threads)
    return colli_error_set(error, COLL_ERR_UNSUPPORTED, NULL,
                           "COLL_GPU_MODE=meet is for threads of one process that share one GPU; "
                           "use auto or ordered");
  const bool fits = (size_t)nranks * sizeof(uint32_t) <= COLLI_GPU_STATE_AT;
  direct->mode = COLLI_GPU_ORDERED;
  if (asked != COLLI_GPU_ORDERED && threads)
    direct->mode = COLLI_GPU_MEET;
  else if (asked != COLLI_GPU_ORDERED && !shared && fits)
    direct->mode = COLLI_GPU_SPIN;
  const coll_status status = take_words(direct, error);
  return status == COLL_OK && threads ? take_events(direct, offers, error) : status;
}

void colli_direct_free_meets(colli_direct *direct, colli_gpu *gpu, int device, bool keep) {
  colli_gpu_thread before;
  if (direct->words)
    colli_gpu_put_pinned(gpu, direct->words);
  if (direct->there)
    colli_gpu_put_pinned(gpu, direct->there);
  if (direct->gone)
    colli_gpu_put_pinned(gpu, direct->gone);
  direct->words = direct->there = direct->gone = NULL;
  free(direct->theirs);
  direct->theirs = NULL;
  if (keep || !direct->events[0] || colli_gpu_enter(gpu, device, &before, NULL) != COLL_OK)
    return;
  for (int i = 0; i < 3; i++)
    if (direct->events[i])
      gpu->cuda.event_destroy(direct->events[i]);
  memset(direct->events, 0, sizeof(direct->events));
  colli_gpu_leave(gpu, &before);
}

colli_gpu_mode colli_direct_way(const colli_direct *direct, bool captured) {
  const bool asks_host = captured || (direct->mode == COLLI_GPU_MEET && direct->has_graphs);
  return asks_host ? COLLI_GPU_ORDERED : direct->mode;
}

/* ---- into the stream ------------------------------------------------------------------------- */

/* Puts a kernel that spins. */
static coll_status put_spin(colli_direct *direct, const colli_gpu_passage *passage,
                            coll_error *error) {
  const colli_gpu_peers *peers = direct->peers;
  const colli_direct_words *words = colli_direct_words_of(direct);
  struct coll_gpu_meet meet = {.more_there = direct->there ? (uint64_t)direct->there->memory : 0,
                               .here = peers->area[peers->rank],
                               .state = colli_gpu_peers_state(peers),
                               .abort = (uint64_t)words->stopped,
                               .arrived = (uint64_t)&words->arrived,
                               .left = (uint64_t)&words->left,
                               .rank = (uint32_t)peers->rank,
                               .nranks = (uint32_t)peers->nranks};
  for (int rank = 0; rank < peers->nranks && rank < COLL_GPU_PLACES; rank++)
    meet.there[rank] = word_at(peers, rank, peers->rank);
  direct->meets++;
  return colli_gpu_launch_meet(&passage->gpu->cuda, direct->programs, passage->stream, &meet,
                               error);
}

coll_status colli_direct_await_calls(coll_request *request, unsigned place, coll_error *error) {
  coll_comm *comm = request->comm;
  colli_call_resume(comm);
  coll_status status = colli_call_meet(comm, request, place);
  if (status == COLL_OK) {
    colli_comm_wait_begin(comm);
    while (!request->done)
      colli_comm_wait_a_bit(comm, 0);
    status = colli_request_complete(&request);
  }
  if (status != COLL_OK)
    *error = comm->failure.error;
  colli_call_pause(comm);
  return status;
}

coll_status colli_direct_record(const colli_direct *direct, const colli_gpu_passage *passage,
                                unsigned events, coll_error *error) {
  const colli_cuda *cuda = &passage->gpu->cuda;
  const colli_cu_result result = cuda->event_record(direct->events[events], passage->stream);
  return colli_cuda_status(cuda, error, "cuEventRecord", passage->device, result);
}

coll_status colli_direct_follow(const colli_direct *direct, const colli_gpu_passage *passage,
                                unsigned events, coll_error *error) {
  const colli_cuda *cuda = &passage->gpu->cuda;
  colli_cu_result result = COLLI_CUDA_SUCCESS;
  for (int rank = 0; rank < direct->peers->nranks && result == COLLI_CUDA_SUCCESS; rank++)
    if (rank != direct->peers->rank)
      result = cuda->stream_wait_event(passage->stream, direct->theirs[rank][events], 0);
  return colli_cuda_status(cuda, error, "cuStreamWaitEvent", passage->device, result);
}

/* Puts an event, waits until all ranks have, and lets the stream wait for theirs. */
static coll_status put_events(colli_direct *direct, const colli_gpu_passage *passage,
                              coll_request *request, unsigned place, coll_error *error) {
  const unsigned events = direct->meets++ % 2;
  coll_status status = colli_direct_record(direct, passage, events, error);
  if (status == COLL_OK)
    status = colli_direct_await_calls(request, place, error);
  return status == COLL_OK ? colli_direct_follow(direct, passage, events, error) : status;
}

coll_status colli_direct_put_meet(colli_direct *direct, colli_gpu_passage *passage,
                                  colli_gpu_mode way, coll_request *request, unsigned place,
                                  coll_error *error) {
  if (way == COLLI_GPU_SPIN)
    return put_spin(direct, passage, error);
  if (way == COLLI_GPU_MEET)
    return put_events(direct, passage, request, place, error);
  return colli_gpu_passage_wait(passage, error);
}

coll_status colli_direct_put_order(const colli_direct *direct, const colli_gpu_passage *passage,
                                   coll_error *error) {
  const colli_cuda *cuda = &passage->gpu->cuda;
  const colli_cu_event end = direct->end ? direct->end : direct->events[2];
  const colli_cu_result result = cuda->stream_wait_event(passage->stream, end, 0);
  return colli_cuda_status(cuda, error, "cuStreamWaitEvent", passage->device, result);
}

coll_status colli_direct_put_end(const colli_direct *direct, const colli_gpu_passage *passage,
                                 uint32_t call, coll_error *error) {
  const colli_cuda *cuda = &passage->gpu->cuda;
  const uint32_t *ended = colli_direct_ended(direct, call);
  const char *function = "cuEventRecord";
  colli_cu_result result = COLLI_CUDA_SUCCESS;
  if (direct->mode == COLLI_GPU_MEET && !direct->end)
    result = cuda->event_record(direct->events[2], passage->stream);
  if (result == COLLI_CUDA_SUCCESS) { /* last, because the passage may be freed then */
    function = "cuStreamWriteValue32";
    result = cuda->stream_write_value_32(passage->stream, (colli_cu_deviceptr)ended, call,
                                         COLLI_CU_STREAM_WRITE_VALUE_DEFAULT);
  }
  return colli_cuda_status(cuda, error, function, direct->peers->device, result);
}

uint64_t colli_direct_guard(const colli_direct *direct, colli_gpu_mode way) {
  /* With MEET nothing is put into a stream after a meet that failed. */
  return way == COLLI_GPU_MEET ? 0 : (uint64_t)colli_direct_words_of(direct)->stopped;
}

void colli_direct_set_unexplained(coll_error *error) {
  colli_error_set(error, COLL_ERR_ABORTED, NULL,
                  "another rank has gone on without this one, and does not say why");
}

void colli_direct_stop(colli_direct *direct) {
  for (int i = 0; i < COLL_GPU_GUARD_WORDS; i++)
    __atomic_store_n(&colli_direct_words_of(direct)->stopped[i][0], 1u, __ATOMIC_RELEASE);
}
