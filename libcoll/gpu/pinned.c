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
static void drop(colli_pinned *block, const colli_cuda *cuda) {
  cuda->mem_free_host(block->memory);
  free(block);
}

/* A new block in no list; NULL: out of memory. */
static colli_pinned *make(const colli_cuda *cuda, int class) {
  colli_pinned *block = calloc(1, sizeof(*block));
  if (!block)
    return NULL;
  block->class = class;
  const unsigned flags = COLLI_CU_MEMHOSTALLOC_PORTABLE | COLLI_CU_MEMHOSTALLOC_DEVICEMAP;
  if (cuda->mem_host_alloc(&block->memory, (size_t)1 << class, flags) == COLLI_CUDA_SUCCESS)
    return block;
  free(block);
  return NULL;
}

colli_pinned *colli_pinned_take(colli_pinned_pool *pool, const colli_cuda *cuda, size_t bytes) {
  const int class = class_of(bytes);
  if (class < 0)
    return NULL;
  colli_pinned *block = LIST_FIRST(&pool->free[class]);
  if (block)
    LIST_REMOVE(block, link);
  else
    block = make(cuda, class);
  if (!block)
    return NULL;
  LIST_INSERT_HEAD(&pool->used, block, link);
  return block;
}

void colli_pinned_put(colli_pinned_pool *pool, const colli_cuda *cuda, colli_pinned *block) {
  LIST_REMOVE(block, link);
  if ((size_t)1 << block->class > COLLI_PINNED_KEPT)
    drop(block, cuda);
  else
    LIST_INSERT_HEAD(&pool->free[block->class], block, link);
}

/* Frees the blocks of a list. */
static void drop_all(struct colli_pinned_list *list, const colli_cuda *cuda) {
  while (!LIST_EMPTY(list)) {
    colli_pinned *block = LIST_FIRST(list);
    LIST_REMOVE(block, link);
    drop(block, cuda);
  }
}

void colli_pinned_free(colli_pinned_pool *pool, const colli_cuda *cuda) {
  drop_all(&pool->used, cuda);
  for (int class = 0; class < COLLI_PINNED_CLASSES; class ++)
    drop_all(&pool->free[class], cuda);
}
