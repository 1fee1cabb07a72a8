/*
 * gpu_call.h: calls on GPU memory. They are staged: the operation runs on copies of the buffers in
 * pinned host memory, so every transport, type and operation works, and gives the bits that host
 * memory gives. Long messages may use memory that is lent to the transport instead (gpu_lend.h).
 */
#ifndef COLLI_RUN_GPU_CALL_H
#define COLLI_RUN_GPU_CALL_H

#include "libcoll/call/call.h"

/* Where a call's buffers are. */
typedef struct colli_gpu_places {
  int from, to; /* the devices of input and result; COLLI_GPU_HOST: no copy */
} colli_gpu_places;

/* Fills in the request of a checked call on host memory, and starts it. */
typedef coll_status colli_start_fn(coll_comm *comm, const colli_call *call, colli_plan *plan,
                                   coll_request *op);

/*
 * Starts a checked call with buffers in GPU memory (colli_gpu_find()): copies the input to the
 * host, and has `start` start the call on the copies. Whoever finishes the request copies the
 * result back. Errors: those of colli_gpu_copy() and of the call; NO_MEMORY.
 */
coll_status colli_gpu_call_start(coll_comm *comm, const colli_call *call,
                                 const colli_gpu_places *places, colli_plan *plan, coll_request *op,
                                 colli_start_fn *start);

#endif
