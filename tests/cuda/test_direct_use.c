/*
 * test_direct_use.c: coll_comm_use_gpu(): all ranks share GPU memory or none does, and they say the
 * same about why; and what becomes of the memory when ranks destroy the communicator.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/comm/comm.h"
#include "support_device.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

enum { RANKS = 3, COUNT = 3000, LIMIT_S = 40 };

TestSuite(direct_use, .timeout = 120);

/* All-reduces in a stream, and checks the sum. */
static int add_up(coll_comm *comm, int rank, int nranks) {
  int32_t *a = device_vector(COUNT, rank + 1);
  colli_cu_stream stream = device_stream();
  RANK_OK(coll_allreduce_on_stream(a, a, COUNT, COLL_INT32, COLL_SUM, comm, stream));
  device_await(stream);
  RANK_OK(coll_comm_async_error(comm));
  RANK_CHECK(device_has(a, COUNT, nranks * (nranks + 1) / 2));
  device_memory.give(a);
  return 0;
}

/* ---- processes that cannot share --------------------------------------------------------------
 */

/* A variable in the environment of one rank (-1: of all), and what the ranks then say. */
typedef struct refusal {
  const char *name, *value;
  int rank;
  const char *says;
} refusal;

static const refusal refusals[] = {
    {"GPU_PEERS", "none", -1, "says rank 0: GPU 0 has no peer access to rank 1's GPU 1"},
    {"GPU_PEERS", "1011", -1, "says rank 0: GPU 0 has no peer access to rank 1's GPU 1"},
    {"GPU_PEERS", "1101", -1, "says rank 1: GPU 1 has no peer access to rank 0's GPU 0"},
    {"GPU_NO_IPC", "1", -1, "the driver does not share memory of rank 1's GPU with"},
    {"GPU_NO_IPC", "1", 2, "the driver does not share memory of rank 2's GPU with"},
    {"GPU_DEVICES", "1", 0, "says rank 0: rank 1's GPU is hidden from this process"},
    {"COLL_GPU_MODE", "staged", 1, "rank 1: COLL_GPU_MODE is staged"},
    {"COLL_GPU_MODE", "staged", -1, "rank 0: COLL_GPU_MODE is staged"},
    {"COLL_GPU_SLOT_BYTES", "8192", 1, "COLL_GPU_SLOT_BYTES or COLL_GPU_MODE differ from rank 1's"},
    {"COLL_HOST_ID", "another", 1, "the ranks are on several hosts"},
    {"TEST_NO_DRIVER", "1", 2, "rank 2: its process has not loaded CUDA's driver"},
};
enum { REFUSALS = sizeof(refusals) / sizeof(*refusals) };

/* What ranks share. */
typedef struct scene {
  const refusal *why;
  coll_id id;
  char said[RANKS][640];
} scene;

/* Asks to share, which is refused; afterwards calls are staged. */
static int ask(coll_comm *comm, int rank, int nranks, scene *s) {
  coll_error error = COLL_ERROR_INIT;
  RANK_CHECK(!comm->direct);
  RANK_CHECK(device_refused(comm, coll_comm_use_gpu(comm), COLL_ERR_UNSUPPORTED, s->why->says));
  RANK_OK(coll_last_error(comm, &error));
  RANK_CHECK(strcmp(error.operation, "comm_use_gpu") == 0);
  snprintf(s->said[rank], sizeof(s->said[rank]), "%.*s",
           (int)(strstr(error.message, " (rank ") - error.message), error.message);
  RANK_CHECK(!comm->direct);
  if (!getenv("TEST_NO_DRIVER"))
    return add_up(comm, rank, nranks);
  int32_t mine[COUNT];
  for (int i = 0; i < COUNT; i++)
    mine[i] = rank + 1;
  return coll_allreduce(mine, mine, COUNT, COLL_INT32, COLL_SUM, comm) != COLL_OK;
}

