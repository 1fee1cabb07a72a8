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

/* Frees the blocks of a list that nobody else has. */
static void drop_all(struct colli_pinned_list *list, const colli_cuda *cuda) {
  while (!LIST_EMPTY(list)) {
    colli_pinned *block = LIST_FIRST(list);
    LIST_REMOVE(block, link);
    if (!block->inner)
      cuda->mem_free_host(block->memory);
    free(block);
  }
}

/* Moves the long blocks that are not in use to a list, but those of a class. The mutex is held. */
static void take_long(colli_pinned_pool *pool, int but, struct colli_pinned_list *list) {
  for (int class = 0; class < COLLI_PINNED_CLASSES; class ++)
    while (class != but && (size_t)1 << class > COLLI_PINNED_KEPT &&
           !LIST_EMPTY(&pool->free[class])) {
      colli_pinned *block = LIST_FIRST(&pool->free[class]);
      LIST_REMOVE(block, link);
      LIST_INSERT_HEAD(list, block, link);
      pool->count--;
    }
}

/* A new block in no list; NULL: the driver's *result. */
static colli_pinned *make(const colli_cuda *cuda, int class, colli_cu_result *result) {
  colli_pinned *block = calloc(1, sizeof(*block));
  if (!block)
    return NULL;
  block->class = class;
  block->owners = 1;
  const unsigned flags = COLLI_CU_MEMHOSTALLOC_PORTABLE | COLLI_CU_MEMHOSTALLOC_DEVICEMAP;
  *result = cuda->mem_host_alloc(&block->memory, (size_t)1 << class, flags);
  if (*result == COLLI_CUDA_SUCCESS)
    return block;
  free(block);
  return NULL;
}

colli_pinned *colli_pinned_take(colli_pinned_pool *pool, const colli_cuda *cuda, size_t bytes,
                                colli_cu_result *result) {
  const int wanted = class_of(bytes);
  struct colli_pinned_list late = LIST_HEAD_INITIALIZER(late);
  *result = COLLI_CUDA_ERROR_OUT_OF_MEMORY;
  if (wanted < 0)
    return NULL;
  pthread_mutex_lock(&pool->mutex);
  take_long(pool, wanted, &late);
  colli_pinned *block = LIST_FIRST(&pool->free[wanted]);
  if (block) {
    LIST_REMOVE(block, link);
    LIST_INSERT_HEAD(&pool->used, block, link);
    block->owners = 1;
  }
  pthread_mutex_unlock(&pool->mutex);
  drop_all(&late, cuda);
  if (block)
    return block;
  block = make(cuda, wanted, result);
  if (!block)
    return NULL;
  pthread_mutex_lock(&pool->mutex);
  pool->count++;
  LIST_INSERT_HEAD(&pool->used, block, link);
  pthread_mutex_unlock(&pool->mutex);
  return block;
}

/* How many blocks of a page are free. */
static size_t count_pages(colli_pinned_pool *pool) {
  size_t count = 0;
  const colli_pinned *block;
  pthread_mutex_lock(&pool->mutex);
  LIST_FOREACH(block, &pool->free[LEAST_CLASS], link)
    count++;
  pthread_mutex_unlock(&pool->mutex);
  return count;
}

colli_cu_result colli_pinned_reserve(colli_pinned_pool *pool, const colli_cuda *cuda,
                                     size_t count) {
  const unsigned flags = COLLI_CU_MEMHOSTALLOC_PORTABLE | COLLI_CU_MEMHOSTALLOC_DEVICEMAP;
  struct colli_pinned_list made = LIST_HEAD_INITIALIZER(made);
  char *memory = NULL;
  if (count_pages(pool) >= count)
    return COLLI_CUDA_SUCCESS;
  colli_cu_result result = cuda->mem_host_alloc((void **)&memory, count * COLLI_PINNED_PAGE, flags);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  size_t i = 0;
  for (colli_pinned *block; i < count && (block = calloc(1, sizeof(*block))); i++) {
    *block = (colli_pinned){
        .memory = memory + i * COLLI_PINNED_PAGE, .class = LEAST_CLASS, .inner = i > 0};
    LIST_INSERT_HEAD(&made, block, link);
  }
  if (i == 0)
    cuda->mem_free_host(memory);
  pthread_mutex_lock(&pool->mutex);
  pool->count += i;
  while (!LIST_EMPTY(&made)) {
    colli_pinned *block = LIST_FIRST(&made);
    LIST_REMOVE(block, link);
    LIST_INSERT_HEAD(&pool->free[LEAST_CLASS], block, link);
  }
  pthread_mutex_unlock(&pool->mutex);
  return i == count ? COLLI_CUDA_SUCCESS : COLLI_CUDA_ERROR_OUT_OF_MEMORY;
}

void colli_pinned_share(colli_pinned_pool *pool, colli_pinned *block) {
  pthread_mutex_lock(&pool->mutex);
  block->owners++;
  pthread_mutex_unlock(&pool->mutex);
}

void colli_pinned_put(colli_pinned_pool *pool, colli_pinned *block) {
  pthread_mutex_lock(&pool->mutex);
  if (--block->owners == 0) {
    LIST_REMOVE(block, link);
    LIST_INSERT_HEAD(&pool->free[block->class], block, link);
  }
  pthread_mutex_unlock(&pool->mutex);
}

void colli_pinned_free(colli_pinned_pool *pool, const colli_cuda *cuda) {
  drop_all(&pool->used, cuda);
  for (int class = 0; class < COLLI_PINNED_CLASSES; class ++)
    drop_all(&pool->free[class], cuda);
  pool->count = 0;
}
