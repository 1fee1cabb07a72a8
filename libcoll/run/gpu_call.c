/* gpu_call.c: runs calls on GPU memory, on copies of their buffers in pinned host memory. */
#include "libcoll/run/gpu_call.h"

#include <stdlib.h>

#include "libcoll/base/error.h"
#include "libcoll/comm/comm.h"
#include "libcoll/progress/enter.h"
#include "libcoll/run/gpu_stage.h"

/* A call under way. */
typedef struct gpu_call {
  colli_gpu_stage stage;
  const char *name;
  colli_stage_out inner; /* what else is to be done at the end, before the result is copied */
} gpu_call;

/* Frees it. late: the driver may still copy. */
static void drop(gpu_call *it, bool late) {
  if (late)
    colli_gpu_stage_leave(&it->stage);
  else
    colli_gpu_stage_free(&it->stage);
  free(it);
}

/* Copies pieces and waits for that, while others may use the family. An error is the
 * communicator's. */
static coll_status copy(coll_comm *comm, const gpu_call *it, int device,
                        colli_gpu_direction direction, const colli_gpu_piece *pieces,
                        size_t count) {
  coll_error error = COLL_ERROR_INIT;
  colli_call_pause(comm);
  const coll_status status = colli_gpu_copy(it->stage.gpu, device, direction, pieces, count,
                                            comm->watch.timeout_ns, &error);
  colli_call_resume(comm);
  if (status != COLL_OK)
    (void)colli_gpu_fail_comm(comm, it->name, &error);
  return status;
}

/* The operation has ended: COLLI_STAGE_DEVICE. */
static void conclude(coll_request *op, bool reported) {
  gpu_call *it = op->owner;
  op->stage_out = it->inner;
  if (reported && op->stage_out != COLLI_STAGE_NONE)
    colli_call_finish(&op->comm->calls, op);
  const colli_gpu_stage *stage = &it->stage;
  bool late = false;
  if (reported && op->status == COLL_OK)
    op->status = colli_gpu_stage_arrive(op->comm, it->name, stage);
  if (reported && op->status == COLL_OK && stage->nresult > 0) {
    op->status =
        copy(op->comm, it, stage->at.to, COLLI_GPU_TO_DEVICE, stage->result, stage->nresult);
    late = op->status == COLL_ERR_TIMEOUT;
  }
  drop(it, late);
}

/* Copies the input to the host. */
static coll_status copy_in(coll_comm *comm, const gpu_call *it) {
  const colli_gpu_stage *stage = &it->stage;
  coll_status status = COLL_OK;
  if (stage->input.bytes > 0)
    status = copy(comm, it, stage->at.from, COLLI_GPU_TO_HOST, &stage->input, 1);
  if (status == COLL_OK && stage->rest.bytes > 0)
    status = copy(comm, it, stage->at.to, COLLI_GPU_TO_HOST, &stage->rest, 1);
  return status;
}

coll_status colli_gpu_call_start(coll_comm *comm, const colli_call *call,
                                 const colli_gpu_places *places, colli_plan *plan, coll_request *op,
                                 colli_start_fn *start) {
  gpu_call *it = calloc(1, sizeof(*it));
  if (!it)
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, call->name,
                             "out of memory for a call on GPU memory; see ulimit -v");
  coll_status status = colli_gpu_stage_make(comm, call, places, true, NULL, &it->stage);
  colli_call staged = *call;
  colli_gpu_stage_use(&it->stage, &staged);
  it->name = call->name;
  if (status == COLL_OK)
    status = copy_in(comm, it);
  const bool late = status == COLL_ERR_TIMEOUT;
  if (status == COLL_OK) /* if it failed during the copy, nobody would end the call */
    status = comm->failure.status;
  if (status == COLL_OK)
    status = start(comm, &staged, plan, op);
  if (status != COLL_OK) {
    drop(it, late);
    return status;
  }
  it->inner = op->stage_out;
  op->stage_out = COLLI_STAGE_DEVICE;
  op->conclude = conclude;
  op->owner = it;
  return COLL_OK;
}
