/* gpu_stage.c: which parts of a call's buffers are copied between GPU memory and the host. */
#include "libcoll/run/gpu_stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/names.h"
#include "libcoll/comm/comm.h"
#include "libcoll/exec/exec.h"
#include "libcoll/failure/failure.h"
#include "libcoll/gpu/rdma.h"
#include "libcoll/run/gpu_lend.h"

bool colli_gpu_find(const coll_comm *comm, const colli_call *call, colli_gpu_places *places) {
  places->from = colli_gpu_device_of(comm->gpu, call->sendbuf);
  places->to =
      call->recvbuf == call->sendbuf ? places->from : colli_gpu_device_of(comm->gpu, call->recvbuf);
  return places->from != COLLI_GPU_HOST || places->to != COLLI_GPU_HOST;
}

/* What a call reads and writes. */
typedef struct sides {
  size_t reads, writes;    /* bytes, without gaps */
  colli_gpu_piece in, out; /* the same with gaps, but without the copies */
} sides;

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

/* The blocks in a buffer of which a call uses `bytes` bytes. */
static colli_gpu_piece find_blocks(const colli_call *call, const void *buffer, size_t bytes) {
  colli_gpu_piece it = {.device = (void *)buffer, .bytes = bytes};
  if (!colli_call_is_part(call) || bytes == 0)
    return it;
  const size_t elem = colli_type_bytes(call->type);
  it.bytes = call->count * elem;
  it.more = bytes / it.bytes - 1;
  it.stride = call->whole * elem;
  return it;
}

/* Memory for a copy: an earlier call's, or new. */
static colli_pinned *take_copy(colli_gpu *gpu, colli_pinned *earlier, size_t bytes,
                               coll_error *error) {
  if (!earlier)
    return colli_gpu_take_pinned(gpu, bytes, error);
  colli_gpu_share_pinned(gpu, earlier);
  return earlier;
}

/* Takes memory for copies of the buffers that need one; false: *error says why not. */
static bool take_copies(colli_gpu_stage *stage, const sides *it, const colli_call *call,
                        const colli_gpu_stage *earlier, coll_error *error) {
  const bool in = stage->at.from != COLLI_GPU_HOST || it->in.more > 0;
  const bool out = stage->at.to != COLLI_GPU_HOST || it->out.more > 0;
  const bool shared = in && out && call->sendbuf == call->recvbuf;
  if (in && (it->reads || shared)) {
    stage->in = take_copy(stage->gpu, earlier ? earlier->in : NULL,
                          shared && it->writes > it->reads ? it->writes : it->reads, error);
    if (!stage->in)
      return false;
  }
  if (shared)
    stage->out = stage->in;
  else if (out && it->writes)
    stage->out = take_copy(stage->gpu, earlier ? earlier->out : NULL, it->writes, error);
  return stage->out || !out || !it->writes;
}

/* Whether a call receives a message that may be shorter than its buffer, the rest of which stays.
 */
static bool may_be_short(const colli_call *call) {
  const bool receives = call->p2p == COLLI_P2P_RECV || call->p2p == COLLI_P2P_SENDRECV;
  return call->coll == COLLI_SENDRECV && receives && call->message; /* or `taken` */
}

/* Whether a call's result consists of blocks, with memory between them that is not its own. */
static bool has_blocks(const coll_comm *comm, const colli_call *call) {
  return call->varying && (call->coll == COLLI_ALLGATHER || call->coll == COLLI_ALLTOALL ||
                           (call->coll == COLLI_GATHER && call->root == comm->rank));
}

/* Lists the blocks of the result; false if out of memory. */
static bool list_blocks(const coll_comm *comm, const colli_call *call, colli_gpu_stage *stage) {
  const size_t n = (size_t)comm->nranks, elem = colli_type_bytes(call->type);
  size_t end = 0;
  stage->result = malloc(n * sizeof(*stage->result));
  if (!stage->result)
    return false;
  stage->nresult = n;
  for (size_t i = 0; i < n; i++) {
    const size_t first = call->out_displs ? call->out_displs[i] : end;
    stage->result[i] = (colli_gpu_piece){.device = (char *)call->recvbuf + first * elem,
                                         .host = (char *)stage->out->memory + first * elem,
                                         .bytes = call->out_counts[i] * elem};
    end = first + call->out_counts[i];
  }
  return true;
}

/* Describes the copies, for which there is memory; false if out of memory. */
static bool list_copies(const coll_comm *comm, const colli_call *call, sides *it,
                        colli_gpu_stage *stage) {
  if (stage->in) {
    it->in.host = stage->in->memory;
    *(stage->at.from == COLLI_GPU_HOST ? &stage->packed : &stage->input) = it->in;
  }
  if (!stage->out)
    return true;
  if (has_blocks(comm, call))
    return list_blocks(comm, call, stage);
  it->out.host = stage->out->memory;
  if (stage->at.to == COLLI_GPU_HOST) {
    stage->unpacked = it->out;
    return true;
  }
  stage->whole = it->out;
  stage->result = &stage->whole;
  stage->nresult = 1;
  if (may_be_short(call))
    stage->rest = stage->whole;
  return true;
}

