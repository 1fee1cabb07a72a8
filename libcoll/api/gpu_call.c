/* gpu_call.c: runs calls on GPU memory, on copies of their buffers in pinned host memory. */
#include "libcoll/api/gpu_call.h"

#include <stdio.h>
#include <stdlib.h>

#include "libcoll/base/error.h"
#include "libcoll/base/names.h"
#include "libcoll/comm/comm.h"
#include "libcoll/gpu/devices.h"

/* A call under way. */
typedef struct gpu_call {
  colli_gpu *gpu;
  const char *name;
  int device;            /* in whose memory the result goes; COLLI_GPU_HOST: it needs no copying */
  char *in, *out;        /* copies in pinned memory, or NULL; the same if the call is in place */
  char *to;              /* where the result goes */
  size_t bytes;          /* of it, if it is one piece */
  bool in_blocks;        /* it consists of blocks, as the request says */
  size_t elem;           /* bytes of an element of theirs */
  colli_stage_out inner; /* what else is to be done at the end, before */
} gpu_call;

/* ---- which memory ---------------------------------------------------------------------------- */

bool colli_gpu_touches(const coll_comm *comm, const colli_call *call) {
  colli_gpu *gpu = comm->gpu;
  return colli_gpu_device_of(gpu, call->sendbuf) != COLLI_GPU_HOST ||
         (call->recvbuf != call->sendbuf &&
          colli_gpu_device_of(gpu, call->recvbuf) != COLLI_GPU_HOST);
}

/* Bytes that a call reads and writes, from the beginnings of its buffers. */
static void find_extents(const coll_comm *comm, const colli_call *call, size_t *reads,
                         size_t *writes) {
  const size_t elem = colli_type_bytes(call->type);
  if (call->coll != COLLI_SENDRECV) {
    colli_call_extent(&comm->calls, call, reads, writes);
    if (call->coll == COLLI_EXSCAN && comm->rank == 0)
      *writes = 0; /* it gets no result */
  } else {
    const bool sends = call->p2p == COLLI_P2P_SEND || call->p2p == COLLI_P2P_SENDRECV ||
                       call->p2p == COLLI_P2P_PUT;
    const bool receives = call->p2p == COLLI_P2P_RECV || call->p2p == COLLI_P2P_SENDRECV;
    *reads = sends ? call->count : 0;
    *writes = receives ? call->recv_count : 0;
  }
  *reads *= elem;
  *writes *= elem;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Frees the copies. */
static void drop(gpu_call *it) {
  if (it->in)
    colli_gpu_put_pinned(it->gpu, it->in);
  if (it->out && it->out != it->in)
    colli_gpu_put_pinned(it->gpu, it->out);
  free(it);
}

/* Puts the blocks of a result where they belong, and leaves alone what is between them. */
static coll_status copy_blocks(const gpu_call *it, const coll_request *op, uint64_t timeout_ns,
                               coll_error *error) {
  const size_t n = (size_t)op->nranks;
  const size_t *counts = op->blocks + 2 * n, *first = op->blocks + 3 * n;
  colli_gpu_piece *pieces = malloc(n * sizeof(*pieces));
  if (!pieces)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, it->name, "out of memory for %zu blocks", n);
  for (size_t i = 0; i < n; i++)
    pieces[i] = (colli_gpu_piece){it->to + first[i] * it->elem, it->out + first[i] * it->elem,
                                  counts[i] * it->elem};
  coll_status status =
      colli_gpu_copy(it->gpu, it->device, COLLI_GPU_TO_DEVICE, pieces, n, timeout_ns, error);
  free(pieces);
  return status;
}

/* Copies the result to the device. An error is the operation's. */
static void copy_back(const gpu_call *it, coll_request *op) {
  coll_comm *comm = op->comm;
  coll_error error = COLL_ERROR_INIT;
  const colli_gpu_piece whole = {it->to, it->out, it->bytes};
  op->status = it->in_blocks ? copy_blocks(it, op, comm->watch.timeout_ns, &error)
                             : colli_gpu_copy(it->gpu, it->device, COLLI_GPU_TO_DEVICE, &whole, 1,
                                              comm->watch.timeout_ns, &error);
  if (op->status == COLL_OK)
    return;
  snprintf(error.operation, sizeof(error.operation), "%s", it->name);
  error.rank = comm->rank;
  error.sequence = op->sequence;
  snprintf(error.host, sizeof(error.host), "%s", comm->host);
  colli_comm_refuse_op(comm, &error);
}

