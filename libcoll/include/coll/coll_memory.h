/*
 * coll_memory.h: memory that other ranks read where it is: of the host, and of GPUs. Included by
 * coll.h.
 */
#ifndef COLL_COLL_MEMORY_H
#define COLL_COLL_MEMORY_H

#include "coll/coll_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- host memory --------------------------------------------------------------------------- */

/*
 * Allocates `bytes` bytes for collectives on `comm`: aligned to 64 bytes or better, zeroed and
 * prefaulted. The memory belongs to the caller until coll_mem_free() or the end of `comm`. From 16
 * KiB on it takes a file descriptor. If bytes is 0, *ptr becomes NULL.
 *
 * Ranks on the same host read such memory directly, which saves a copy of every longer message. If
 * each has its own core, they also write to it, so that a rank that would only wait does part of
 * the work. A send or receive buffer may be such memory, a part of it, or ordinary memory. On other
 * communicators, including those made from `comm`, it is ordinary memory. No rank writes to it
 * after the call that uses it has returned, even with an error (docs/failures.md). A forked child
 * may read it and must not write to it: it is the same memory as the parent's.
 *
 * Errors: INVALID_ARGUMENT, NO_MEMORY, SYSTEM.
 */
COLL_API coll_status coll_mem_alloc(coll_comm *comm, size_t bytes, void **ptr);

/*
 * Releases memory of coll_mem_alloc(); ptr may be NULL. Errors: INVALID_ARGUMENT (not such memory),
 * INVALID_USAGE (an operation of `comm` in flight uses it; nothing is released). Memory of
 * coll_mem_alloc_gpu() is released by all ranks together, with the errors of
 * coll_comm_deregister().
 */
COLL_API coll_status coll_mem_free(coll_comm *comm, void *ptr);

/* ---- GPU memory that all ranks map --------------------------------------------------------- */

/* Memory of all ranks, which belongs to the communicator until coll_comm_deregister(). */
typedef struct coll_registration coll_registration;

/*
 * Registers memory of the caller's own, so that calls in streams (coll_<name>_on_stream()) read
 * long buffers in it where they are, without copies through slots; of a communicator whose ranks
 * are in groups (coll_comm_use_gpu()), what ranks do within their group. Each rank passes its own
 * memory, of cudaMalloc() or part of it, on the GPU that the communicator uses; all have the same
 * `bytes`. Or virtual memory, of one allocation or several, which remains mapped; if ranks are in
 * several processes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR must be among the
 * requestedHandleTypes of all allocations. Or memory of a pool, whose allocation its stream has
 * done; if ranks are in several processes, the pool must have been made with the handle type
 * CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, and the others may access all of it from then on.
 *
 * From then on, all ranks that make a call pass buffers at the same offset of the same
 * registration, or all of them pass buffers that are in none: else they get COLL_ERR_MISMATCH, if
 * the message is long. docs/gpu/registered.md says which buffers that concerns, and what else to
 * know. Results have the same bits. Other calls, and the other use of the memory, do not change.
 *
 * The caller still owns the memory, and frees it after coll_comm_deregister(); after a failure, not
 * before all ranks that live have destroyed the communicator, because they may still read it.
 * *registration is for that call alone; unless COLL_OK is returned it is NULL. What is registered
 * at the end of `comm` ends with it.
 *
 * Collective, between calls in streams, as coll_comm_use_gpu(); one thread at a time. Errors, the
 * same on all ranks, of which then none has registered anything, but for registration == NULL:
 * UNSUPPORTED (calls of `comm` are staged; or some rank cannot map another's memory),
 * INVALID_ARGUMENT (null or no memory of that GPU, bytes is 0, beyond the allocation or different
 * among ranks), NO_MEMORY, SYSTEM, MISMATCH and those of all collectives.
 */
COLL_API coll_status coll_comm_register(coll_comm *comm, void *ptr, size_t bytes,
                                        coll_registration **registration);

/*
 * Ends a registration on all ranks: when it returns COLL_OK, this rank's streams have ended all
 * calls that use the memory, no rank has it mapped any more, and *registration is NULL. Collective,
 * as coll_comm_register(). Errors: INVALID_ARGUMENT (not a registration of `comm`). On all ranks
 * alike, and it remains: INVALID_USAGE (a graph of some rank has a call that uses it, and the
 * driver does not say within 2 s that it is gone), TIMEOUT (a stream of some rank does not end such
 * a call). If the communicator has failed or fails, its error; then *registration is NULL, and the
 * memory remains mapped until coll_comm_destroy().
 */
COLL_API coll_status coll_comm_deregister(coll_comm *comm, coll_registration **registration);

/*
 * Allocates `bytes` bytes of GPU memory on each rank and registers them: as coll_comm_register() of
 * memory of cudaMalloc(), zeroed. It belongs to the caller until coll_mem_free(), which is
 * collective for such memory, or the end of `comm`. After a failure it is kept until the process
 * ends if another rank may still look into it. *ptr is NULL unless COLL_OK is returned. Errors: as
 * coll_comm_register().
 */
COLL_API coll_status coll_mem_alloc_gpu(coll_comm *comm, size_t bytes, void **ptr);

#ifdef __cplusplus
}
#endif

#endif /* COLL_COLL_MEMORY_H */
