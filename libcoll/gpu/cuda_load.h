/*
 * cuda_load.h: CUDA's driver, loaded at run time, so that one build of libcoll serves machines with
 * and without it.
 */
#ifndef COLLI_GPU_CUDA_LOAD_H
#define COLLI_GPU_CUDA_LOAD_H

#include "coll/coll.h"
#include "libcoll/gpu/cuda_abi.h"
#include "libcoll/gpu/cuda_entries.h"

#define COLLI_CUDA_LIBRARY "libcuda.so.1"

/*
 * What came with CUDA 11.4 or before is always there once the driver is loaded. The following are
 * newer and may be NULL: stream_wait_value_32, stream_write_value_32, stream_batch_mem_op,
 * mem_get_range_handle (11.7), launch_kernel (11.6), func_load (12.4).
 */
#define COLLI_CUDA_OLDEST 11040

/* The driver's functions, by the names of cuda_entries.h. */
typedef struct colli_cuda {
  void *handle;       /* of dlopen(); NULL: not loaded */
  int driver_version; /* of CUDA, 1000 * major + 10 * minor */
#define COLLI_CUDA_FIELD(field, name, suffix, version, arguments) colli_cu_result(*field) arguments;
  COLLI_CUDA_ENTRIES(COLLI_CUDA_FIELD)
#undef COLLI_CUDA_FIELD
} colli_cuda;

/*
 * Loads the library `name` (COLLI_CUDA_LIBRARY), fills in the table and initialises the driver.
 * UNSUPPORTED, with a message for the user, if the driver is not there, too old, or finds nothing
 * to drive; then the table is zero.
 */
coll_status colli_cuda_load(colli_cuda *cuda, const char *name, coll_error *error);

/* Zeroes the table. The library stays loaded, because it is not made to be unloaded. */
void colli_cuda_close(colli_cuda *cuda);

/* The driver's name of a result ("CUDA_ERROR_NO_DEVICE"), or "unknown". Never NULL. */
const char *colli_cuda_result_name(const colli_cuda *cuda, colli_cu_result result);

/* What the driver says about a result ("no CUDA-capable device is detected"), or
 * "no description". Never NULL. */
const char *colli_cuda_result_text(const colli_cuda *cuda, colli_cu_result result);

/* Fills in the record of a function of the driver that failed; returns SYSTEM. */
coll_status colli_cuda_fail(const colli_cuda *cuda, coll_error *error, const char *function,
                            int device, colli_cu_result result);

/* The same, or COLL_OK if it has not failed. */
static inline coll_status colli_cuda_status(const colli_cuda *cuda, coll_error *error,
                                            const char *function, int device,
                                            colli_cu_result result) {
  return result == COLLI_CUDA_SUCCESS ? COLL_OK
                                      : colli_cuda_fail(cuda, error, function, device, result);
}

#endif
