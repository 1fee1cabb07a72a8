/*
 * test_levels_messages.c: long calls of ranks in groups, also of one rank, whose parts across groups
 * are messages over (fake) InfiniBand that its device moves from and to memory of (fake) GPUs: all
 * against a plain reference; what still crosses host memory; who cannot do it; and failures.
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
static const levels_shape shapes[] = {{2, 1, false}, {3, 1, false}, {4, 1, false},
                                      {2, 2, false}, {2, 2, true},  {3, 2, true}};
enum { SHAPES = sizeof(shapes) / sizeof(*shapes) };

static void load(void) {
  setenv("COLL_GPU_SLOT_BYTES", "4M", 1);
  setenv("COLL_SLOT_BYTES", "64K", 1);
  levels_peers();
  its = rdma_load("2");
}

/* Runs ranks as threads, connected by verbs. */
static int run(const levels_shape *shape, const char *fault, rank_fn fn, void *arg) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = "verbs";
  config.timeout_ms = slow_ms(20000);
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
  static const coll_type types[] = {COLL_FLOAT32, COLL_INT8, COLL_BFLOAT16, COLL_FLOAT64,
                                    COLL_INT64};
  static const coll_op ops[] = {COLL_SUM, COLL_MAX, COLL_AVG, COLL_MIN};
  site_plan plan = {.coll = colls[k % COLLS],
                    .type = types[k / 2 % 5],
                    .op = ops[k / 3 % 4],
                    .root = (int)(k / 2) % nranks,
                    .in_place = k / 7 % 3 == 0,
                    .shape = k};
  const bool pieces = plan.coll == CASE_ALLREDUCE || plan.coll == CASE_REDUCE;
  plan.count = sizes[k / COLLS % 4] / coll_type_bytes(plan.type);
  plan.count *= (size_t)(pieces ? nranks : plan.coll == CASE_BROADCAST ? shape->size * 3 : 1);
  return plan;
}

/* Makes a call, at once or as a graph that is launched twice, and checks each result. */
static int make_one(coll_comm *comm, int rank, site *it, bool captured, colli_cu_stream stream) {
  device_graph graph;
  if (captured) {
    device_capture(stream);
    RANK_OK(site_call(it, CASE_STREAMED, comm, stream, NULL));
    graph = device_capture_end(stream);
  }
  for (uint64_t salt = 1; salt <= 2; salt++) {
    site_fill(it, salt);
    if (captured)
      device_launch(&graph, stream);
    else
      RANK_OK(site_call(it, CASE_STREAMED, comm, stream, NULL));
    device_await(stream);
    RANK_OK(coll_comm_async_error(comm));
    RANK_CHECK(site_check(it, salt));
  }
  if (captured)
    device_graph_free(&graph);
  return 0;
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
    site *it = site_make(&plan, rank, nranks, places, NULL);
    RANK_CHECK(make_one(comm, rank, it, k / 11 % 4 == 0, stream) == 0);
    site_free(it);
  }
  return 0;
}

Test(levels_messages, calls, .init = load) {
  DEVICE_NEEDS_FAKE("dma-bufs that a fake device knows");
  const unsigned stride = (unsigned)extent(37, 7, 73);
  for (int i = 0; i < SHAPES; i++) {
    scene s = {shapes[i], stride, (unsigned)(5 * i) % stride};
    its.fake->dmabuf_written = 0;
    cr_assert_eq(run(&s.shape, NULL, run_calls, &s), 0, "%d groups of %d", s.shape.ngroups,
                 s.shape.size);
    cr_assert_gt(its.fake->dmabuf_written, 0, "%d groups of %d", s.shape.ngroups, s.shape.size);
    cr_assert_eq(device_take_races(), 0);
  }
}
