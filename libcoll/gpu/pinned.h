/*
 * pinned.h: a pool of pinned host memory. Pinning takes long, so blocks are kept and used again.
 */
#ifndef COLLI_GPU_PINNED_H
#define COLLI_GPU_PINNED_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "libcoll/base/queue.h"
#include "libcoll/gpu/cuda_load.h"

#define COLLI_PINNED_PAGE    4096               /* the shortest blocks */
#define COLLI_PINNED_CLASSES 48                 /* powers of two */
#define COLLI_PINNED_KEPT    ((size_t)64 << 20) /* longer blocks are not kept long */

/* A block, described apart from its memory. */
typedef struct colli_pinned {
  LIST_ENTRY(colli_pinned) link; /* among those of its class that are free, or all in use */
  void *memory;
  int class;
  int owners; /* while it is in use */
  bool inner; /* its memory is a part of another one's */
} colli_pinned;

LIST_HEAD(colli_pinned_list, colli_pinned);

/*
 * A pool; zeros and an initialised mutex are an empty one. The mutex is not held while the driver
 * is called, which may wait for kernels: whoever puts a block back must not wait for them.
 */
typedef struct colli_pinned_pool {
  pthread_mutex_t mutex;
  struct colli_pinned_list used;
  struct colli_pinned_list free[COLLI_PINNED_CLASSES];
  size_t count; /* of all blocks */
} colli_pinned_pool;

/* Any thread. A block of at least `bytes` bytes, aligned to a page; NULL: the driver's *result.
 * Frees long ones that are not in use. A context is current. */
colli_pinned *colli_pinned_take(colli_pinned_pool *pool, const colli_cuda *cuda, size_t bytes,
                                colli_cu_result *result);

/* Any thread. Makes `count` blocks of a page, unless so many are free: to take them does not call
 * the driver. A context is current. */
colli_cu_result colli_pinned_reserve(colli_pinned_pool *pool, const colli_cuda *cuda, size_t count);

/* One more will return a block that is in use. */
void colli_pinned_share(colli_pinned_pool *pool, colli_pinned *block);

/* Returns it; it is free when all have. Does not call the driver, which may wait for streams. */
void colli_pinned_put(colli_pinned_pool *pool, colli_pinned *block);

/* Frees all blocks, also those in use. If there are any, a context is current. */
void colli_pinned_free(colli_pinned_pool *pool, const colli_cuda *cuda);

#endif
