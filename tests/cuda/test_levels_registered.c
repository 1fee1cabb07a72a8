/*
 * test_levels_registered.c: memory that is registered on a communicator whose ranks are in groups:
 * parts of divided calls within a group read it where it is, all ranks of all groups have it
 * registered or none has, and afterwards nothing is left.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/comm/comm.h"
#include "support_levels.h"
#include "support_site.h"
#include "support_virtual.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

enum { RANKS = 4, SLOT = 4096, COUNT = 6000, BYTES = COUNT * sizeof(int32_t), LIMIT_S = 90 };

TestSuite(levels_registered, .timeout = 200);

static const levels_shape shape = {2, 2, true}, wide = {2, 4, false};

static void load(void) {
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  levels_peers();
}

/* Has the ranks, which are threads, share GPU memory in groups. */
static int share(coll_comm *comm, int rank, const levels_shape *of, int mode) {
  device_use(levels_device(of, rank, mode));
  RANK_OK(coll_comm_use_gpu(comm));
  RANK_CHECK(comm->levels && !comm->direct);
  return 0;
}

/* ---- what is read where it is ---------------------------------------------------------------- */

/* Calls, what of their buffers is registered, and how many parts of a round in a group read that.
 */
static const struct {
  site_plan plan;
  int parts[2]; /* in the group of rank 0, which is the root, and in the other one */
} reads[] = {
    {{.coll = CASE_ALLREDUCE, .registered = {true, true}}, {2, 2}},
    {{.coll = CASE_ALLREDUCE, .registered = {true, false}}, {1, 1}},
    {{.coll = CASE_ALLREDUCE, .registered = {false, true}}, {1, 1}},
    {{.coll = CASE_ALLREDUCE, .registered = {true, true}, .in_place = true}, {2, 2}},
    {{.coll = CASE_BROADCAST, .registered = {false, true}}, {1, 1}},
    {{.coll = CASE_BROADCAST, .registered = {true, false}}, {0, 0}},
    {{.coll = CASE_ALLGATHER, .registered = {false, true}}, {2, 2}},
    {{.coll = CASE_ALLGATHER, .registered = {true, true}, .in_place = true}, {2, 2}},
    {{.coll = CASE_REDUCE, .registered = {true, false}}, {1, 1}},
    {{.coll = CASE_REDUCE_SCATTER, .registered = {true, false}}, {2, 2}},
    {{.coll = CASE_REDUCE_SCATTER, .registered = {true, false}, .in_place = true}, {2, 2}},
    {{.coll = CASE_REDUCE_SCATTERV, .registered = {false, true}}, {0, 0}},
};
enum { READS = sizeof(reads) / sizeof(*reads) };

/* Counts those that wait in a stream. */
static int count_parts(coll_comm *comm, int rank, int nranks, void *arg) {
  static const site_place near[] = {SITE_NEAR, SITE_NEAR};
  arena registered;
  (void)arg;
  RANK_CHECK(share(comm, rank, &wide, MODE_ORDERED) == 0);
  RANK_OK(arena_make(comm, &registered, 600 << 10, false));
  colli_cu_stream stream = device_stream();
  for (int i = 0; i < READS; i++) {
    site_plan plan = reads[i].plan;
    plan.type = COLL_INT32;
    plan.op = COLL_SUM;
    plan.count = plan.coll == CASE_REDUCE           ? 3840 /* one round, likewise 2 KiB a block: */
                 : plan.coll == CASE_REDUCE_SCATTER ? SLOT / 2 / 4
                                                    : 2 * SLOT;
    site *it = site_make(&plan, rank, nranks, near, &registered);
    site_fill(it, 3);
    const volatile int *parts = &registered.registration->eager;
    RANK_CHECK(
        WAIT_UNTIL(*parts == 0, slow_s(20))); /* the host has seen the end of the last call */
    device_gate *gate = device_stop(stream);
    RANK_OK(site_call(it, CASE_STREAMED, comm, stream, NULL));
    const int found = *parts;
    device_open(gate);
    device_await(stream);
    RANK_OK(coll_comm_async_error(comm));
    RANK_CHECK(site_check(it, 3));
    if (found != reads[i].parts[comm->levels->group])
      fprintf(stderr, "rank %d, call %d: %d parts\n", rank, i, found);
    RANK_CHECK(found == reads[i].parts[comm->levels->group]);
    site_free(it);
  }
  RANK_OK(arena_free(comm, &registered));
  return 0;
}

