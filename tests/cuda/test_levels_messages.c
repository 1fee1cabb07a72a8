/*
 * test_levels_messages.c: long calls of ranks in groups, also of one rank, whose parts across
 * groups are messages over (fake) InfiniBand that its device moves from and to memory of (fake)
 * GPUs: all against a plain reference; what still crosses host memory; who cannot do it; and
 * failures.
 */
#include <criterion/criterion.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "extent.h"
#include "libcoll/comm/comm.h"
#include "support_levels.h"
#include "support_site.h"
#include "support_verbs_device.h"
#include "tests/proc/support_ranks.h"

enum { SLOT = 65536, LEAST = 1 << 20, ROOM = 4 * LEAST, COLLS = 6 };

TestSuite(levels_messages, .timeout = 300);

static rdma its;

/* What ranks run. */
typedef struct scene {
  levels_shape shape;
  unsigned stride, offset;
} scene;

/* Groups of one rank have GPUs that reach nobody's. */
static const levels_shape shapes[] = {
    {2, 1, false}, {3, 1, false}, {4, 1, false}, {2, 2, true}, {3, 2, true}};
enum { SHAPES = sizeof(shapes) / sizeof(*shapes) };

static void load(void) {
  setenv("COLL_GPU_SLOT_BYTES", "4M", 1);
  setenv("COLL_SLOT_BYTES", "64K", 1);
  levels_peers();
  its = rdma_load("2");
}

static int timeout_ms = 20000;

/* Runs ranks as threads, connected by verbs. */
static int run(const levels_shape *shape, const char *fault, rank_fn fn, void *arg) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = "verbs";
  config.timeout_ms = slow_ms(timeout_ms);
  if (fault)
    setenv("COLL_FAULT", fault, 1);
  device_use(0);
  device_mode(MODE_ORDERED);
  const int result = run_threads(shape->ngroups * shape->size, &config, fn, arg);
  cr_assert_eq(its.fake->registered, 0, "%d registrations are left", its.fake->registered);
  return result;
}

