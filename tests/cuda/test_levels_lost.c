/*
 * test_levels_lost.c: ranks in groups, each on a host of its own, of which one is killed, frozen or
 * aborts, or makes another call, while streams of the others are in calls that are divided among
 * groups: all streams go on in time, all ranks have the same reason, and nothing is wrong that ends
 * without an error. Afterwards the others shrink the communicator.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "extent.h"
#include "libcoll/comm/comm.h"
#include "support_levels.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

enum { RANKS = 4, COUNT = 20001, CALLS = 4, LIMIT_S = 90, ROOT = 1 };

TestSuite(levels_lost, .timeout = 300);

/* What they call: in place, and with an input of COUNT, or as a reduce-scatter of RANKS * COUNT. */
typedef enum called { ALLREDUCE, REDUCE, REDUCE_SCATTER, CALLED } called;

static const char *const names[CALLED] = {"allreduce", "reduce", "reduce_scatter"};

typedef enum fault {
  KILLED,
  FROZEN,
  ABORTED,
  REVOKED,
  OTHER_COUNT,
  OTHER_OP,
  ON_HOST,
  FAULTS
} fault;

/* What happens, to whom, and when: before the victim makes its last call, or while it is midway. */
typedef struct scene {
  fault fault;
  called called;
  levels_shape shape;
  int mode, victim;
  bool midway;
  bool other_slots; /* in the second group they are longer */
  coll_id id;
  atomic_int waiting, over;
  coll_error errors[RANKS];
} scene;

/* One call in the stream. */
static coll_status call(coll_comm *comm, const scene *s, int32_t *a, size_t count, coll_op op,
                        colli_cu_stream stream) {
  return s->called == ALLREDUCE
             ? coll_allreduce_on_stream(a, a, count, COLL_INT32, op, comm, stream)
         : s->called == REDUCE
             ? coll_reduce_on_stream(a, a, count, COLL_INT32, op, ROOT, comm, stream)
             : coll_reduce_scatter_on_stream(a, a, count, COLL_INT32, op, comm, stream);
}

static coll_status add(coll_comm *comm, const scene *s, int32_t *a, colli_cu_stream stream) {
  return call(comm, s, a, COUNT, COLL_SUM, stream);
}

/* Elements of a buffer. */
static size_t length(const scene *s) {
  return s->called == REDUCE_SCATTER ? RANKS * COUNT : COUNT;
}

/* The victim's part, once the others wait. */
static void suffer(coll_comm *comm, scene *s, int32_t *a, colli_cu_stream stream) {
  (void)WAIT_UNTIL(atomic_load(&s->waiting) == RANKS - 1, slow_s(20));
  if (s->midway) { /* in the call that they wait for, its group has met some times */
    const volatile uint64_t *met = &comm->levels->within->calls.sequence;
    const uint64_t before = *met;
    (void)add(comm, s, a, stream);
    (void)WAIT_UNTIL(*met >= before + 3, slow_s(20));
  }
  if (s->fault == KILLED)
    raise(SIGKILL);
  else if (s->fault == FROZEN)
    raise(SIGSTOP);
  else if (s->fault == ABORTED)
    coll_comm_abort(comm);
  else if (s->fault == REVOKED)
    coll_comm_revoke(comm);
  else if (s->fault == OTHER_COUNT)
    (void)call(comm, s, a, COUNT - 1, COLL_SUM, stream);
  else if (s->fault == OTHER_OP)
    (void)call(comm, s, a, COUNT, COLL_MAX, stream);
  else if (s->called == ALLREDUCE)
    (void)coll_allreduce(a, a, COUNT, COLL_INT32, COLL_SUM, comm);
  else if (s->called == REDUCE)
    (void)coll_reduce(a, a, COUNT, COLL_INT32, COLL_SUM, ROOT, comm);
  else
    (void)coll_reduce_scatter(a, a, COUNT, COLL_INT32, COLL_SUM, comm);
}

/* What a call in a stream left: right if no error is reported before the next one. */
static int check_calls(coll_comm *comm, const scene *s, int rank, int32_t *const *a,
                       colli_cu_stream stream) {
  const int32_t want = s->called == REDUCE && rank != ROOT ? rank + 1 : RANKS * (RANKS + 1) / 2;
  for (int i = 0; i < CALLS; i++) {
    RANK_OK(add(comm, s, a[i], stream));
    device_await(stream);
    RANK_OK(coll_comm_async_error(comm));
    RANK_CHECK(device_has(a[i], COUNT, want));
  }
  return 0;
}