Test(levels_registered, reads) {
  DEVICE_NEEDS_FAKE("GPU_PEERS");
  load();
  device_use(0);
  device_mode(MODE_ORDERED);
  cr_expect_eq(run_threads(8, NULL, count_parts, NULL), 0);
}

/* ---- all or none ----------------------------------------------------------------------------- */

/* All-reduces in place in a stream, and checks the sum. */
static int add_up(coll_comm *comm, int rank, int32_t *a, colli_cu_stream stream) {
  device_fill(a, COUNT, rank + 1);
  RANK_OK(coll_allreduce_on_stream(a, a, COUNT, COLL_INT32, COLL_SUM, comm, stream));
  device_await(stream);
  RANK_OK(coll_comm_async_error(comm));
  RANK_CHECK(device_has(a, COUNT, RANKS * (RANKS + 1) / 2));
  return 0;
}

/* The last rank, which is in the second group, has other memory than the first group likes. */
static int refuse_all(coll_comm *comm, int rank, int nranks, void *arg) {
  static char host[BYTES];
  const int *mode = arg;
  const bool last = rank == nranks - 1;
  coll_registration *it, *again;
  void *given;
  RANK_CHECK(share(comm, rank, &shape, *mode) == 0);
  const colli_direct *direct = comm->levels->within->direct;
  char *at = device_memory.take(2 * BYTES);
  colli_cu_stream stream = device_stream();
  RANK_CHECK(device_refused(comm, coll_comm_register(comm, last ? host : at, BYTES, &it),
                            COLL_ERR_INVALID_ARGUMENT,
                            "no memory is registered, says rank 3: ptr is not memory of GPU"));
  RANK_CHECK(!it && !direct->registered);
  RANK_CHECK(device_refused(comm, coll_comm_register(comm, at, last ? BYTES - 4 : BYTES, &it),
                            COLL_ERR_INVALID_ARGUMENT, "rank 3 has 23996 bytes, but rank 0 24000"));
  RANK_CHECK(!it && !direct->registered);
  RANK_OK(coll_comm_register(comm, at + 4, BYTES, &it));
  RANK_OK(coll_comm_register(comm, at + BYTES, BYTES, &again));
  RANK_CHECK(add_up(comm, rank, (int32_t *)(void *)(at + 4), stream) == 0);
  RANK_OK(coll_comm_deregister(comm, &again));
  RANK_CHECK(direct->registered == it && !it->next && !again);
  RANK_OK(coll_mem_alloc_gpu(comm, BYTES, &given));
  RANK_CHECK(add_up(comm, rank, given, stream) == 0);
  RANK_OK(coll_mem_free(comm, given));
  RANK_OK(coll_comm_deregister(comm, &it));
  RANK_CHECK(!direct->registered);
  device_memory.give(at);
  return 0;
}

Test(levels_registered, refused) {
  DEVICE_NEEDS_FAKE("GPU_PEERS");
  load();
  device_use(0);
  EACH_MODE(mode, MODE_ORDERED, MODE_MEET) {
    const uint64_t before = device_held();
    cr_expect_eq(run_threads(RANKS, NULL, refuse_all, &mode), 0, "mode %d", mode);
    cr_expect_eq(device_held() - before, RANKS + RANKS, "mode %d: streams and contexts, and %llu",
                 mode, (unsigned long long)(device_held() - before));
  }
}

