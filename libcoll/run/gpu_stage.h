/*
 * gpu_stage.h: the copies in pinned host memory on which a call on GPU memory runs, but for what is
 * lent to transports. In the copies blocks follow each other. So a part of a call that takes a
 * piece of each block (stream/staged_parts.h) also runs on copies where its blocks are in host
 * memory: the host copies these itself.
 */
#ifndef COLLI_RUN_GPU_STAGE_H
#define COLLI_RUN_GPU_STAGE_H

#include "libcoll/gpu/devices.h"
#include "libcoll/run/gpu_call.h"

/* One call's copies. */
typedef struct colli_gpu_stage {
  colli_gpu *gpu;
  colli_gpu_places at;
  colli_pinned *in, *out;  /* the copies, or NULL; the same if the call is in place */
  colli_gpu_piece input;   /* of no bytes: there is none to copy */
  colli_gpu_piece rest;    /* what is where the result goes and may stay in part, likewise */
  colli_gpu_piece *result; /* the pieces of the result */
  size_t nresult;
  colli_gpu_piece whole; /* that piece, if it is one */
  colli_gpu_piece packed,
      unpacked; /* what the host copies; their `device` is the caller's buffer */
  colli_lent lent[COLLI_LENT_COUNT];
  bool arrives; /* a device of the network writes to the memory of at.to */
} colli_gpu_stage;

/* Finds out where a call's buffers are; whether one is in GPU memory. */
bool colli_gpu_find(const coll_comm *comm, const colli_call *call, colli_gpu_places *places);

/*
 * Describes the copies of a checked call with buffers in `places`, and takes memory for them, or
 * shares that of `earlier`, which is as long and will have been copied from by then (may be NULL).
 * lends: what can be lent to transports is, and is not copied; of a message that is received only
 * the first slice. On failure there is nothing to free. Errors: NO_MEMORY, SYSTEM, recorded.
 */
coll_status colli_gpu_stage_make(coll_comm *comm, const colli_call *call,
                                 const colli_gpu_places *places, bool lends,
                                 const colli_gpu_stage *earlier, colli_gpu_stage *stage);
void colli_gpu_stage_free(colli_gpu_stage *stage);

/* As free, but the driver may still copy: the memory is kept until the communicator ends. */
void colli_gpu_stage_leave(colli_gpu_stage *stage);

/* The operation has ended: makes sure that the device's kernels find what the network has written.
 * Errors: SYSTEM, also the communicator's. */
coll_status colli_gpu_stage_arrive(coll_comm *comm, const char *name, const colli_gpu_stage *stage);

/* Fails the communicator because of the driver's error, so that the other ranks learn of it;
 * returns the status. */
coll_status colli_gpu_fail_comm(coll_comm *comm, const char *name, const coll_error *reason);

/* Makes a call use the copies instead of its buffers, and what is lent. */
void colli_gpu_stage_use(colli_gpu_stage *stage, colli_call *call);

/* Copies what the host copies: the input when the call begins, the result when it has ended. */
void colli_gpu_stage_pack(const colli_gpu_stage *stage);
void colli_gpu_stage_unpack(const colli_gpu_stage *stage);

#endif
