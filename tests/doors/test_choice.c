/*
 * test_choice.c: an allocation fails while a rank chooses an algorithm: it chooses what it would
 * have chosen, as the other ranks do, or fails for lack of memory.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extent.h"
#include "libcoll/cost/links.h"
#include "libcoll/tuning/choose.h"

static int failing; /* which allocation fails from now on; 0: none */
static int failed;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

static bool is_short(void) {
  if (failing == 0 || --failing > 0)
    return false;
  failed++;
  return true;
}

void *__wrap_malloc(size_t bytes) {
  return is_short() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes) {
  return is_short() ? NULL : __real_calloc(count, bytes);
}

/* What is chosen if the n-th allocation fails (0: none). */
static coll_status choose(const colli_shape *shape, int cores, size_t count, int n,
                          colli_choice *choice) {
  coll_error error = COLL_ERROR_INIT;
  colli_limits limits = {.slot_count = 8};
  colli_model model;
  colli_limits_default(COLLI_LINK_SHM, &limits);
  colli_model_default(COLLI_LINK_SHM, shape->nranks, cores, &model);
  colli_chooser chooser = {.limits = &limits, .model = &model}; /* it remembers nothing */
  failing = n;
  failed = 0;
  coll_status status = colli_choose(&chooser, shape, count, 4, count * 4, choice, &error);
  failing = 0;
  colli_chooser_free(&chooser);
  return status;
}

/* Every allocation fails once. */
static void choose_short_of_memory(const colli_shape *shape, int cores, size_t count,
                                   int *short_of) {
  colli_choice whole, choice;
  cr_assert_eq(choose(shape, cores, count, 0, &whole), COLL_OK);
  for (int n = 1;; n += extent(1 + n / 8, 1, 1 + n / 2)) {
    coll_status status = choose(shape, cores, count, n, &choice);
    if (failed == 0)
      return;
    *short_of += status == COLL_ERR_NO_MEMORY;
    if (status == COLL_OK)
      cr_expect(choice.algo == whole.algo && choice.chunk_bytes == whole.chunk_bytes,
                "%s of %d ranks on %d cores, %zu elements: %s instead of %s at allocation %d",
                colli_coll_name(shape->coll), shape->nranks, cores, count, choice.algo->name,
                whole.algo->name, n);
    else
      cr_expect_eq(status, COLL_ERR_NO_MEMORY);
  }
}

Test(choice, without_memory, .timeout = 200) {
  static const int nranks[] = {3, 8, 24};
  int short_of = 0;
  for (int coll = 0; coll < COLLI_COLL_COUNT; coll++)
    for (int i = 0; i < 3 && coll != COLLI_SENDRECV; i++)
      for (int grouped = 0; grouped < 2; grouped++)
        for (size_t count = 4; count <= 1u << 20; count *= 512) {
          const int n = nranks[i];
          int group[24];
          for (int r = 0; r < n; r++)
            group[r] = r * 2 / n;
          colli_shape shape = {.coll = (colli_coll)coll, .nranks = n};
          shape.ngroups = grouped ? 2 : 0;
          shape.group = grouped ? group : NULL;
          choose_short_of_memory(&shape, grouped ? n : 2, count, &short_of);
        }
  printf("%d times short of memory\n", short_of);
  cr_expect_gt(short_of, 0);
}
