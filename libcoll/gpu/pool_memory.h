/*
 * pool_memory.h: memory of a pool (cuMemAllocFromPoolAsync(), cudaMallocAsync()). Another process
 * gets a descriptor of the whole pool, and a message finds an allocation in it. In all functions
 * the device is entered.
 */
#ifndef COLLI_GPU_POOL_MEMORY_H
#define COLLI_GPU_POOL_MEMORY_H

#include "libcoll/gpu/virtual_memory.h"

/* Describes the allocation that begins at an address. False: its pool was not made for that. */
bool colli_gpu_pool_describe(const colli_cuda *cuda, uint64_t begin,
                             colli_cu_pool_pointer *pointer);

/* Makes a descriptor of the pool that has an address. Errors: SYSTEM. */
coll_status colli_gpu_pool_export(const colli_cuda *cuda, int device, uint64_t at, int *fd,
                                  coll_error *error);

/* Opens an allocation of another process, by a descriptor of its pool. Errors: SYSTEM. */
coll_status colli_gpu_pool_import(const colli_cuda *cuda, int device, int fd,
                                  const colli_cu_pool_pointer *pointer, colli_gpu_view *view,
                                  coll_error *error);

/* Closes it, and the pool. */
void colli_gpu_pool_end(const colli_cuda *cuda, colli_gpu_view *view);

/* Lets a device access the pool of this process that has an address. Errors: SYSTEM. */
coll_status colli_gpu_pool_allow(const colli_cuda *cuda, int device, uint64_t at,
                                 coll_error *error);

#endif