/* A graph of one rank uses the memory: it remains registered on all, until the graph is gone. */
static int hold_in_graph(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  (void)nranks;
  RANK_CHECK(share(comm, rank, &shape, MODE_ORDERED) == 0);
  colli_cu_stream stream = device_stream();
  int32_t *a = device_vector(COUNT, 1);
  coll_registration *it;
  RANK_OK(coll_comm_register(comm, a, BYTES, &it));
  device_capture(stream);
  RANK_OK(coll_allreduce_on_stream(a, a, COUNT, COLL_INT32, COLL_SUM, comm, stream));
  const device_graph graph = device_capture_end(stream);
  device_launch(&graph, stream);
  device_await(stream);
  RANK_CHECK(device_has(a, COUNT, RANKS));
  if (rank != 1)
    device_graph_free(&graph);
  RANK_CHECK(device_refused(comm, coll_comm_deregister(comm, &it), COLL_ERR_INVALID_USAGE,
                            "says rank 1: a graph has a call that uses the memory"));
  RANK_CHECK(it && comm->levels->within->direct->registered == it);
  if (rank == 1)
    device_graph_free(&graph);
  RANK_OK(coll_comm_deregister(comm, &it));
  device_memory.give(a);
  return 0;
}

Test(levels_registered, in_graph) {
  DEVICE_NEEDS_FAKE("GPU_PEERS");
  load();
  device_use(0);
  device_mode(MODE_ORDERED);
  cr_expect_eq(run_threads(RANKS, NULL, hold_in_graph, NULL), 0);
}

/* ---- processes ------------------------------------------------------------------------------- */

/* What ranks on several hosts do. */
typedef struct scene {
  int mode;
  bool differs; /* the last rank passes another place of the memory */
  coll_id id;
} scene;

/* Sums in virtual memory, of which other processes have descriptors; or one rank elsewhere in it.
 */
static int use_virtual(coll_comm *comm, int rank, const scene *s) {
  const colli_cuda *cuda = &comm->gpu->cuda;
  const virtual_memory mapped =
      virtual_take(cuda, levels_device(&shape, rank, s->mode), "11", true);
  int32_t *at = (int32_t *)(void *)(mapped.at + VIRTUAL_GRANULE - BYTES / 2);
  coll_registration *it;
  colli_cu_stream stream = device_stream();
  RANK_OK(coll_comm_register(comm, mapped.at, mapped.bytes, &it));
  for (int i = 0; i < 3; i++) {
    virtual_fill(at, COUNT, rank + 1);
    RANK_OK(coll_allreduce_on_stream(at, at, COUNT, COLL_INT32, COLL_SUM, comm, stream));
    device_await(stream);
    RANK_OK(coll_comm_async_error(comm));
    RANK_CHECK(virtual_has(at, COUNT, RANKS * (RANKS + 1) / 2));
  }
  if (s->differs) {
    int32_t *own = at + (rank == RANKS - 1);
    (void)coll_reduce_on_stream(own, own, COUNT, COLL_INT32, COLL_SUM, 0, comm, stream);
    device_await(stream);
    RANK_CHECK(WAIT_UNTIL(coll_comm_async_error(comm) != COLL_OK, slow_s(20)));
    RANK_CHECK(coll_comm_async_error(comm) == COLL_ERR_MISMATCH);
    RANK_CHECK(coll_barrier(comm) == COLL_ERR_MISMATCH);
    return 0;
  }
  RANK_OK(coll_comm_deregister(comm, &it));
  virtual_give(cuda, &mapped);
  return 0;
}

static int run_process(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_comm *mine = NULL;
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = 20000;
  levels_move(&shape, rank);
  device_use(levels_device(&shape, rank, s->mode));
  if (rank == 0)
    RANK_OK(coll_unique_id(&s->id, NULL));
  RANK_OK(coll_barrier(comm));
  RANK_OK(coll_comm_create(&mine, &s->id, nranks, rank, &config));
  RANK_CHECK(mine->levels && !mine->direct);
  RANK_CHECK(use_virtual(mine, rank, s) == 0);
  return coll_comm_destroy(&mine) != COLL_OK;
}

Test(levels_registered, processes) {
  DEVICE_NEEDS_FAKE("GPU_PEERS");
  load();
  device_load();
  EACH_MODE(mode, MODE_ORDERED, MODE_SPIN)
    for (int differs = 0; differs < 2; differs++) {
      scene *s = shared_memory(sizeof(*s));
      s->mode = mode;
      s->differs = differs;
      cr_expect_eq(run_processes(RANKS, NULL, run_process, s, LIMIT_S, NULL), 0, "mode %d%s", mode,
                   differs ? ", ranks differ" : "");
    }
}
