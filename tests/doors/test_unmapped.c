/*
 * test_unmapped.c: a rank runs out of memory for connections over shared memory, or for messages
 * that wait there: the error on all ranks names that rank.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/proc/support_ranks.h"
#include "waits.h"

enum { RANKS = 3, MESSAGES = 4 };

typedef struct scene {
  int victim;
  int failing;    /* from which call on; counted in the operations */
  bool allocates; /* aligned_alloc() fails, not mmap() */
  atomic_int failed;
  atomic_bool stays_away; /* the victim makes no call until the others have sent */
  atomic_int ahead;       /* ranks that have sent on the second communicator */
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

/* The others' messages on the second communicator come while the victim waits on the first one,
 * which has the same connections. */
static int wait_on_another(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  int value = 1, sum = 0;
  coll_comm *first = NULL, *second = NULL;
  (void)nranks;
  s->error[rank] = (coll_error)COLL_ERROR_INIT;
  RANK_OK(coll_comm_dup(comm, NULL, &first));
  RANK_OK(coll_comm_dup(comm, NULL, &second));
  RANK_OK(coll_allreduce(&value, &sum, 1, COLL_INT32, COLL_SUM, first)); /* connects */
  if (rank == s->victim) {
    atomic_store(&s->stays_away, true);
    RANK_CHECK(WAIT_UNTIL(atomic_load(&s->ahead) == RANKS - 1, 20));
    shortage = s;
  } else {
    RANK_CHECK(WAIT_UNTIL(atomic_load(&s->stays_away), 20));
    for (int i = 0; i < MESSAGES; i++)
      RANK_OK(coll_send(&value, 1, COLL_INT32, s->victim, 1, second));
    atomic_fetch_add(&s->ahead, 1);
  }
  s->status[rank] = coll_allreduce(&value, &sum, 1, COLL_INT32, COLL_SUM, first);
  shortage = NULL;
  coll_last_error(first, &s->error[rank]);
  coll_comm_destroy(&first);
  coll_comm_destroy(&second);
  return 0;
}

/* Plays a case; whether a call failed. */
static bool play(rank_fn run, int victim, int failing, bool allocates) {
  coll_config config = COLL_CONFIG_INIT;
  scene *s = shared_memory(sizeof(*s));
  s->victim = victim;
  s->failing = failing;
  s->allocates = allocates;
  config.transport = "shm";
  config.timeout_ms = slow_ms(10000);
  cr_expect_eq(run_processes(RANKS, &config, run, s, 40, NULL), 0);
  for (int r = 0; r < RANKS && atomic_load(&s->failed) > 0; r++) {
    const coll_error *e = &s->error[r];
    if (run == wait_on_another && r != victim && s->status[r] == COLL_OK)
      continue; /* it needed nothing more from the victim */
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
    while (play(sum_once, victim, n, false))
      n++;
    cr_expect_gt(n, 1, "rank %d maps nothing", victim);
  }
}

Test(unmapped, no_memory_for_a_connection, .timeout = 120) {
  for (int victim = 0; victim < RANKS; victim++)
    cr_expect(play(sum_once, victim, 1, true));
}

Test(unmapped, no_memory_for_a_message, .timeout = 120) {
  for (int victim = 0; victim < RANKS; victim++) {
    int n = 1;
    while (play(wait_on_another, victim, n, true))
      n++;
    cr_expect_gt(n, 1, "rank %d keeps no message", victim);
  }
}