/* Uses this rank's device, and has the ranks share GPU memory in groups. */
static int share(coll_comm *comm, int rank, const levels_shape *shape) {
  device_use(levels_device(shape, rank, MODE_SPIN));
  RANK_OK(coll_comm_use_gpu(comm));
  const colli_levels *levels = comm->levels;
  RANK_CHECK(levels && levels->by_messages);
  RANK_CHECK(levels->ngroups == shape->ngroups && levels->size == shape->size);
  return 0;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* The k-th of many calls: some are too short for messages, some take several rounds. */
static site_plan plan_of(unsigned k, int nranks, const levels_shape *shape) {
  static const case_coll colls[COLLS] = {CASE_ALLREDUCE, CASE_BROADCAST,      CASE_ALLGATHER,
                                         CASE_REDUCE,    CASE_REDUCE_SCATTER, CASE_REDUCE_SCATTERV};
  static const size_t sizes[] = {LEAST + 16, 2 * LEAST + 4097, LEAST / 2, LEAST + 3};
  static const coll_type types[] = {COLL_INT8, COLL_FLOAT32, COLL_INT64, COLL_FLOAT64};
  static const coll_op ops[] = {COLL_SUM, COLL_MAX, COLL_AVG, COLL_MIN};
  site_plan plan = {.coll = colls[k % COLLS],
                    .type = types[k / 2 % 4],
                    .op = ops[k / 3 % 4],
                    .root = (int)(k / 2) % nranks,
                    .in_place = k / 7 % 3 == 0,
                    .shape = k};
  const bool pieces = plan.coll == CASE_ALLREDUCE || plan.coll == CASE_REDUCE;
  if (plan.coll != CASE_BROADCAST && plan.coll != CASE_ALLGATHER && plan.type == COLL_INT8)
    plan.type = COLL_FLOAT64; /* the software GPU takes its time for each element */
  plan.count = sizes[nranks > 3 ? 0 : k / COLLS % 4] / coll_type_bytes(plan.type);
  plan.count *= (size_t)(pieces ? nranks : plan.coll == CASE_BROADCAST ? shape->size * 3 : 1);
  return plan;
}

/* Makes many calls, with buffers anywhere, which differs from rank to rank. */
static int run_calls(coll_comm *comm, int rank, int nranks, void *arg) {
  const scene *s = arg;
  RANK_CHECK(share(comm, rank, &s->shape) == 0);
  colli_cu_stream stream = device_stream();
  for (unsigned k = s->offset; k < COLLS * 4 * 10; k += s->stride) {
    const site_plan plan = plan_of(k, nranks, &s->shape);
    const unsigned where = k / 4 + (unsigned)rank;
    const site_place far = k % 3 ? SITE_NEAR : (site_place)(where % SITE_PLACES);
    const site_place places[] = {far, k % 5 ? SITE_NEAR : (site_place)(where / 3 % SITE_PLACES)};
    const bool captured = k / 11 % 4 == 0;
    site *it = site_make(&plan, rank, nranks, places, NULL);
    RANK_CHECK(site_repeat(it, captured, nranks > 3 ? 1 : 2, comm, rank, stream) == 0);
    site_free(it);
  }
  return 0;
}

Test(levels_messages, calls, .init = load) {
  DEVICE_NEEDS_FAKE("dma-bufs that a fake device knows");
  const unsigned stride = (unsigned)extent(61, 7, 97);
  for (int i = 0; i < SHAPES; i++) {
    scene s = {shapes[i], stride, (unsigned)(5 * i) % stride};
    its.fake->dmabuf_written = 0;
    cr_assert_eq(run(&s.shape, NULL, run_calls, &s), 0, "%d groups of %d", s.shape.ngroups,
                 s.shape.size);
    cr_assert_gt(its.fake->dmabuf_written, 0, "%d groups of %d", s.shape.ngroups, s.shape.size);
    cr_assert_eq(device_take_races(), 0);
  }
}

/* More groups than a kernel has inputs: each element of rank r's input is r more than its place's
 * number. */
static int run_many(coll_comm *comm, int rank, int nranks, void *arg) {
  const coll_op op = *(const coll_op *)arg;
  const size_t count = LEAST / 8 + 1, n = (size_t)nranks;
  device_use(rank);
  RANK_OK(coll_comm_use_gpu(comm));
  RANK_CHECK(comm->levels && comm->levels->by_messages && comm->levels->ngroups == nranks);
  double *in = device_memory.take(n * count * 8), *out = device_memory.take(count * 8);
  double *values = device_place(in), *results = device_place(out);
  for (size_t i = 0; i < n * count; i++)
    values[i] = (double)(i % 7) + rank;
  colli_cu_stream stream = device_stream();
  RANK_OK(coll_reduce_scatter_on_stream(in, out, count, COLL_FLOAT64, op, comm, stream));
  device_await(stream);
  RANK_OK(coll_comm_async_error(comm));
  const double more = op == COLL_AVG ? (nranks - 1) / 2.0 : nranks - 1;
  for (size_t i = 0; i < count; i++)
    RANK_CHECK(results[i] == (double)(((size_t)rank * count + i) % 7) + more);
  device_memory.give(in);
  device_memory.give(out);
  return 0;
}

Test(levels_messages, many_groups) {
  DEVICE_NEEDS_FAKE("dma-bufs that a fake device knows");
  const levels_shape shape = {COLL_GPU_PLACES + 1, 1, false};
  coll_op ops[] = {COLL_AVG, COLL_MAX};
  setenv("COLL_GPU_SLOT_BYTES", "16M", 1);
  setenv("COLL_SLOT_BYTES", "64K", 1);
  setenv("GPU_DEVICES", "16", 1);
  setenv("GPU_PEERS", "none", 1);
  its = rdma_load("2");
  for (int i = 0; i < 2; i++)
    cr_expect_eq(run(&shape, NULL, run_many, &ops[i]), 0, "operation %d", (int)ops[i]);
  cr_expect_gt(its.fake->dmabuf_written, 0);
}

/* ---- what crosses host memory ---------------------------------------------------------------- */

/* Of each message that comes, the first slot is copied from the host; nothing else is. */
static int count_copies(coll_comm *comm, int rank, int nranks, void *arg) {
  static const case_coll colls[] = {CASE_ALLREDUCE, CASE_REDUCE_SCATTER, CASE_ALLGATHER,
                                    CASE_BROADCAST};
  static const site_place near[] = {SITE_NEAR, SITE_NEAR};
  RANK_CHECK(share(comm, rank, arg) == 0);
  colli_cu_stream stream = device_stream();
  for (int i = 0; i < 4; i++) {
    const size_t others = (size_t)nranks - 1;
    const size_t blocks = colls[i] == CASE_ALLREDUCE ? (size_t)nranks : 1;
    const site_plan plan = {
        .coll = colls[i], .type = COLL_FLOAT64, .op = COLL_SUM, .count = blocks * LEAST / 8};
    site *it = site_make(&plan, rank, nranks, near, NULL);
    site_fill(it, 7);
    levels_take_copied(comm);
    RANK_OK(site_call(it, CASE_STREAMED, comm, stream, NULL));
    device_await(stream);
    RANK_OK(coll_comm_async_error(comm));
    const size_t came = colls[i] == CASE_ALLREDUCE   ? 2 * others
                        : colls[i] != CASE_BROADCAST ? others
                                                     : (size_t)(rank != 0);
    RANK_CHECK(levels_take_copied(comm) == came * SLOT);
    RANK_CHECK(site_check(it, 7));
    site_free(it);
  }
  return 0;
}

Test(levels_messages, copies, .init = load) {
  DEVICE_NEEDS_FAKE("dma-bufs that a fake device knows");
  levels_shape shape = {3, 1, false};
  cr_assert_eq(run(&shape, NULL, count_copies, &shape), 0);
}

/* ---- who cannot ------------------------------------------------------------------------------ */

/* Each rank alone: nothing is shared, and calls are right. Groups: parts across them are staged. */
static int run_without(coll_comm *comm, int rank, int nranks, void *arg) {
  const levels_shape *shape = arg;
  static const site_place near[] = {SITE_NEAR, SITE_NEAR};
  const site_plan plan = {
      .coll = CASE_ALLREDUCE, .type = COLL_FLOAT64, .op = COLL_SUM, .count = 4 * LEAST / 8};
  coll_error error = COLL_ERROR_INIT;
  device_use(levels_device(shape, rank, MODE_SPIN));
  const coll_status status = coll_comm_use_gpu(comm);
  if (shape->size == 1) {
    RANK_CHECK(status == COLL_ERR_UNSUPPORTED && !comm->levels);
    RANK_OK(coll_last_error(comm, &error));
    RANK_CHECK(error.message[0] != 0);
  } else {
    RANK_OK(status);
    RANK_CHECK(comm->levels && !comm->levels->by_messages);
  }
  colli_cu_stream stream = device_stream();
  site *it = site_make(&plan, rank, nranks, near, NULL);
  RANK_CHECK(site_repeat(it, false, 2, comm, rank, stream) == 0);
  site_free(it);
  return 0;
}

static void check_without(void) {
  levels_shape alone = {2, 1, false}, pairs = {2, 2, true};
  cr_expect_eq(run(&alone, NULL, run_without, &alone), 0);
  cr_expect_eq(run(&pairs, NULL, run_without, &pairs), 0);
  cr_expect_eq(its.fake->dmabuf_written, 0);
}

Test(levels_messages, no_dma_bufs) {
  DEVICE_NEEDS_FAKE("dma-bufs that a fake device knows");
  levels_peers();
  its = rdma_load("4");
  check_without();
}

Test(levels_messages, no_flush) {
  DEVICE_NEEDS_FAKE("dma-bufs that a fake device knows");
  levels_peers();
  its = rdma_load("3");
  check_without();
}

Test(levels_messages, refused_by_network, .init = load) {
  DEVICE_NEEDS_FAKE("dma-bufs that a fake device knows");
  its.fake->dmabuf_refuse = true;
  check_without();
}

Test(levels_messages, turned_off, .init = load) {
  DEVICE_NEEDS_FAKE("dma-bufs that a fake device knows");
  setenv("COLL_GPU_DIRECT_RDMA", "off", 1);
  check_without();
}

/* One rank alone does not lend: then nobody sends messages, whatever the others could. */
static int run_one_off(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_id id = {{0}};
  coll_comm *own;
  coll_config config = COLL_CONFIG_INIT;
  coll_error error = COLL_ERROR_INIT;
  config.transport = "verbs";
  device_use(levels_device(arg, rank, MODE_SPIN));
  setenv("COLL_GPU_DIRECT_RDMA", rank == 1 ? "off" : "auto", 1);
  if (rank == 0)
    RANK_OK(coll_unique_id(&id, &config));
  RANK_OK(coll_broadcast(&id, &id, sizeof(id), COLL_UINT8, 0, comm));
  RANK_OK(coll_comm_create(&own, &id, nranks, rank, &config));
  RANK_CHECK(!own->levels && coll_comm_use_gpu(own) == COLL_ERR_UNSUPPORTED && !own->levels);
  RANK_OK(coll_last_error(own, &error));
  return coll_comm_destroy(&own) != COLL_OK;
}

Test(levels_messages, one_rank_turned_off, .init = load) {
  DEVICE_NEEDS_FAKE("dma-bufs that a fake device knows");
  levels_shape shape = {3, 1, false};
  coll_config config = COLL_CONFIG_INIT;
  config.transport = "verbs";
  its.fake->run = (uint64_t)getpid();
  cr_expect_eq(run_processes(3, &config, run_one_off, &shape, 60, NULL), 0);
}

/* ---- beside the program's messages ----------------------------------------------------------- */

enum { UNREAD = 200 };

/* The program's messages are on the same connections: many that nobody has received yet, and
 * receives of any tag from any rank that must get none of libcoll's own. */
static int run_beside(coll_comm *comm, int rank, int nranks, void *arg) {
  static const site_place near[] = {SITE_NEAR, SITE_NEAR};
  const int other = 1 - rank;
  coll_request *sends[UNREAD], *any;
  int values[UNREAD], got = -1, first = -1;
  coll_message from;
  const levels_shape shape = {2, 1, false};
  RANK_CHECK(share(comm, rank, &shape) == 0);
  colli_cu_stream stream = device_stream();
  RANK_OK(coll_irecv(&first, 1, COLL_INT32, COLL_ANY_SOURCE, COLL_ANY_TAG, &from, comm, &any));
  for (int i = 0; i < UNREAD; i++) {
    values[i] = 1000 * rank + i;
    RANK_OK(coll_isend(&values[i], 1, COLL_INT32, other, i, comm, &sends[i]));
  }
  site *it = site_make(arg, rank, nranks, near, NULL);
  RANK_CHECK(site_repeat(it, false, 2, comm, rank, stream) == 0);
  site_free(it);
  RANK_OK(coll_wait(&any, -1));
  RANK_CHECK(first == 1000 * other && from.tag == 0);
  for (int i = 1; i < UNREAD; i++) {
    RANK_OK(coll_recv(&got, 1, COLL_INT32, other, i, NULL, comm));
    RANK_CHECK(got == 1000 * other + i);
  }
  for (int i = 0; i < UNREAD; i++)
    RANK_OK(coll_wait(&sends[i], -1));
  return 0;
}

Test(levels_messages, beside_unread_messages, .init = load) {
  DEVICE_NEEDS_FAKE("dma-bufs that a fake device knows");
  const levels_shape shape = {2, 1, false};
  site_plan plan = {
      .coll = CASE_ALLREDUCE, .type = COLL_FLOAT64, .op = COLL_SUM, .count = 2 * LEAST / 8};
  cr_expect_eq(run(&shape, NULL, run_beside, &plan), 0);
  plan.coll = CASE_BROADCAST; /* what the root waits for is behind messages as well */
  cr_expect_eq(run(&shape, NULL, run_beside, &plan), 0);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Rank 0 asks for another sum than the others: nobody gets one, and all learn of it. */
static int run_mismatch(coll_comm *comm, int rank, int nranks, void *arg) {
  const size_t count = (size_t)nranks * LEAST / 4;
  RANK_CHECK(share(comm, rank, arg) == 0);
  char *buf = rdma_take(count * 4, 1);
  colli_cu_stream stream = device_stream();
  coll_status status =
      coll_allreduce_on_stream(buf, buf, count - (rank == 0), COLL_INT32, COLL_SUM, comm, stream);
  device_await(stream);
  if (status == COLL_OK) /* the others may have failed it while it was being put there */
    status = coll_comm_async_error(comm);
  RANK_CHECK(status == COLL_ERR_MISMATCH);
  rdma_give(buf);
  return 0;
}

Test(levels_messages, mismatch, .init = load) {
  DEVICE_NEEDS_FAKE("dma-bufs that a fake device knows");
  levels_shape shape = {3, 1, false};
  cr_assert_eq(run(&shape, NULL, run_mismatch, &shape), 0);
}

/* A connection breaks: streams go on, and then nobody writes to the result any more. */
static int run_cut(coll_comm *comm, int rank, int nranks, void *arg) {
  static const levels_shape shape = {3, 1, false};
  const size_t count = (size_t)nranks * LEAST / 8;
  atomic_int *ended = arg;
  RANK_CHECK(share(comm, rank, &shape) == 0);
  char *buf = rdma_take(count * 8, 1), *copy = malloc(count * 8);
  RANK_CHECK(copy);
  colli_cu_stream stream = device_stream();
  coll_status status = COLL_OK;
  for (int i = 0; i < 4 && status == COLL_OK; i++)
    status = coll_allreduce_on_stream(buf, buf, count, COLL_INT64, COLL_SUM, comm, stream);
  device_await(stream);
  status = coll_comm_async_error(comm);
  RANK_CHECK(status == COLL_ERR_PEER_LOST);
  its.settle();
  memcpy(copy, device_place(buf), count * 8);
  atomic_fetch_add(ended, 1);
  while (atomic_load(ended) < nranks)
    sched_yield();
  its.settle();
  RANK_CHECK(memcmp(copy, device_place(buf), count * 8) == 0);
  rdma_give(buf);
  free(copy);
  return 0;
}

Test(levels_messages, cut_in_the_middle, .init = load) {
  DEVICE_NEEDS_FAKE("dma-bufs that a fake device knows");
  const levels_shape shape = {3, 1, false};
  for (int after = 20; after <= 28; after += 4) {
    char fault[60];
    atomic_int ended = 0;
    snprintf(fault, sizeof(fault), "cut=0-1@%d", after);
    cr_expect_eq(run(&shape, fault, run_cut, &ended), 0, "%s", fault);
  }
  cr_assert_gt(its.fake->dmabuf_written, 0);
}

/* What a rank leaves behind when its communicator ends first. */
typedef struct left {
  levels_shape shape;
  device_gate *gates[4];
  colli_cu_stream streams[4];
} left;

/* The communicator ends before the streams have come to the call. */
static int run_held(coll_comm *comm, int rank, int nranks, void *arg) {
  left *l = arg;
  const size_t count = (size_t)nranks * LEAST / 8;
  device_may_leak(); /* what streams may use is kept */
  RANK_CHECK(share(comm, rank, &l->shape) == 0);
  char *buf = rdma_take(count * 8, 1);
  l->streams[rank] = device_stream();
  l->gates[rank] = device_stop(l->streams[rank]);
  return coll_allreduce_on_stream(buf, buf, count, COLL_INT64, COLL_SUM, comm, l->streams[rank]) !=
         COLL_OK;
}

/* Then nothing is registered any more, but the streams still find the rooms that they use. */
Test(levels_messages, held_until_the_end, .init = load) {
  DEVICE_NEEDS_FAKE("dma-bufs that a fake device knows");
  timeout_ms = 300;
  for (int size = 1; size <= 2; size++) {
    left l = {.shape = {2, size, false}};
    cr_assert_eq(run(&l.shape, NULL, run_held, &l), 0);
    for (int rank = 0; rank < 2 * size; rank++)
      device_open(l.gates[rank]);
    for (int rank = 0; rank < 2 * size; rank++) {
      device_use(levels_device(&l.shape, rank, MODE_SPIN));
      device_await(l.streams[rank]);
    }
  }
}

/* A rank is killed while its device still moves messages: the others' streams go on, and all name
 * it. */
static int run_killed(coll_comm *comm, int rank, int nranks, void *arg) {
  const size_t count = 4 * (size_t)nranks * LEAST / 8;
  coll_error error = COLL_ERROR_INIT;
  RANK_CHECK(share(comm, rank, arg) == 0);
  char *buf = rdma_take(count * 8, 1);
  colli_cu_stream stream = device_stream();
  coll_status status =
      coll_allreduce_on_stream(buf, buf, count, COLL_INT64, COLL_SUM, comm, stream);
  if (rank == 1) {
    while (its.fake->dmabuf_read < LEAST)
      sched_yield();
    raise(SIGKILL);
  }
  device_await(stream);
  if (status == COLL_OK) /* it may have died while later messages were being put there */
    status = coll_comm_async_error(comm);
  RANK_CHECK(status == COLL_ERR_PEER_LOST);
  RANK_OK(coll_last_error(comm, &error));
  RANK_CHECK(error.peer == 1);
  rdma_give(buf);
  return 0;
}

Test(levels_messages, killed_in_the_middle, .init = load) {
  DEVICE_NEEDS_FAKE("dma-bufs that a fake device knows");
  levels_shape some[] = {{3, 1, false}, {2, 2, false}};
  coll_config config = COLL_CONFIG_INIT;
  config.transport = "verbs";
  for (int i = 0; i < 2; i++) {
    int results[4];
    const int nranks = some[i].ngroups * some[i].size;
    device_mode(i ? MODE_SPIN : MODE_ORDERED);
    its.fake->run = (uint64_t)getpid() + (uint64_t)i;
    run_processes(nranks, &config, run_killed, &some[i], 60, results);
    for (int rank = 0; rank < nranks; rank++)
      cr_expect_eq(results[rank], rank == 1 ? 128 + SIGKILL : 0, "rank %d of %d", rank, nranks);
  }
}
