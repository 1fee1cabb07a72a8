/*
 * verbs_mr.h: memory that a device may read and write.
 *
 * Registrations are kept only for memory whose end libcoll knows of: the slots, and what
 * coll_mem_alloc() made (region_add, region_remove). For other memory a kept registration could
 * outlive the mapping, and then refer to pages that the program no longer has. Such memory is
 * registered for one operation, in which the caller must not free it anyway, and released after it.
 */
#ifndef COLLI_TRANSPORTS_VERBS_MR_H
#define COLLI_TRANSPORTS_VERBS_MR_H

#include "transports/verbs/verbs_device.h"

/* What a rail's registrations need; fill it in once. */
typedef struct verbs_domain {
  const verbs_lib *lib;
  const verbs_rail *rail;
  struct ibv_pd *pd;
} verbs_domain;

/* What memory is for. */
typedef enum verbs_use {
  VERBS_USE_READ,  /* the device reads it: source of sends and writes */
  VERBS_USE_WRITE, /* peers write to it as well, and it is read after a completion:
                      the device may let writes overtake each other */
  VERBS_USE_POLL   /* peers write to it as well, and the receiver polls it */
} verbs_use;

/*
 * Registers memory; NULL with the reason. If the locked-memory limit forbids it and the device has
 * on-demand paging, the memory stays pageable.
 */
struct ibv_mr *verbs_mr_register(const verbs_domain *domain, const void *memory, size_t bytes,
                                 verbs_use use, verbs_fault *fault);

/* The same for memory of another device, such as a GPU, by its dma-buf; `iova` is the address by
 * which work requests call its first byte. UNSUPPORTED where library or kernel cannot. */
struct ibv_mr *verbs_mr_register_dmabuf(const verbs_domain *domain, int fd, uint64_t offset,
                                        size_t bytes, uint64_t iova, verbs_use use,
                                        verbs_fault *fault);

/* Releases a registration; NULL is fine. */
void verbs_mr_release(const verbs_domain *domain, struct ibv_mr *mr);

/* ---- slots ----------------------------------------------------------------------------------- */

/* Memory of the transport itself, registered. */
typedef struct verbs_slab {
  void *memory;
  size_t bytes; /* as mapped */
  struct ibv_mr *mr;
  bool huge; /* of huge pages that were set aside */
} verbs_slab;

/* Maps and registers zeroed memory, of huge pages where there are some; children of fork() do not
 * get it. */
coll_status verbs_slab_create(const verbs_domain *domain, size_t bytes, verbs_use use,
                              verbs_slab *slab, verbs_fault *fault);

void verbs_slab_destroy(const verbs_domain *domain, verbs_slab *slab);

/*
 * Whether the locked-memory limit lets this process register `bytes` bytes, as far as that is known
 * without trying; if not, says what to do.
 */
bool verbs_lock_allowed(size_t bytes, verbs_fault *fault);

/* ---- regions --------------------------------------------------------------------------------- */

typedef struct verbs_area {
  uintptr_t begin;
  size_t bytes;
  uint32_t region;
  bool refused; /* could not be registered: not tried again */
  verbs_use use;
  struct ibv_mr *mr;
} verbs_area;

/* A buffer that an operation has registered. */
typedef struct verbs_buffer {
  const void *owner;
  uintptr_t begin;
  size_t bytes;
} verbs_buffer;

/* The regions of coll_mem_alloc(), in the order of their addresses, and the buffers of operations;
 * registered when first used. */
typedef struct verbs_cache {
  verbs_domain domain;
  verbs_area *areas;
  int count, capacity;
  verbs_buffer *buffers;
  int nbuffers, buffer_capacity;
  verbs_area *registered; /* disjoint; each is kept as long as a buffer overlaps it */
  int nregistered, registered_capacity;
  bool short_of_memory; /* a buffer could not be noted: none is registered any more */
  bool refused, noted;  /* a registration was refused; that has been noted */
  verbs_fault fault;    /* the reason of the first */
} verbs_cache;

/* coll_transport_ops.region_add and region_remove for one rail. COLL_OK or NO_MEMORY. */
coll_status verbs_cache_add(verbs_cache *cache, uint32_t region, const void *memory, size_t bytes);
void verbs_cache_remove(verbs_cache *cache, uint32_t region);

/* coll_transport_ops.register_buffer and release_buffers for one rail. */
void verbs_cache_register(verbs_cache *cache, const void *owner, const void *memory, size_t bytes,
                          verbs_use use);
void verbs_cache_release(verbs_cache *cache, const void *owner);

/*
 * The registration in which a range lies entirely. NULL if the range lies in no region and in
 * nothing that was registered for this use, or could not be registered: then it is copied.
 */
struct ibv_mr *verbs_cache_find(verbs_cache *cache, const void *memory, size_t bytes,
                                verbs_use use);

/* Releases everything. */
void verbs_cache_free(verbs_cache *cache);

#endif