/* Survivors go on with a communicator of their own. */
static int go_on(coll_comm *comm, int rank) {
  coll_comm *rest;
  int32_t one = 1;
  int nranks = 0;
  RANK_OK(coll_comm_shrink(comm, NULL, &rest));
  RANK_CHECK(coll_comm_nranks(rest, &nranks) == COLL_OK && nranks == RANKS - 1);
  RANK_CHECK(coll_allreduce(&one, &one, 1, COLL_INT32, COLL_SUM, rest) == COLL_OK);
  RANK_CHECK(one == nranks);
  return coll_comm_destroy(&rest) != COLL_OK;
}

/* A buffer; all ranks have registered it if one is midway in a call when it is lost. */
static int32_t *take(coll_comm *comm, const scene *s, int32_t value) {
  void *at = NULL;
  if (!s->midway)
    return device_vector(length(s), value);
  if (coll_mem_alloc_gpu(comm, length(s) * sizeof(value), &at) != COLL_OK)
    abort();
  device_fill(at, length(s), value);
  return at;
}

/* A rank on its communicator. */
static int play(coll_comm *comm, int rank, scene *s) {
  int32_t *a[CALLS], *last = take(comm, s, 1), *own = take(comm, s, 1);
  colli_cu_stream stream = device_stream(), other = device_stream();
  for (int i = 0; i < CALLS; i++)
    a[i] = take(comm, s, rank + 1);
  RANK_CHECK(check_calls(comm, s, rank, a, stream) == 0);
  if (rank == s->victim) {
    suffer(comm, s, last, stream);
  } else {
    RANK_OK(add(comm, s, last, stream));
    if (!s->midway)
      (void)add(comm, s, own, other); /* perhaps it has failed by now */
    atomic_fetch_add(&s->waiting, 1);
  }
  device_await(stream);
  device_await(other);
  (void)WAIT_UNTIL(coll_comm_async_error(comm) != COLL_OK, slow_s(20)); /* which may come late */
  coll_error *error = &s->errors[rank];
  *error = (coll_error)COLL_ERROR_INIT;
  const coll_status status = coll_comm_async_error(comm);
  RANK_CHECK(status != COLL_OK);
  RANK_CHECK(coll_last_error(comm, error) == COLL_OK && error->status == status);
  RANK_CHECK(add(comm, s, own, other) == status && coll_barrier(comm) == status);
  return s->fault == KILLED ? go_on(comm, rank) : 0;
}

static int run_rank(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_comm *mine = NULL;
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = s->fault == FROZEN ? slow_ms(4000) : 20000;
  alarm(LIMIT_S);
  levels_move(&s->shape, rank);
  if (s->other_slots && levels_group(&s->shape, rank) == 1)
    setenv("COLL_GPU_SLOT_BYTES", "8192", 1);
  device_use(levels_device(&s->shape, rank, s->mode));
  if (rank == 0)
    RANK_OK(coll_unique_id(&s->id, NULL));
  RANK_OK(coll_barrier(comm));
  RANK_OK(coll_comm_create(&mine, &s->id, nranks, rank, &config));
  RANK_CHECK(mine->levels && !mine->direct && mine->levels->within->direct);
  const int result = play(mine, rank, s);
  RANK_CHECK(coll_comm_destroy(&mine) == COLL_OK);
  return result;
}

/* Whether all ranks have the same reason, of which the victim is to blame. */
static void compare(const scene *s, coll_status status) {
  const coll_error *first = NULL;
  for (int r = 0; r < RANKS; r++) {
    const coll_error *seen = &s->errors[r];
    if (r == s->victim)
      continue;
    cr_expect_eq(seen->status, status, "fault %d: rank %d: %s", s->fault, r, seen->message);
    if (s->fault < OTHER_COUNT)
      cr_expect(seen->peer == s->victim, "fault %d, victim %d: rank %d: %d %s", s->fault, s->victim,
                r, seen->peer, seen->message);
    cr_expect(!seen->operation[0] || strcmp(seen->operation, names[s->called]) == 0, "rank %d: %s",
              r, seen->operation);
    if (s->fault == KILLED && first)
      cr_expect_eq(seen->peer_pid, first->peer_pid);
    first = seen;
  }
}

static void run_scene(fault what, called which, int mode, int victim, bool midway,
                      coll_status status) {
  static const levels_shape shape = {2, 2, false};
  int results[RANKS];
  coll_config config = COLL_CONFIG_INIT;
  scene *s = shared_memory(sizeof(*s));
  config.timeout_ms = 20000;
  s->fault = what;
  s->called = which;
  s->shape = shape;
  s->mode = mode;
  s->victim = victim;
  s->midway = midway;
  s->other_slots = what == REVOKED;
  device_mode(mode);
  run_processes(RANKS, &config, run_rank, s, LIMIT_S, results);
  for (int r = 0; r < RANKS; r++)
    if (r != victim || what > FROZEN)
      cr_expect_eq(results[r], 0, "fault %d, %s, mode %d, victim %d%s: rank %d ended with %d", what,
                   names[which], mode, victim, midway ? ", midway" : "", r, results[r]);
  compare(s, status);
}

