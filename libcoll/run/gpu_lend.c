/* gpu_lend.c: which messages are moved by the network's device from or to GPU memory. */
#include "libcoll/run/gpu_lend.h"

#include <unistd.h>

#include "libcoll/base/fork.h"
#include "libcoll/base/names.h"
#include "libcoll/comm/comm.h"
#include "libcoll/gpu/rdma.h"
#include "libcoll/progress/enter.h"

/* A message must not be longer, so that targets can be divided (p2p_tag.h). */
#define MOST_BYTES ((size_t)COLL_DEVICE_MESSAGES << 30)

size_t colli_gpu_lend_least(const coll_comm *comm) {
  /* To have memory registered probably takes as long as to copy so much. */
  return comm->exec.slot_bytes < COLLI_LEND_LEAST ? COLLI_LEND_LEAST : comm->exec.slot_bytes + 1;
}

/* One half of a message. */
typedef struct half {
  const void *memory;
  size_t bytes;
  int device, peer;
  bool written;
} half;

/* What one half of a call is; of no bytes if it has none. */
static half half_of(const colli_call *call, const colli_gpu_places *places, int which) {
  const bool sent = which == COLLI_LENT_SENT;
  const bool has =
      call->p2p == COLLI_P2P_SENDRECV || call->p2p == (sent ? COLLI_P2P_SEND : COLLI_P2P_RECV);
  return (half){
      .memory = sent ? call->sendbuf : call->recvbuf,
      .bytes = has ? (sent ? call->count : call->recv_count) * colli_type_bytes(call->type) : 0,
      .device = sent ? places->from : places->to,
      .peer = sent ? call->dest : call->source,
      .written = !sent};
}

bool colli_gpu_is_taken(const coll_comm *comm, int peer) {
  if (peer == comm->rank)
    return false;
  coll_endpoint *endpoint;
  const coll_transport_ops *ops = colli_comm_transport(comm, peer, &endpoint);
  return comm->params.number[COLLI_PARAM_GPU_DIRECT_RDMA] == COLLI_GPU_RDMA_AUTO &&
         coll_transport_reaches_devices(ops);
}

/* Whether a half may be lent. */
static bool may_lend(const coll_comm *comm, const half *it) {
  return it->bytes >= colli_gpu_lend_least(comm) && it->bytes <= MOST_BYTES && it->device >= 0 &&
         it->peer >= 0 && colli_gpu_is_taken(comm, it->peer) &&
         colli_gpu_lends(comm->gpu, it->device);
}

/* Whether a call is one whose halves may be lent: a copy of both in one place has the order that
 * one copy gives it. */
static bool is_message(const colli_call *call) {
  return call->coll == COLLI_SENDRECV && call->p2p <= COLLI_P2P_SENDRECV &&
         !(call->p2p == COLLI_P2P_SENDRECV && call->sendbuf == call->recvbuf);
}

bool colli_gpu_may_lend(const coll_comm *comm, const colli_call *call,
                        const colli_gpu_places *places) {
  if (!is_message(call))
    return false;
  for (int i = 0; i < COLLI_LENT_COUNT; i++) {
    const half it = half_of(call, places, i);
    if (may_lend(comm, &it))
      return true;
  }
  return false;
}

/* Lends a half. The driver may wait for kernels that wait for other ranks. */
static void lend(coll_comm *comm, const half *it, colli_lent *lent) {
  coll_endpoint *endpoint;
  const coll_transport_ops *ops = colli_comm_transport(comm, it->peer, &endpoint);
  colli_gpu_dmabuf buffer;
  const char *why = NULL;
  colli_call_pause(comm);
  const bool lends =
      colli_gpu_lend(comm->gpu, it->device, it->memory, it->bytes, &comm->log, &buffer);
  colli_call_resume(comm);
  if (!lends)
    return;
  const int status = ops->register_device(endpoint, buffer.fd, buffer.offset, it->memory, it->bytes,
                                          it->written, &lent->memory, &why);
  colli_fd_close(buffer.fd);
  if (status != COLL_OK) {
    colli_gpu_lend_refused(comm->gpu, it->device, status == COLL_ERR_UNSUPPORTED, &comm->log, why);
    return;
  }
  lent->with = ops;
  lent->at = endpoint;
  lent->address = it->memory;
}

bool colli_gpu_try_lending(coll_comm *comm, int device, int peer, const void *memory) {
  const half all = {memory, (size_t)sysconf(_SC_PAGESIZE), device, peer, true};
  colli_lent lent = {.with = NULL};
  lend(comm, &all, &lent);
  if (lent.with)
    lent.with->release_device(lent.at, lent.memory);
  return lent.with != NULL;
}

void colli_gpu_lend_to(coll_comm *comm, const colli_call *call, const colli_gpu_places *places,
                       colli_lent lent[COLLI_LENT_COUNT]) {
  for (int i = 0; i < COLLI_LENT_COUNT && is_message(call); i++) {
    const half it = half_of(call, places, i);
    if (may_lend(comm, &it))
      lend(comm, &it, &lent[i]);
  }
}