static int run_refused(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_comm *mine = NULL;
  alarm(LIMIT_S);
  if (s->why->rank < 0 || s->why->rank == rank)
    setenv(s->why->name, s->why->value, 1);
  uint64_t before = 0;
  const bool loads = !getenv("TEST_NO_DRIVER");
  if (loads) {
    device_use(getenv("GPU_DEVICES") ? rank % atoi(getenv("GPU_DEVICES")) : rank % 2);
    before = device_held();
  }
  if (rank == 0)
    RANK_OK(coll_unique_id(&s->id, NULL));
  RANK_OK(coll_barrier(comm));
  RANK_OK(coll_comm_create(&mine, &s->id, nranks, rank, NULL));
  RANK_CHECK(ask(mine, rank, nranks, s) == 0);
  RANK_OK(coll_comm_destroy(&mine));
  RANK_CHECK(!loads || device_is_real() || device_held() == before + 1); /* the stream */
  return 0;
}

Test(direct_use, refused) {
  DEVICE_NEEDS_FAKE("GPU_PEERS and GPU_NO_IPC");
  setenv("GPU_DEVICES", "2", 0); /* as GPU_PEERS has it */
  for (int i = 0; i < REFUSALS; i++) {
    scene *s = shared_memory(sizeof(*s));
    s->why = &refusals[i];
    cr_expect_eq(run_processes(RANKS, NULL, run_refused, s, LIMIT_S, NULL), 0, "%s=%s",
                 s->why->name, s->why->value);
    for (int r = 1; r < RANKS; r++)
      cr_expect_str_eq(s->said[r], s->said[0]);
  }
}

/* ---- threads ----------------------------------------------------------------------------------
 */

/* One rank has no context; when it has one, they share. Once more changes nothing. */
static int use_twice(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  if (rank != 1)
    device_use(rank % 2);
  RANK_CHECK(device_refused(comm, coll_comm_use_gpu(comm), COLL_ERR_UNSUPPORTED,
                            "rank 1: the thread has no CUDA context; call cudaSetDevice() first"));
  device_use(rank % 2);
  RANK_CHECK(!comm->direct && add_up(comm, rank, nranks) == 0);
  for (int i = 0; i < 2; i++) {
    RANK_OK(coll_comm_use_gpu(comm));
    RANK_CHECK(comm->direct && add_up(comm, rank, nranks) == 0);
  }
  return 0;
}

Test(direct_use, twice) {
  device_use(0);
  cr_expect_eq(run_threads(RANKS, NULL, use_twice, NULL), 0);
}

static int use_alone(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  device_use(0);
  RANK_CHECK(device_refused(comm, coll_comm_use_gpu(comm), COLL_ERR_UNSUPPORTED, "no other ranks"));
  return add_up(comm, rank, nranks);
}

Test(direct_use, alone) {
  device_use(0);
  cr_expect_eq(run_threads(1, NULL, use_alone, NULL), 0);
  cr_expect_eq(coll_comm_use_gpu(NULL), COLL_ERR_INVALID_ARGUMENT);
}

/* What the last rank does while the others share, or they in graphs or streams. */
typedef enum other { BARRIER, SUM, SUM_BLOCKING, SUM_CAPTURED, OTHERS } other;

/* All-reduces, the last rank in another way. */
static coll_status add_up_as(coll_comm *comm, other what, bool last, int32_t *a) {
  colli_cu_stream stream = device_stream();
  device_graph graph;
  coll_status status = COLL_OK;
  if (last && what == SUM_BLOCKING)
    return coll_allreduce(a, a, COUNT, COLL_INT32, COLL_SUM, comm);
  if (last)
    device_capture(stream);
  status = coll_allreduce_on_stream(a, a, COUNT, COLL_INT32, COLL_SUM, comm, stream);
  if (last) {
    graph = device_capture_end(stream);
    device_launch(&graph, stream);
  }
  device_await(stream);
  if (last)
    device_graph_free(&graph);
  return status == COLL_OK ? coll_comm_async_error(comm) : status;
}

/* Ranks disagree. */
static int disagree(coll_comm *comm, int rank, int nranks, void *arg) {
  const other what = *(const other *)arg;
  const bool last = rank == nranks - 1;
  coll_comm *child;
  coll_status status = COLL_OK;
  int32_t value = 1, *a;
  device_may_leak();
  device_use(rank % 2);
  RANK_OK(coll_comm_dup(comm, NULL, &child));
  a = device_vector(COUNT, 1);
  if (what >= SUM_BLOCKING)
    RANK_OK(coll_comm_use_gpu(child));
  if (what >= SUM_BLOCKING)
    status = add_up_as(child, what, last, a);
  else if (!last)
    status = coll_comm_use_gpu(child);
  else if (what == BARRIER)
    status = coll_barrier(child);
  else
    status = coll_allreduce(&value, &value, 1, COLL_INT32, COLL_SUM, child);
  RANK_CHECK(device_refused(child, status, COLL_ERR_MISMATCH,
                            what >= SUM_BLOCKING ? "all ranks must use the same form"
                                                 : "coll_comm_use_gpu()"));
  RANK_OK(coll_comm_destroy(&child));
  return add_up(comm, rank, nranks);
}

