/* gpu_call.c: runs calls on GPU memory, on copies of their buffers in pinned host memory. */
#include "libcoll/api/gpu_call.h"

#include <stdio.h>
#include <stdlib.h>

#include "libcoll/api/gpu_stage.h"
#include "libcoll/base/error.h"
#include "libcoll/comm/comm.h"

/* A call under way. */
typedef struct gpu_call {
  colli_gpu_stage stage;
  const char *name;
  colli_stage_out inner; /* what else is to be done at the end, before the result is copied */
} gpu_call;

static void drop(gpu_call *it) {
  colli_gpu_stage_free(&it->stage);
  free(it);
}

/* Copies the result to the device. An error is the operation's. */
static void copy_back(const gpu_call *it, coll_request *op) {
  coll_comm *comm = op->comm;
  coll_error error = COLL_ERROR_INIT;
  const colli_gpu_stage *stage = &it->stage;
  op->status = colli_gpu_copy(stage->gpu, stage->to, COLLI_GPU_TO_DEVICE, stage->result,
                              stage->nresult, comm->watch.timeout_ns, &error);
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
  if (reported && op->status == COLL_OK && it->stage.nresult > 0)
    copy_back(it, op);
  drop(it);
}

/* Copies the input to the host. */
static coll_status copy_in(coll_comm *comm, const colli_gpu_stage *stage, const char *name) {
  coll_error error = COLL_ERROR_INIT;
  if (stage->input.bytes == 0 ||
      colli_gpu_copy(stage->gpu, stage->from, COLLI_GPU_TO_HOST, &stage->input, 1,
                     comm->watch.timeout_ns, &error) == COLL_OK)
    return COLL_OK;
  snprintf(error.operation, sizeof(error.operation), "%s", name);
  return colli_comm_refuse_as(comm, &error);
}

coll_status colli_gpu_call_start(coll_comm *comm, const colli_call *call, colli_plan *plan,
                                 coll_request *op, colli_start_fn *start) {
  gpu_call *it = calloc(1, sizeof(*it));
  if (!it)
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, call->name,
                             "out of memory for a call on GPU memory; see ulimit -v");
  coll_status status = colli_gpu_stage_make(comm, call, &it->stage);
  colli_call staged = *call;
  colli_gpu_stage_use(&it->stage, &staged);
  if (status == COLL_OK)
    status = copy_in(comm, &it->stage, call->name);
  if (status == COLL_OK)
    status = start(comm, &staged, plan, op);
  if (status != COLL_OK) {
    drop(it);
    return status;
  }
  it->name = call->name;
  it->inner = op->stage_out;
  op->stage_out = COLLI_STAGE_DEVICE;
  op->conclude = conclude;
  op->owner = it;
  return COLL_OK;
}
