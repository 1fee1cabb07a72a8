/* support_registered.h: memory of the (fake) GPUs that all ranks have registered, for buffers at
 * the same place on each of them. */
#ifndef TESTS_CUDA_SUPPORT_REGISTERED_H
#define TESTS_CUDA_SUPPORT_REGISTERED_H

#include "support_device.h"

enum { ARENA_PLACES = 40 };

/* A rank's memory, of places of one length. */
typedef struct arena {
  char *base;
  size_t each;
  bool owned; /* by the library */
  bool used[ARENA_PLACES];
  coll_registration *registration;
} arena;

/* Makes and registers an arena; on a communicator without GPU memory it is not registered.
 * `by_coll`: by coll_mem_alloc_gpu(). Collective, as is the end. */
coll_status arena_make(coll_comm *comm, arena *it, size_t each, bool by_coll);
coll_status arena_free(coll_comm *comm, arena *it);

/* The first free place, or NULL; all ranks take and give in the same order. */
void *arena_take(arena *it);
void arena_give(arena *it, void *place);

/* Memory of the arena that the calling thread has set, for cases: it begins `offset` bytes into a
 * place. */
extern const case_device arena_memory;
void arena_use(arena *it, size_t offset);

/* Overwrites device memory, by a kernel in the stream. */
void arena_spoil(const coll_comm *comm, colli_cu_stream stream, void *at, size_t bytes);

#endif