static void load(void) {
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  levels_peers();
  device_load();
}

Test(levels_lost, killed) {
  DEVICE_NEEDS_FAKE("GPU_PEERS");
  load();
  for (int i = 0; i < extent(3, 12, 3); i++)
    run_scene(KILLED, (called)(i % CALLED), i % 2 ? MODE_SPIN : MODE_ORDERED, (i + 1) % RANKS,
              i / 3 % 2 == 0, COLL_ERR_PEER_LOST);
}

Test(levels_lost, frozen) {
  DEVICE_NEEDS_FAKE("GPU_PEERS");
  load();
  for (int i = 0; i < extent(1, 6, 1); i++)
    run_scene(FROZEN, (called)((i + 1) % CALLED), i % 2 ? MODE_ORDERED : MODE_SPIN, 1 + i % 2 * 2,
              i % 2, COLL_ERR_TIMEOUT);
}

Test(levels_lost, aborted) {
  DEVICE_NEEDS_FAKE("GPU_PEERS");
  load();
  run_scene(ABORTED, ALLREDUCE, MODE_SPIN, 2, false, COLL_ERR_ABORTED);
  run_scene(ABORTED, REDUCE_SCATTER, MODE_ORDERED, 0, true, COLL_ERR_ABORTED);
  run_scene(REVOKED, REDUCE, MODE_ORDERED, 3, false, COLL_ERR_ABORTED);
  run_scene(REVOKED, REDUCE_SCATTER, MODE_SPIN, 1, false, COLL_ERR_ABORTED);
}

Test(levels_lost, mismatched) {
  DEVICE_NEEDS_FAKE("GPU_PEERS");
  load();
  for (int i = 0; i < 3 * CALLED; i += extent(4, 1, 4)) {
    const fault what = (fault)(OTHER_COUNT + i % 3);
    run_scene(what, (called)(i / 3), what % 2 ? MODE_SPIN : MODE_ORDERED, 1 + (int)what % 3, false,
              COLL_ERR_MISMATCH);
  }
}

/* ---- threads --------------------------------------------------------------------------------- */

/* The victim aborts, or makes another call, instead of the one that the others are in: with MEET
 * those of its group wait for it in a part of their call. */
static int wait_for_call(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_error error = COLL_ERROR_INIT;
  (void)nranks;
  device_may_leak();
  device_use(levels_device(&s->shape, rank, s->mode));
  RANK_OK(coll_comm_use_gpu(comm));
  colli_cu_stream stream = device_stream();
  int32_t *a = device_vector(length(s), 1);
  RANK_CHECK(add(comm, s, a, stream) == COLL_OK);
  device_await(stream);
  RANK_OK(coll_barrier(comm));
  if (rank == s->victim) {
    s->midway = false;
    suffer(comm, s, a, stream);
  } else {
    atomic_fetch_add(&s->waiting, 1);
    (void)add(comm, s, a, stream);
  }
  device_await(stream);
  const coll_status want = s->fault == ABORTED ? COLL_ERR_ABORTED : COLL_ERR_MISMATCH;
  RANK_CHECK(WAIT_UNTIL(coll_comm_async_error(comm) == want, slow_s(5)));
  RANK_CHECK(coll_last_error(comm, &error) == COLL_OK && error.status == want);
  atomic_fetch_add(&s->over, 1); /* the end of a communicator would end what others wait for, too */
  RANK_CHECK(WAIT_UNTIL(atomic_load(&s->over) == RANKS, slow_s(5)));
  return 0;
}

Test(levels_lost, threads) {
  DEVICE_NEEDS_FAKE("GPU_PEERS");
  load();
  device_use(0);
  device_may_leak();
  EACH_MODE(mode, MODE_ORDERED, MODE_MEET)
    for (fault what = ABORTED; what < FAULTS; what++) {
      scene s = {.fault = what,
                 .called = (called)((mode + (int)what) % CALLED),
                 .shape = {2, 2, false},
                 .mode = mode,
                 .victim = 3};
      if (what == REVOKED)
        continue;
      cr_expect_eq(run_threads(RANKS, NULL, wait_for_call, &s), 0, "fault %d, mode %d", what, mode);
    }
}