/* Lends memory of a message: what remains to be copied of *reads and *writes bytes. */
static void lend(coll_comm *comm, const colli_call *call, colli_gpu_stage *stage, size_t *reads,
                 size_t *writes) {
  const size_t slot = comm->exec.slot_bytes;
  colli_gpu_lend_to(comm, call, &stage->at, stage->lent);
  stage->arrives = stage->lent[COLLI_LENT_RECEIVED].with != NULL;
  if (stage->arrives && *writes > slot)
    *writes = slot;
  if (stage->lent[COLLI_LENT_SENT].with) {
    stage->at.from = COLLI_GPU_HOST;
    *reads = 0;
  }
}

coll_status colli_gpu_stage_make(coll_comm *comm, const colli_call *call,
                                 const colli_gpu_places *places, bool lends,
                                 const colli_gpu_stage *earlier, colli_gpu_stage *stage) {
  sides it;
  find_extents(comm, call, &it.reads, &it.writes);
  *stage = (colli_gpu_stage){.gpu = comm->gpu, .at = *places};
  if (places->from == COLLI_GPU_UNKNOWN || places->to == COLLI_GPU_UNKNOWN)
    return colli_comm_refuse(comm, COLL_ERR_SYSTEM, call->name,
                             "CUDA's driver does not say whose memory %p is; a kernel of the "
                             "program may have failed before, which compute-sanitizer shows",
                             places->from == COLLI_GPU_UNKNOWN ? call->sendbuf : call->recvbuf);
  coll_error error = COLL_ERROR_INIT;
  error.status = COLL_ERR_NO_MEMORY;
  snprintf(error.message, sizeof(error.message), "out of memory for a list of blocks");
  if (lends)
    lend(comm, call, stage, &it.reads, &it.writes);
  it.in = find_blocks(call, call->sendbuf, it.reads);
  it.out = find_blocks(call, call->recvbuf, it.writes);
  if (take_copies(stage, &it, call, earlier, &error) && list_copies(comm, call, &it, stage))
    return COLL_OK;
  colli_gpu_stage_free(stage);
  snprintf(error.operation, sizeof(error.operation), "%s", call->name);
  return colli_comm_refuse_as(comm, &error);
}

void colli_gpu_stage_free(colli_gpu_stage *stage) {
  if (stage->in)
    colli_gpu_put_pinned(stage->gpu, stage->in);
  if (stage->out && stage->out != stage->in)
    colli_gpu_put_pinned(stage->gpu, stage->out);
  stage->in = stage->out = NULL;
  colli_gpu_stage_leave(stage);
}

void colli_gpu_stage_leave(colli_gpu_stage *stage) {
  colli_exec_return_lent(stage->lent); /* unless the operation's end has done that */
  if (stage->result != &stage->whole)
    free(stage->result);
  memset(stage, 0, sizeof(*stage));
}

coll_status colli_gpu_fail_comm(coll_comm *comm, const char *name, const coll_error *reason) {
  coll_error record;
  colli_comm_record(comm, &record, reason->status, comm->rank, NULL);
  snprintf(record.operation, sizeof(record.operation), "%s", name);
  snprintf(record.syscall, sizeof(record.syscall), "%s", reason->syscall);
  snprintf(record.message, sizeof(record.message), "%.480s (rank %d of %d on %s)", reason->message,
           comm->rank, comm->nranks, comm->host);
  colli_comm_fail(comm, &record);
  return comm->failure.status;
}

coll_status colli_gpu_stage_arrive(coll_comm *comm, const char *name,
                                   const colli_gpu_stage *stage) {
  coll_error error = COLL_ERROR_INIT;
  if (!stage->arrives || colli_gpu_flush(stage->gpu, stage->at.to, &error) == COLL_OK)
    return COLL_OK;
  return colli_gpu_fail_comm(comm, name, &error);
}

void colli_gpu_stage_use(colli_gpu_stage *stage, colli_call *call) {
  call->on_host = true;
  if (stage->lent[COLLI_LENT_SENT].with || stage->lent[COLLI_LENT_RECEIVED].with)
    call->lent = stage->lent;
  if (stage->in)
    call->sendbuf = stage->in->memory;
  if (stage->out)
    call->recvbuf = stage->out->memory;
}

void colli_gpu_stage_pack(const colli_gpu_stage *stage) {
  const colli_gpu_piece *it = &stage->packed;
  for (size_t i = 0; it->bytes > 0 && i <= it->more; i++)
    memcpy((char *)it->host + i * it->bytes, (char *)it->device + i * it->stride, it->bytes);
}

void colli_gpu_stage_unpack(const colli_gpu_stage *stage) {
  const colli_gpu_piece *it = &stage->unpacked;
  for (size_t i = 0; it->bytes > 0 && i <= it->more; i++)
    memcpy((char *)it->device + i * it->stride, (char *)it->host + i * it->bytes, it->bytes);
}
