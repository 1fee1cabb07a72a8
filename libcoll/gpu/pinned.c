/* pinned.c: pinned host memory in blocks whose lengths are powers of two. */
#include "libcoll/gpu/pinned.h"

#include <stdlib.h>

#define LEAST_CLASS 12 /* a page */

/* The class of a length: the power of two that holds it. -1: there is none. */
static int class_of(size_t bytes) {
  int class = LEAST_CLASS;
  while (class < COLLI_PINNED_CLASSES && (size_t)1 << class < bytes)
    class ++;
  return class < COLLI_PINNED_CLASSES ? class : -1;
}

/* Frees one block that is in no list. */
static void drop(colli_pinned_pool *pool, colli_pinned *block, const colli_cuda *cuda) {
  pool->count--;
  cuda->mem_free_host(block->memory);
  free(block);
}

/* Frees the blocks of a list. */
static void drop_all(colli_pinned_pool *pool, struct colli_pinned_list *list,
                     const colli_cuda *cuda) {
  while (!LIST_EMPTY(list)) {
    colli_pinned *block = LIST_FIRST(list);
    LIST_REMOVE(block, link);
    drop(pool, block, cuda);
  }
}

/* A new block in no list; NULL: the driver's *result. */
static colli_pinned *make(colli_pinned_pool *pool, const colli_cuda *cuda, int class,
                          colli_cu_result *result) {
  colli_pinned *block = calloc(1, sizeof(*block));
  if (!block)
    return NULL;
  block->class = class;
  const unsigned flags = COLLI_CU_MEMHOSTALLOC_PORTABLE | COLLI_CU_MEMHOSTALLOC_DEVICEMAP;
  *result = cuda->mem_host_alloc(&block->memory, (size_t)1 << class, flags);
  if (*result == COLLI_CUDA_SUCCESS) {
    pool->count++;
    return block;
  }
  free(block);
  return NULL;
}

colli_pinned *colli_pinned_take(colli_pinned_pool *pool, const colli_cuda *cuda, size_t bytes,
                                colli_cu_result *result) {
  const int wanted = class_of(bytes);
  *result = COLLI_CUDA_ERROR_OUT_OF_MEMORY;
  if (wanted < 0)
    return NULL;
  for (int class = 0; class < COLLI_PINNED_CLASSES; class ++)
    if (class != wanted && (size_t)1 << class > COLLI_PINNED_KEPT)
      drop_all(pool, &pool->free[class], cuda);
  colli_pinned *block = LIST_FIRST(&pool->free[wanted]);
  if (block)
    LIST_REMOVE(block, link);
  else
    block = make(pool, cuda, wanted, result);
  if (!block)
    return NULL;
  LIST_INSERT_HEAD(&pool->used, block, link);
  return block;
}

void colli_pinned_put(colli_pinned_pool *pool, colli_pinned *block) {
  LIST_REMOVE(block, link);
  LIST_INSERT_HEAD(&pool->free[block->class], block, link);
}

void colli_pinned_free(colli_pinned_pool *pool, const colli_cuda *cuda) {
  drop_all(pool, &pool->used, cuda);
  for (int class = 0; class < COLLI_PINNED_CLASSES; class ++)
    drop_all(pool, &pool->free[class], cuda);
}
