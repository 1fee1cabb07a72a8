/* memory.h: a communicator's regions (coll_mem_alloc()), and which of them transports know. */
#ifndef COLLI_CALL_MEMORY_H
#define COLLI_CALL_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One allocation. */
typedef struct colli_memory {
  struct colli_memory *next;
  char *ptr;
  size_t bytes;
  int fd;          /* -1: ordinary memory */
  uint32_t region; /* the transports' number for it; 0: they do not know it */
} colli_memory;

typedef struct colli_memories {
  colli_memory *first;
  uint32_t last_region; /* the number of the last region that transports know */
} colli_memories;

/* Whether a pointer leads into memory. */
static inline bool colli_memory_holds(const colli_memory *memory, const void *ptr) {
  return (size_t)((uintptr_t)ptr - (uintptr_t)memory->ptr) < memory->bytes;
}

/* The transports' number for the region that contains a pointer; 0 if none. */
static inline uint32_t colli_memory_region(const colli_memories *memories, const void *ptr) {
  for (const colli_memory *memory = memories->first; memory; memory = memory->next)
    if (colli_memory_holds(memory, ptr))
      return memory->region;
  return 0;
}

#endif
