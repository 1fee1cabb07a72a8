/*
 * virtual_memory.h: memory that cuMemCreate() allocated and cuMemMap() mapped. It may consist of
 * several allocations, one behind the other. Another process gets a descriptor of each, and maps
 * them in the same order. In all functions the device is entered.
 */
#ifndef COLLI_GPU_VIRTUAL_MEMORY_H
#define COLLI_GPU_VIRTUAL_MEMORY_H

#include <stdbool.h>

#include "libcoll/gpu/cuda_load.h"

/* What the driver knows of an address. */
typedef struct colli_gpu_found {
  unsigned type, managed;
  unsigned plain; /* of cuMemAlloc() */
  int device;
  uint64_t begin;
  size_t bytes; /* of the allocation or mapping that begins there */
  uint64_t handle_types;
  colli_cu_pool pool; /* from which it was allocated, or NULL */
} colli_gpu_found;

colli_cu_result colli_gpu_find_memory(const colli_cuda *cuda, uint64_t at, colli_gpu_found *found);

/* The mappings in which some memory lies. */
typedef struct colli_gpu_extent {
  uint64_t offset;  /* of the memory, from the beginning of the first one */
  uint64_t bytes;   /* of all together; 0: it is not virtual */
  bool has_handles; /* descriptors of all can be made */
} colli_gpu_extent;

/* Finds the mappings. Errors: INVALID_ARGUMENT (they end before, or are of another device),
 * SYSTEM. */
coll_status colli_gpu_virtual_measure(const colli_cuda *cuda, int device, uint64_t at, size_t bytes,
                                      colli_gpu_extent *extent, coll_error *error);

/* Makes a descriptor of the allocation that is mapped at an address, and says how much of it is
 * mapped. Errors: SYSTEM. */
coll_status colli_gpu_virtual_export(const colli_cuda *cuda, int device, uint64_t at, int *fd,
                                     uint64_t *bytes, coll_error *error);

/* Addresses of this process where a device sees memory of another rank. */
typedef struct colli_gpu_view {
  colli_cu_deviceptr at; /* 0: there is none */
  uint64_t reserved;     /* 0: it is not virtual */
  uint64_t mapped;       /* so far, from the beginning */
  colli_cu_pool pool;    /* of another process, that has it; or NULL */
} colli_gpu_view;

/* Reserves addresses. Errors: SYSTEM. */
coll_status colli_gpu_view_reserve(const colli_cuda *cuda, int device, uint64_t bytes,
                                   colli_gpu_view *view, coll_error *error);

/* Maps the next bytes, of a descriptor. Once all are mapped, the device may access them. Errors:
 * SYSTEM, PROTOCOL (more bytes than were said). */
coll_status colli_gpu_view_import(const colli_cuda *cuda, int device, colli_gpu_view *view, int fd,
                                  uint64_t bytes, coll_error *error);

/* Maps all bytes again that this process has mapped at `from`, for another device. Errors: SYSTEM.
 */
coll_status colli_gpu_view_copy(const colli_cuda *cuda, int device, colli_gpu_view *view,
                                uint64_t from, coll_error *error);

/* Unmaps what is mapped, and gives the addresses back. */
void colli_gpu_view_end(const colli_cuda *cuda, colli_gpu_view *view);

#endif
