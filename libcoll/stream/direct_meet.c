/* direct_meet.c: meets of streams. */
#include "libcoll/stream/direct_meet.h"

#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/gpu/kernels/meet_args.h"

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

coll_status colli_direct_choose(colli_direct *direct, const colli_gpu_offer *offers,
                                coll_error *error) {
  const int nranks = direct->peers->nranks;
  const colli_gpu_mode asked = (colli_gpu_mode)offers[0].mode;
  int pair[2];
  const bool shared = find_shared(offers, nranks, pair);
  if (asked == COLLI_GPU_SPIN && shared)
    return colli_error_set(
        error, COLL_ERR_UNSUPPORTED, NULL,
        "ranks %d and %d share a GPU, so that COLL_GPU_MODE=spin could hang; use "
        "auto or ordered",
        pair[0], pair[1]);
  const bool fits = (size_t)nranks * sizeof(uint32_t) <= COLLI_GPU_STATE_AT;
  direct->mode = asked == COLLI_GPU_ORDERED || shared || !fits ? COLLI_GPU_ORDERED : COLLI_GPU_SPIN;
  return take_words(direct, error);
}

void colli_direct_free_words(colli_direct *direct) {
  if (direct->words)
    colli_gpu_put_pinned(direct->peers->gpu, direct->words);
  if (direct->there)
    colli_gpu_put_pinned(direct->peers->gpu, direct->there);
  direct->words = direct->there = NULL;
}

coll_status colli_direct_put_meet(colli_direct *direct, colli_gpu_passage *passage, bool spins,
                                  coll_error *error) {
  const colli_gpu_peers *peers = direct->peers;
  const colli_direct_words *words = colli_direct_words_of(direct);
  if (!spins)
    return colli_gpu_passage_wait(passage, error);
  struct coll_gpu_meet meet = {.more_there = direct->there ? (uint64_t)direct->there->memory : 0,
                               .here = peers->area[peers->rank],
                               .state = colli_gpu_peers_state(peers),
                               .abort = (uint64_t)&words->abort,
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

coll_status colli_direct_put_end(const colli_direct *direct, const colli_gpu_passage *passage,
                                 uint32_t call, coll_error *error) {
  const colli_cuda *cuda = &passage->gpu->cuda;
  const colli_cu_deviceptr ended = (colli_cu_deviceptr)&colli_direct_words_of(direct)->ended;
  const colli_cu_result result = cuda->stream_write_value_32(passage->stream, ended, call,
                                                             COLLI_CU_STREAM_WRITE_VALUE_DEFAULT);
  if (result == COLLI_CUDA_SUCCESS)
    return COLL_OK;
  return colli_cuda_fail(cuda, error, "cuStreamWriteValue32", passage->device, result);
}

uint64_t colli_direct_guard(const colli_direct *direct, bool spins) {
  if (spins)
    return colli_gpu_peers_state(direct->peers) + offsetof(struct coll_gpu_meet_state, released);
  return (uint64_t)&colli_direct_words_of(direct)->stopped;
}

void colli_direct_stop(colli_direct *direct) {
  colli_direct_words *words = colli_direct_words_of(direct);
  __atomic_store_n(&words->stopped, 1u, __ATOMIC_RELEASE);
  __atomic_store_n(&words->abort, 1u, __ATOMIC_RELEASE);
}
