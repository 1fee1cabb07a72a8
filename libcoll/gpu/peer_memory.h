/*
 * peer_memory.h: memory of the program that all ranks of a communicator map, besides their areas
 * (peers.h). Each rank describes its own, and maps that of the others.
 */
#ifndef COLLI_GPU_PEER_MEMORY_H
#define COLLI_GPU_PEER_MEMORY_H

#include "libcoll/gpu/peers.h"
#include "libcoll/gpu/pool_memory.h"
#include "libcoll/gpu/virtual_memory.h"

typedef enum colli_gpu_memory_kind {
  COLLI_GPU_PLAIN,   /* of cuMemAlloc(): every device with peer access reaches it */
  COLLI_GPU_VIRTUAL, /* of cuMemMap(): devices reach what is mapped for them */
  COLLI_GPU_POOLED,  /* of a pool: devices reach it for which that is allowed */
  COLLI_GPU_UNSHARED /* the driver shares none: only its own device reaches it */
} colli_gpu_memory_kind;

/* What a rank tells the others of its memory. It travels as it is. */
typedef struct colli_gpu_memory_offer {
  union {                          /* finds its allocation in other processes, if `shared` */
    colli_cu_ipc_handle handle;    /* PLAIN */
    colli_cu_pool_pointer pointer; /* POOLED, with a descriptor of the pool */
  } by;
  uint64_t at;     /* in the process that owns it */
  uint64_t offset; /* from the beginning of the allocation, or of the first one */
  uint64_t bytes;
  uint64_t extent; /* VIRTUAL, POOLED: the length of its allocations together */
  int32_t device;  /* its number in that process */
  int32_t failed;  /* coll_status: why there is none */
  uint8_t kind;    /* colli_gpu_memory_kind */
  uint8_t shared;  /* other processes can have it */
  char reason[150];
} colli_gpu_memory_offer;

/* Memory of all ranks. */
typedef struct colli_gpu_memory {
  colli_cu_deviceptr *at; /* nranks: where this process sees it */
  colli_gpu_view *views;  /* nranks: what was opened or mapped for that */
  uint64_t low;           /* the last bits of all addresses, by OR */
} colli_gpu_memory;

/*
 * Describes memory of this rank's device. Errors: INVALID_ARGUMENT (no such memory, or it ends
 * before), SYSTEM.
 */
coll_status colli_gpu_memory_describe(const colli_gpu_peers *peers, const void *at, size_t bytes,
                                      colli_gpu_memory_offer *offer, coll_error *error);

/*
 * Maps the memory of all others, whose areas are mapped, but what comes by descriptors. Errors:
 * UNSUPPORTED (this process does not reach some of it), NO_MEMORY, SYSTEM, PROTOCOL (an offer is
 * wrong). Some may be mapped then.
 */
coll_status colli_gpu_memory_map(const colli_gpu_peers *peers, const colli_gpu_memory_offer *offers,
                                 colli_gpu_memory *memory, coll_error *error);

/* Whether another process gets descriptors of memory. */
static inline bool colli_gpu_memory_by_descriptor(const colli_gpu_memory_offer *offer) {
  return (offer->kind == COLLI_GPU_VIRTUAL || offer->kind == COLLI_GPU_POOLED) && offer->shared;
}

/* Whether a rank's memory comes by descriptors. */
static inline bool colli_gpu_memory_needs(const colli_gpu_peers *peers, int rank,
                                          const colli_gpu_memory_offer *offer) {
  return rank != peers->rank && peers->opened[rank] && colli_gpu_memory_by_descriptor(offer);
}

/* Makes a descriptor of this rank's memory: of the allocation that has its first `given` bytes
 * behind it, or of its pool; *bytes: its length. Errors: SYSTEM. */
coll_status colli_gpu_memory_export(const colli_gpu_peers *peers, const colli_gpu_memory_offer *own,
                                    uint64_t given, int *fd, uint64_t *bytes, coll_error *error);

/* Maps the next `bytes` bytes of a rank's memory, of a descriptor. Errors: SYSTEM, PROTOCOL. */
coll_status colli_gpu_memory_import(const colli_gpu_peers *peers, int rank,
                                    const colli_gpu_memory_offer *offer, int fd, uint64_t bytes,
                                    colli_gpu_memory *memory, coll_error *error);

/* Unmaps what is mapped, when no stream uses it any more, and forgets it. */
void colli_gpu_memory_unmap(const colli_gpu_peers *peers, colli_gpu_memory *memory);

/* Allocates memory that is 0 on this rank's device, in blocks that the driver shares alone. Errors:
 * NO_MEMORY, SYSTEM. */
coll_status colli_gpu_memory_take(const colli_gpu_peers *peers, size_t bytes, void **at,
                                  coll_error *error);
void colli_gpu_memory_give(const colli_gpu_peers *peers, void *at);

#endif
