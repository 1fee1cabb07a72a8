/*
 * programs.h: the kernels of libcoll/gpu/kernels: loads them for a device, and launches them. They
 * need a driver for CUDA 11.6, and a device of compute capability 7.0 or above.
 */
#ifndef COLLI_GPU_PROGRAMS_H
#define COLLI_GPU_PROGRAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "libcoll/gpu/cuda_load.h"
#include "libcoll/gpu/kernels/meet_args.h"

/* The kernels of one device. Does not change once it is loaded, so any threads may use it. */
typedef struct colli_gpu_programs colli_gpu_programs;

/*
 * Loads all kernels into the current context, which is one of the device: as SASS if the build has
 * made some that suits the device and the driver takes it. Else the driver compiles PTX, which may
 * take seconds unless its cache has the result. Errors: UNSUPPORTED (an old driver), SYSTEM
 * (the driver's error, and what its compiler says), NO_MEMORY. Then *out is NULL.
 */
coll_status colli_gpu_programs_load(const colli_cuda *cuda, int device, colli_gpu_programs **out,
                                    coll_error *error);

/* Unloads them, when none of them runs any more. The same context is current. NULL is fine. */
void colli_gpu_programs_free(const colli_cuda *cuda, colli_gpu_programs *programs);

/* What was loaded, for people: "SASS for sm_90", "PTX, compiled by the driver" and why. */
const char *colli_gpu_programs_origin(const colli_gpu_programs *programs);

/* Whether a kernel reduces elements of a type with an operation, `wide` if it computes in float32
 * throughout (COLL_ACCUMULATE_FLOAT32). */
bool colli_gpu_folds(coll_type type, coll_op op, bool wide);

/* Whether kernels reduce elements of a type at these addresses: the bitwise OR of them all, or one.
 * At others they would break the context. */
bool colli_gpu_folds_at(coll_type type, uint64_t addresses);

/*
 * outputs[*][i] = inputs[0][i] op inputs[1][i] op ..., combined from left to right, for i < count.
 * An output may be an input; otherwise nothing overlaps. AVG divides by nranks.
 */
typedef struct colli_gpu_fold_call {
  coll_type type;
  coll_op op;
  bool wide;
  int nranks;
  uint32_t ninputs, noutputs; /* at least one each */
  const uint64_t *inputs;     /* addresses, as colli_gpu_folds_at() wants them */
  const uint64_t *outputs;
  uint64_t count;
  uint64_t *table;   /* colli_gpu_fold_words() words of pinned memory, which the kernel reads */
  uint64_t table_at; /* its address for the device */
  uint64_t guard;    /* address of a word: the kernel does nothing if it is not 0; or 0 */
} colli_gpu_fold_call;

/* How many words the table of so many inputs and outputs has: the addresses for which the kernel's
 * arguments have no room. */
static inline uint32_t colli_gpu_fold_words(uint32_t ninputs, uint32_t noutputs) {
  return (ninputs > COLL_GPU_PLACES ? ninputs - COLL_GPU_PLACES : 0) +
         (noutputs > COLL_GPU_PLACES ? noutputs - COLL_GPU_PLACES : 0);
}

/*
 * Puts the kernel into a stream of the device, whose context is current. The call can go when this
 * returns, its table when the kernel has run (in a graph: for the last time). Errors: SYSTEM.
 */
coll_status colli_gpu_launch_fold(const colli_cuda *cuda, const colli_gpu_programs *programs,
                                  colli_cu_stream stream, const colli_gpu_fold_call *fold,
                                  coll_error *error);

/* Pieces to copy, at any addresses and of any lengths. Nothing overlaps. */
typedef struct colli_gpu_copy_call {
  const struct coll_gpu_piece *pieces;
  uint32_t count;
  struct coll_gpu_piece *table; /* as above: room for the pieces from COLL_GPU_PLACES on */
  uint64_t table_at;
  uint64_t guard;
} colli_gpu_copy_call;

/* The same for copies. */
coll_status colli_gpu_launch_copy(const colli_cuda *cuda, const colli_gpu_programs *programs,
                                  colli_cu_stream stream, const colli_gpu_copy_call *copy,
                                  coll_error *error);

/* The same for a meet: one block, which waits for the other ranks. */
coll_status colli_gpu_launch_meet(const colli_cuda *cuda, const colli_gpu_programs *programs,
                                  colli_cu_stream stream, const struct coll_gpu_meet *meet,
                                  coll_error *error);

#endif
