/*
 * test_frozen_helper.c: a rank that works on a peer's coll_mem_alloc() memory stops in the middle
 * of a slice, and continues after the peer's call has failed and returned. Nothing that it still
 * writes reaches the peer's memory. This does not depend on time: the helper's sum stops halfway,
 * and the owner's sum waits for that.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libcoll/comm/comm.h"
#include "libcoll/exec/reduce.h"
#include "support_ranks.h"
#include "waits.h"

#define COUNT ((size_t)1 << 16)
#define BYTES (COUNT * sizeof(float))

/* Shared between both ranks. */
typedef struct scene {
  bool all_reduce; /* both get the sum, so the helper stores it twice; else only rank 0 */
  bool threads;
  pid_t helper;
  atomic_bool stopped; /* the helper is in the middle of a slice */
  atomic_bool resumed; /* threads: the helper may continue */
  atomic_bool written; /* the helper has written the rest of it */
  coll_status status;
  size_t changed; /* bytes of rank 0's memory */
} scene;

/* The state of the rank that computes a sum. */
static _Thread_local struct {
  scene *s; /* NULL: sums are as usual */
  int rank;
  const char *in, *out;
} self;

static colli_reduce_fn real_sum;

/* Sleeps until a flag is set; false if that takes too long. */
static bool wait_for(atomic_bool *flag) {
  return WAIT_UNTIL(atomic_load(flag), slow_s(10));
}

/* Whether memory is another rank's. */
static bool is_foreign(const void *at) {
  uintptr_t to = (uintptr_t)at;
  return at && to - (uintptr_t)self.in >= BYTES && to - (uintptr_t)self.out >= BYTES;
}

/* The helper's sum of a slice of the owner's memory: stops halfway, and later writes all of it. */
static void stop_half_way(scene *s, void *dst, void *dst2, size_t count) {
  s->helper = getpid();
  atomic_store(&s->stopped, true);
  if (s->threads)
    wait_for(&s->resumed);
  else
    raise(SIGSTOP);
  memset(dst, 0xaa, count * sizeof(float));
  if (dst2)
    memset(dst2, 0xaa, count * sizeof(float));
  atomic_store(&s->written, true);
}

/* Replaces the kernel of float32 sums. */
static void sum(void *dst, void *dst2, const void *a, const void *b, size_t count) {
  real_sum(dst, dst2, a, b, count);
  if (!self.s)
    return;
  if (self.rank == 0)
    wait_for(&self.s->stopped);
  else if (!atomic_load(&self.s->stopped) && (is_foreign(dst) || is_foreign(dst2)))
    stop_half_way(self.s, dst, dst2, count);
}

static coll_status add_up(coll_comm *comm, const scene *s, const float *in, float *out) {
  return s->all_reduce ? coll_allreduce(in, out, COUNT, COLL_FLOAT32, COLL_SUM, comm)
                       : coll_reduce(in, out, COUNT, COLL_FLOAT32, COLL_SUM, 0, comm);
}

/* Rank 0 has its memory back. It lets the helper continue, and checks whether that changes
 * anything. It must not write before that: writing alone would make the pages private. */
static int use_again(coll_comm *comm, scene *s, char *out) {
  const int rank = 0;
  char *before = malloc(BYTES);
  RANK_CHECK(before);
  memcpy(before, out, BYTES);
  if (s->threads)
    atomic_store(&s->resumed, true);
  else
    kill(s->helper, SIGCONT);
  RANK_CHECK(wait_for(&s->written));
  for (size_t i = 0; i < BYTES; i++)
    s->changed += out[i] != before[i];
  free(before);
  memset(out, 0x66, BYTES);
  RANK_CHECK(out[0] == 0x66 && out[BYTES - 1] == 0x66);
  RANK_OK(coll_mem_free(comm, out));
  return 0;
}

static int play_rank(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  scene *s = arg;
  float *in, *out;
  RANK_OK(coll_mem_alloc(comm, BYTES, (void **)&in));
  RANK_OK(coll_mem_alloc(comm, BYTES, (void **)&out));
  for (int round = 0; round < 5; round++) /* until both have mapped all memory */
    RANK_OK(add_up(comm, s, in, out));
  colli_kernels kernels = *comm->exec.kernels;
  kernels.reduce[COLL_FLOAT32][COLL_SUM] = sum;
  comm->exec.kernels = &kernels;
  self.s = s;
  self.rank = rank;
  self.in = (const char *)in;
  self.out = (const char *)out;
  coll_status status = COLL_OK;
  for (int round = 0; status == COLL_OK && round < 1000; round++)
    status = add_up(comm, s, in, out);
  self.s = NULL;
  if (rank == 1)
    return status == COLL_OK;
  s->status = status;
  return use_again(comm, s, (char *)out);
}

/* Plays it once. */
static void play(bool threads, bool all_reduce) {
  if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
    cr_skip_test("ranks that share a core do not work for each other");
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = slow_ms(1000);
  scene *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  s->threads = threads;
  s->all_reduce = all_reduce;
  real_sum = colli_kernels_best()->reduce[COLL_FLOAT32][COLL_SUM];
  int results[2] = {0, 0};
  if (threads)
    results[0] = run_threads(2, &config, play_rank, s);
  else
    run_processes(2, &config, play_rank, s, 30, results);
  cr_expect(results[0] == 0 && results[1] == 0, "ranks ended with %d and %d", results[0],
            results[1]);
  cr_expect(atomic_load(&s->stopped), "nobody worked for rank 0");
  cr_expect_eq(s->status, COLL_ERR_TIMEOUT, "%s", coll_status_name(s->status));
  cr_expect_eq(s->changed, 0, "%zu bytes of rank 0's memory changed", s->changed);
  munmap(s, sizeof(*s));
}

Test(frozen_helper, reduce_of_processes, .timeout = 60) {
  play(false, false);
}

Test(frozen_helper, all_reduce_of_processes, .timeout = 60) {
  play(false, true);
}

Test(frozen_helper, reduce_of_threads, .timeout = 60) {
  play(true, false);
}

Test(frozen_helper, all_reduce_of_threads, .timeout = 60) {
  play(true, true);
}
