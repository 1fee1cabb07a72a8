/*
 * test_register.c: coll_comm_register() and coll_mem_alloc_gpu(): all ranks have memory registered
 * or none has, and they say the same about why; ranks that disagree later; the end, after which
 * nothing is left.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/comm/comm.h"
#include "support_device.h"
#include "support_scene.h"
#include "support_virtual.h"
#include "tests/gpu/driver/use.h"
#include "tests/proc/support_ranks.h"

enum { RANKS = 3, COUNT = 6000, BYTES = COUNT * sizeof(int32_t) };

TestSuite(register_memory, .timeout = 200);

/* This thread's stream. */
static colli_cu_stream own_stream(void) {
  static _Thread_local colli_cu_stream stream;
  return stream ? stream : (stream = device_stream());
}

/* All-reduces in place in a stream, and checks the sum. */
static int add_up(coll_comm *comm, int rank, int nranks, int32_t *a) {
  colli_cu_stream stream = own_stream();
  device_fill(a, COUNT, rank + 1);
  RANK_OK(coll_allreduce_on_stream(a, a, COUNT, COLL_INT32, COLL_SUM, comm, stream));
  device_await(stream);
  RANK_OK(coll_comm_async_error(comm));
  RANK_CHECK(device_has(a, COUNT, nranks * (nranks + 1) / 2));
  return 0;
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* Where the last rank's memory is; the others have plain memory. */
typedef enum place {
  NOWHERE,
  ON_HOST,
  ELSEWHERE,
  TOO_SHORT,
  NOTHING,
  OTHER_LENGTH,
  VIRTUAL,
  PLAIN
} place;

static const struct {
  place last;
  coll_status status;
  const char *says;
} refusals[] = {
    {NOWHERE, COLL_ERR_INVALID_ARGUMENT, "no memory is registered, says rank 2: ptr is NULL"},
    {ON_HOST, COLL_ERR_INVALID_ARGUMENT, "says rank 2: ptr is not memory of GPU 0"},
    {ELSEWHERE, COLL_ERR_INVALID_ARGUMENT, "says rank 2: ptr is not memory of GPU 0"},
    {TOO_SHORT, COLL_ERR_INVALID_ARGUMENT, "says rank 2: 24000 bytes are more than the allocation"},
    {NOTHING, COLL_ERR_INVALID_ARGUMENT, "says rank 2: bytes is 0"},
    {OTHER_LENGTH, COLL_ERR_INVALID_ARGUMENT, "rank 2 has 23996 bytes, but rank 0 24000"},
    {VIRTUAL, COLL_ERR_UNSUPPORTED,
     "says rank 0: rank 2's virtual memory has no descriptors: request the handle"},
};
enum { REFUSALS = sizeof(refusals) / sizeof(*refusals) };

/* Tries all of them, and then registers. */
static int try_all(coll_comm *comm, int rank, int nranks) {
  const colli_cuda *cuda = &comm->gpu->cuda;
  char *plain = device_memory.take(2 * BYTES), *far = device_far_memory.take(BYTES);
  static char host[BYTES];
  const virtual_memory mapped = virtual_take(cuda, device_of_rank(rank), "1", false);
  coll_registration *it;
  for (int i = 0; i < REFUSALS; i++) {
    if (refusals[i].last == ELSEWHERE && device_count() < 2)
      continue;
    const place last = rank == nranks - 1 ? refusals[i].last : PLAIN;
    void *const at = last == NOWHERE     ? NULL
                     : last == ON_HOST   ? host
                     : last == ELSEWHERE ? far
                     : last == TOO_SHORT ? plain + BYTES + 4
                     : last == VIRTUAL   ? mapped.at
                                         : plain;
    const size_t bytes = last == NOTHING ? 0 : last == OTHER_LENGTH ? BYTES - 4 : BYTES;
    it = (coll_registration *)(void *)plain;
    RANK_CHECK(device_refused(comm, coll_comm_register(comm, at, bytes, &it), refusals[i].status,
                              refusals[i].says));
    RANK_CHECK(!it && !comm->direct->registered);
  }
  RANK_OK(coll_comm_register(comm, plain + 4, BYTES, &it));
  RANK_CHECK(add_up(comm, rank, nranks, (int32_t *)(void *)(plain + 4)) == 0);
  RANK_OK(coll_comm_deregister(comm, &it));
  virtual_give(cuda, &mapped);
  device_memory.give(plain);
  device_far_memory.give(far);
  return 0;
}

Test(register_memory, refused) {
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  device_load();
  device_mode(MODE_ONE_GPU);
  cr_expect_eq(run_processes(RANKS, NULL, scene_play, scene_make(try_all), SCENE_LIMIT_S, NULL), 0);
}

/* A staged communicator has none. */
static int run_staged(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_registration *it;
  device_use(0);
  void *at = device_memory.take(BYTES);
  void *given;
  (void)arg;
  (void)nranks;
  RANK_CHECK(device_refused(comm, coll_comm_register(comm, at, BYTES, &it), COLL_ERR_UNSUPPORTED,
                            "are staged through host memory; coll_comm_use_gpu() changes that"));
  RANK_CHECK(device_refused(comm, coll_mem_alloc_gpu(comm, BYTES, &given), COLL_ERR_UNSUPPORTED,
                            "are staged"));
  RANK_CHECK(!it && !given);
  device_memory.give(at);
  return 0;
}

Test(register_memory, staged) {
  device_use(0);
  device_mode(MODE_MEET);
  cr_expect_eq(run_threads(RANKS, NULL, run_staged, NULL), 0);
}

/* ---- ranks that disagree --------------------------------------------------------------------- */

/* What the last rank does otherwise. */
typedef enum other {
  INPUT_ELSEWHERE,
  RESULT_ELSEWHERE,
  OTHER_OFFSET,
  OTHER_REGISTRATION,
  OTHERS
} other;

static int disagree(coll_comm *comm, int rank, int nranks, void *arg) {
  const other what = *(const other *)arg;
  coll_registration *it[2];
  device_use(device_of_rank(rank));
  device_may_leak();
  RANK_OK(device_share(comm));
  char *at[3];
  for (int i = 0; i < 3; i++)
    at[i] = device_memory.take(3 * BYTES);
  for (int i = 0; i < 2; i++)
    RANK_OK(coll_comm_register(comm, at[i], 3 * BYTES, &it[i]));
  RANK_CHECK(add_up(comm, rank, nranks, (int32_t *)(void *)at[1]) == 0);
  /* Nobody fails before all have looked. Who is late in the barrier may hear of the failure there.
   */
  const coll_status met = coll_barrier(comm);
  RANK_CHECK(met == COLL_OK || met == COLL_ERR_MISMATCH);
  const bool last = rank == nranks - 1;
  char *in = !last                        ? at[0]
             : what == INPUT_ELSEWHERE    ? at[2]
             : what == OTHER_REGISTRATION ? at[1]
                                          : at[0];
  char *out = last && what == RESULT_ELSEWHERE ? at[2] : at[0] + 2 * BYTES;
  if (last && what == OTHER_OFFSET)
    in += 64;
  colli_cu_stream stream = own_stream();
  coll_status status = coll_allreduce_on_stream(in, out, COUNT, COLL_INT32, COLL_SUM, comm, stream);
  device_await(stream);
  if (status == COLL_OK)
    status = coll_comm_async_error(comm);
  RANK_CHECK(device_refused(comm, status, COLL_ERR_MISMATCH,
                            "not with buffers at the same place of the same registration"));
  RANK_CHECK(coll_comm_deregister(comm, &it[0]) == COLL_ERR_MISMATCH && !it[0]);
  return 0;
}

Test(register_memory, mismatch) {
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  device_use(0);
  device_may_leak();
  EACH_MODE(mode, MODE_ORDERED, MODE_MEET)
    for (other what = 0; what < OTHERS; what++)
      cr_expect_eq(run_threads(RANKS, NULL, disagree, &what), 0, "mode %d: %d", mode, what);
}

/* ---- ranks that do not come ------------------------------------------------------------------ */

static int lose(coll_comm *comm, int rank, int how) {
  void *at = device_memory.take(BYTES);
  coll_registration *it;
  if (rank == 1)
    raise(how);
  const coll_status status = coll_comm_register(comm, at, BYTES, &it);
  RANK_CHECK(device_refused(comm, status, how == SIGKILL ? COLL_ERR_PEER_LOST : COLL_ERR_TIMEOUT,
                            "rank 1"));
  RANK_CHECK(!it && !comm->direct->registered);
  RANK_CHECK(coll_mem_alloc_gpu(comm, BYTES, &at) == status && !at);
  return 0;
}

static int lose_killed(coll_comm *comm, int rank, int nranks) {
  (void)nranks;
  return lose(comm, rank, SIGKILL);
}

static int lose_frozen(coll_comm *comm, int rank, int nranks) {
  (void)nranks;
  return lose(comm, rank, SIGSTOP);
}

Test(register_memory, lost) {
  int results[RANKS];
  device_load();
  device_mode(MODE_ORDERED);
  for (int frozen = 0; frozen < 2; frozen++) {
    scene *s = scene_make(frozen ? lose_frozen : lose_killed);
    if (frozen)
      s->timeout_ms = slow_ms(1000);
    run_processes(RANKS, NULL, scene_play, s, SCENE_LIMIT_S, results);
    cr_expect(results[0] == 0 && results[2] == 0, "%d: %d %d", frozen, results[0], results[2]);
  }
}

/* ---- the end --------------------------------------------------------------------------------- */

/* What is not a registration, or is used by a graph; then a use of memory that no longer is one. */
static int end_all(coll_comm *comm, int rank, int nranks) {
  coll_registration *it, *inner = NULL;
  void *given;
  char *at = device_memory.take(3 * BYTES);
  RANK_CHECK(coll_comm_register(comm, at, BYTES, NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_mem_alloc_gpu(comm, BYTES, NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(device_refused(comm, coll_mem_alloc_gpu(comm, 0, &given), COLL_ERR_INVALID_ARGUMENT,
                            "no memory is allocated, says rank 0: bytes is 0"));
  RANK_CHECK(coll_comm_deregister(comm, NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_comm_deregister(comm, &inner) == COLL_ERR_INVALID_ARGUMENT);
  RANK_OK(coll_comm_register(comm, at, 3 * BYTES, &it));
  RANK_OK(coll_comm_register(comm, at + BYTES, BYTES, &inner)); /* within the first one */
  RANK_OK(coll_mem_alloc_gpu(comm, BYTES, &given));
  RANK_CHECK(device_has(given, COUNT, 0));
  RANK_CHECK(add_up(comm, rank, nranks, given) == 0);
  colli_cu_stream stream = own_stream();
  device_capture(stream);
  void *buffer = rank == 1 ? at : given;
  RANK_OK(coll_allreduce_on_stream(buffer, buffer, 8, COLL_INT32, COLL_SUM, comm, stream));
  RANK_OK(coll_allreduce_on_stream(at, at, COUNT, COLL_INT32, COLL_SUM, comm, stream));
  device_graph graph = device_capture_end(stream);
  RANK_CHECK(device_refused(comm, coll_comm_deregister(comm, &it), COLL_ERR_INVALID_USAGE,
                            "the memory remains registered, says rank 0: a graph has a call"));
  device_graph_free(&graph);
  RANK_CHECK(it && add_up(comm, rank, nranks, (int32_t *)(void *)at) == 0);
  for (int i = 0; i < 2; i++) { /* the second time in slots */
    RANK_CHECK(add_up(comm, rank, nranks, (int32_t *)(void *)at) == 0);
    if (i == 0)
      RANK_OK(coll_comm_deregister(comm, &it));
  }
  RANK_CHECK(add_up(comm, rank, nranks, (int32_t *)(void *)(at + BYTES)) == 0);
  RANK_CHECK(!it && coll_comm_deregister(comm, &it) == COLL_ERR_INVALID_ARGUMENT);
  RANK_OK(coll_mem_free(comm, given));
  RANK_CHECK(coll_mem_free(comm, given) == COLL_ERR_INVALID_ARGUMENT);
  RANK_OK(coll_comm_deregister(comm, &inner));
  device_memory.give(at);
  return 0;
}

Test(register_memory, ended) {
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  device_load();
  EACH_MODE(mode, MODE_ORDERED, MODE_SPIN)
    cr_expect_eq(run_processes(RANKS, NULL, scene_play, scene_make(end_all), SCENE_LIMIT_S, NULL),
                 0, "mode %d", mode);
}

/* A stream that is held back keeps the memory registered. */
static int end_late(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_registration *it;
  (void)arg;
  device_use(0);
  RANK_OK(device_share(comm));
  char *at = device_memory.take(BYTES);
  RANK_OK(coll_comm_register(comm, at, BYTES, &it));
  colli_cu_stream stream = own_stream();
  device_gate *gate = device_stop(stream);
  RANK_OK(coll_allreduce_on_stream(at, at, COUNT, COLL_INT32, COLL_SUM, comm, stream));
  RANK_CHECK(device_refused(comm, coll_comm_deregister(comm, &it), COLL_ERR_TIMEOUT,
                            "says rank 0: a stream has not ended a call that uses the memory"));
  RANK_CHECK(it);
  device_open(gate);
  device_await(stream);
  RANK_CHECK(add_up(comm, rank, nranks, (int32_t *)(void *)at) == 0);
  RANK_OK(coll_comm_deregister(comm, &it));
  device_memory.give(at);
  return 0;
}

Test(register_memory, ended_late) {
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = slow_ms(2000);
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  device_use(0);
  device_mode(MODE_MEET);
  cr_expect_eq(run_threads(RANKS, &config, end_late, NULL), 0);
}

/* What the program does not end ends with the communicator. */
static int leave_all(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *child;
  coll_registration *it;
  void *given;
  (void)arg;
  device_use(device_of_rank(rank));
  char *at = device_memory.take(BYTES);
  RANK_OK(coll_comm_dup(comm, NULL, &child));
  RANK_OK(device_share(child));
  RANK_OK(coll_comm_register(child, at, BYTES, &it));
  RANK_OK(coll_mem_alloc_gpu(child, BYTES, &given));
  RANK_CHECK(add_up(child, rank, nranks, given) == 0);
  RANK_OK(coll_comm_destroy(&child));
  device_memory.give(at);
  return 0;
}

Test(register_memory, left) {
  device_use(0);
  device_mode(MODE_ORDERED);
  const uint64_t before = device_held();
  cr_expect_eq(run_threads(2, NULL, leave_all, NULL), 0);
  cr_expect_leq(device_held() - before, 2 + 2); /* the test's streams and contexts */
}