/* The operation has ended: COLLI_STAGE_DEVICE. */
static void conclude(coll_request *op, bool reported) {
  gpu_call *it = op->owner;
  op->stage_out = it->inner;
  if (reported && op->stage_out != COLLI_STAGE_NONE)
    colli_call_finish(&op->comm->calls, op);
  if (reported && op->status == COLL_OK && it->device != COLLI_GPU_HOST)
    copy_back(it, op);
  drop(it);
}

/* ---- the beginning --------------------------------------------------------------------------- */

/* Takes memory for copies of the buffers that are in GPU memory; false if out of memory. */
static bool take_copies(gpu_call *it, const colli_call *call, size_t reads, size_t writes,
                        int from) {
  const bool same = call->sendbuf == call->recvbuf;
  if (from != COLLI_GPU_HOST && (reads || same)) {
    it->in = colli_gpu_take_pinned(it->gpu, same && writes > reads ? writes : reads);
    if (!it->in)
      return false;
  }
  if (it->device == COLLI_GPU_HOST || (!writes && !same))
    return true;
  it->out = same && it->in ? it->in : colli_gpu_take_pinned(it->gpu, writes);
  return it->out != NULL;
}

/* Describes a call, and takes memory for it; NULL: out of memory. */
static gpu_call *begin(coll_comm *comm, const colli_call *call, size_t reads, size_t writes,
                       int from) {
  gpu_call *it = calloc(1, sizeof(*it));
  if (!it)
    return NULL;
  it->gpu = comm->gpu;
  it->name = call->name;
  it->device = colli_gpu_device_of(comm->gpu, call->recvbuf);
  it->to = call->recvbuf;
  it->bytes = writes;
  it->in_blocks = call->varying && (call->coll == COLLI_ALLGATHER || call->coll == COLLI_GATHER ||
                                    call->coll == COLLI_ALLTOALL);
  it->elem = colli_type_bytes(call->type);
  if (take_copies(it, call, reads, writes, from))
    return it;
  drop(it);
  return NULL;
}

/* Copies the input to the host. */
static coll_status copy_in(coll_comm *comm, const gpu_call *it, const colli_call *call,
                           size_t reads, int from) {
  coll_error error = COLL_ERROR_INIT;
  const colli_gpu_piece whole = {(void *)call->sendbuf, it->in, reads};
  if (from == COLLI_GPU_HOST || !reads)
    return COLL_OK;
  if (colli_gpu_copy(it->gpu, from, COLLI_GPU_TO_HOST, &whole, 1, comm->watch.timeout_ns, &error) ==
      COLL_OK)
    return COLL_OK;
  snprintf(error.operation, sizeof(error.operation), "%s", call->name);
  return colli_comm_refuse_as(comm, &error);
}

coll_status colli_gpu_call_start(coll_comm *comm, const colli_call *call, colli_plan *plan,
                                 coll_request *op, colli_start_fn *start) {
  size_t reads, writes;
  find_extents(comm, call, &reads, &writes);
  const int from = colli_gpu_device_of(comm->gpu, call->sendbuf);
  gpu_call *it = begin(comm, call, reads, writes, from);
  if (!it)
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, call->name,
                             "out of memory for copies of %zu and %zu bytes of GPU memory in "
                             "pinned host memory; see ulimit -l",
                             reads, writes);
  colli_call staged = *call;
  if (it->in)
    staged.sendbuf = it->in;
  if (it->out)
    staged.recvbuf = it->out;
  coll_status status = copy_in(comm, it, call, reads, from);
  if (status == COLL_OK)
    status = start(comm, &staged, plan, op);
  if (status != COLL_OK) {
    drop(it);
    return status;
  }
  it->inner = op->stage_out;
  op->stage_out = COLLI_STAGE_DEVICE;
  op->conclude = conclude;
  op->owner = it;
  return COLL_OK;
}