Test(direct_use, mismatch) {
  device_use(0);
  device_may_leak();
  for (other what = BARRIER; what < OTHERS; what++)
    cr_expect_eq(run_threads(RANKS, NULL, disagree, &what), 0, "%d", what);
}

/* ---- the end ----------------------------------------------------------------------------------
 */

/* How ranks destroy two communicators. */
typedef struct ending {
  bool late; /* the last rank, until all others have */
  bool crossed;
  atomic_int over; /* ranks that have */
} ending;

/* A rank that waits for another one does so for a second at most. */
static int destroy_two(coll_comm *comm, int rank, int nranks, void *arg) {
  ending *e = arg;
  coll_comm *two[2];
  device_use(rank % 2);
  for (int i = 0; i < 2; i++) {
    RANK_OK(coll_comm_dup(comm, NULL, &two[i]));
    RANK_OK(coll_comm_use_gpu(two[i]));
    RANK_CHECK(add_up(two[i], rank, nranks) == 0);
  }
  RANK_OK(coll_barrier(comm));
  if (e->late && rank == nranks - 1)
    RANK_CHECK(WAIT_UNTIL(atomic_load(&e->over) == nranks - 1, slow_s(20)));
  for (int i = 0; i < 2; i++) {
    const double before_s = now_s();
    const int which = e->crossed && rank % 2 ? 1 - i : i;
    RANK_OK(coll_comm_destroy(&two[which]));
    RANK_CHECK(now_s() - before_s < slow_s(5));
  }
  atomic_fetch_add(&e->over, 1);
  RANK_OK(coll_barrier(comm)); /* destroys of others go on */
  return 0;
}

/* Without lateness all memory goes back; a rank that did not wait long enough keeps its area and
 * three events, which other threads may still use. */
Test(direct_use, destroyed) {
  static ending endings[] = {{false, false, 0}, {true, false, 0}, {false, true, 0}};
  device_use(0);
  for (int i = 0; i < 3; i++) {
    const uint64_t before = device_held();
    cr_expect_eq(run_threads(2, NULL, destroy_two, &endings[i]), 0, "%d", i);
    const uint64_t own = 2 * 2 + 2; /* the test's: streams and contexts */
    const uint64_t more = device_is_real() ? 0 : device_held() - before - own;
    if (i < 1)
      cr_expect_eq(more, 0, "%d: %llu", i, (unsigned long long)more);
    else
      cr_expect_leq(more, 4 * 4, "%d: %llu", i, (unsigned long long)more);
  }
}

/* ---- threads that share a GPU -----------------------------------------------------------------
 */

/* One rank does the work of all (comm->direct->end is its event then), unless a rank's buffer is
 * not aligned; either way the result is right, in place or not. */
static int share_work(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  device_use(0);
  RANK_OK(coll_comm_use_gpu(comm));
  colli_cu_stream stream = device_stream();
  char *a = device_memory.take((COUNT + 1) * sizeof(int32_t));
  for (int shift = 0; shift < 2; shift++) {
    int32_t *at = (int32_t *)(void *)(a + (rank == 1 ? shift : 0));
    RANK_CHECK(add_up(comm, rank, nranks) == 0);
    RANK_CHECK(comm->direct->end);
    device_fill(at, COUNT, rank + 1);
    RANK_OK(coll_allreduce_on_stream(at, at, COUNT, COLL_INT32, COLL_SUM, comm, stream));
    RANK_CHECK(!comm->direct->end == (shift == 1));
    device_await(stream);
    RANK_OK(coll_comm_async_error(comm));
    RANK_CHECK(device_has(at, COUNT, nranks * (nranks + 1) / 2));
  }
  device_memory.give(a);
  return 0;
}

Test(direct_use, work_is_shared) {
  device_use(0);
  cr_assert_not_null(device_mode(MODE_MEET));
  cr_assert_eq(run_threads(RANKS, NULL, share_work, NULL), 0);
}
