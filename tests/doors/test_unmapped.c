/*
 * test_unmapped.c: a rank runs out of memory for connections over shared memory: the error on all
 * ranks names that rank, and says what ran short.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/proc/support_ranks.h"

enum { RANKS = 3 };

typedef struct scene {
  int victim;
  int failing;    /* from which call on; counted in the first operation */
  bool allocates; /* aligned_alloc() fails, not mmap() */
  atomic_int failed;
  coll_status status[RANKS];
  coll_error error[RANKS];
} scene;

static scene *shortage; /* in the victim, during the operation */
static int calls;

void *__real_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

/* Whether this call fails. */
static bool is_short(bool allocates) {
  if (!shortage || shortage->allocates != allocates || ++calls < shortage->failing)
    return false;
  atomic_fetch_add(&shortage->failed, 1);
  errno = ENOMEM;
  return true;
}

void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset) {
  return is_short(false) ? MAP_FAILED : __real_mmap(at, bytes, prot, flags, fd, offset);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
  return is_short(true) ? NULL : __real_aligned_alloc(alignment, bytes);
}

static int sum_once(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  int value = 1, sum = 0;
  (void)nranks;
  s->error[rank] = (coll_error)COLL_ERROR_INIT;
  shortage = rank == s->victim ? s : NULL;
  s->status[rank] = coll_alltoall(&(int[RANKS]){1, 2, 3}, &(int[RANKS]){0}, 1, COLL_INT32, comm);
  if (s->status[rank] == COLL_OK)
    s->status[rank] = coll_allreduce(&value, &sum, 1, COLL_INT32, COLL_SUM, comm);
  shortage = NULL;
  coll_last_error(comm, &s->error[rank]);
  return 0;
}

/* Plays a case; whether a call failed. */
static bool play(int victim, int failing, bool allocates) {
  coll_config config = COLL_CONFIG_INIT;
  scene *s = shared_memory(sizeof(*s));
  s->victim = victim;
  s->failing = failing;
  s->allocates = allocates;
  config.transport = "shm";
  config.timeout_ms = slow_ms(10000);
  cr_expect_eq(run_processes(RANKS, &config, sum_once, s, 40, NULL), 0);
  for (int r = 0; r < RANKS && atomic_load(&s->failed) > 0; r++) {
    const coll_error *e = &s->error[r];
    cr_expect_eq(s->status[r], COLL_ERR_NO_MEMORY, "call %d of rank %d: rank %d has %s: %s",
                 failing, victim, r, coll_status_name(s->status[r]), e->message);
    cr_expect(e->peer == victim || (e->peer < 0 && e->rank == victim),
              "call %d of rank %d: rank %d blames %d (found by %d): %s", failing, victim, r,
              e->peer, e->rank, e->message);
  }
  return atomic_load(&s->failed) > 0;
}

Test(unmapped, no_memory_to_map, .timeout = 120) {
  for (int victim = 0; victim < RANKS; victim++) {
    int n = 1;
    while (play(victim, n, false))
      n++;
    cr_expect_gt(n, 1, "rank %d maps nothing", victim);
  }
}

Test(unmapped, no_memory_for_a_connection, .timeout = 120) {
  for (int victim = 0; victim < RANKS; victim++)
    cr_expect(play(victim, 1, true));
}
