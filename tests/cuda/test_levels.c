/*
 * test_levels.c: ranks in groups whose (fake) GPUs do not reach each other: long all-reduces,
 * reduces, reduce-scatters, broadcasts and all-gathers are divided among the ranks of a group,
 * other calls are staged. All against a plain reference, in every mode, in graphs and not; and how
 * many bytes cross host memory.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "extent.h"
#include "libcoll/comm/comm.h"
#include "support_levels.h"
#include "support_site.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

enum { SLOT = 4096, PART = SLOT / 4, COLLS = 9, REGISTERED = 1 << 18 };

TestSuite(levels, .timeout = 300);

/* What ranks run. */
typedef struct scene {
  levels_shape shape;
  int mode;
  unsigned stride, offset;
} scene;

static const levels_shape shapes[] = {
    {2, 2, false}, {2, 2, true}, {2, 3, true}, {3, 2, false}, {4, 2, true}};
enum { SHAPES = sizeof(shapes) / sizeof(*shapes) };

/* Uses this rank's device, and has the ranks share GPU memory in groups. */
static int share(coll_comm *comm, int rank, int nranks, const scene *s) {
  device_use(levels_device(&s->shape, rank, s->mode));
  RANK_OK(coll_comm_use_gpu(comm));
  const colli_levels *levels = comm->levels;
  RANK_CHECK(levels && !comm->direct && levels->within->direct && !levels->across->direct);
  RANK_CHECK(levels->ngroups == s->shape.ngroups && levels->size == s->shape.size);
  RANK_CHECK(levels->ngroups * levels->size == nranks);
  RANK_CHECK(levels->group == levels_group(&s->shape, rank) &&
             levels->place == levels_place(&s->shape, rank));
  RANK_OK(coll_comm_use_gpu(comm)); /* changes nothing */
  RANK_CHECK(comm->levels == levels);
  return 0;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* The k-th of many calls. */
static site_plan plan_of(unsigned k, int nranks) {
  static const case_coll colls[COLLS] = {CASE_ALLREDUCE, CASE_BROADCAST,      CASE_REDUCE_SCATTERV,
                                         CASE_ALLGATHER, CASE_REDUCE_SCATTER, CASE_REDUCE,
                                         CASE_BARRIER,   CASE_ALLTOALL,       CASE_REDUCE};
  static const size_t sizes[] = {3 * PART, 20001, 0, 4 * SLOT + 1, 1, 9 * SLOT, 5 * PART - 1, 101};
  static const coll_type types[] = {COLL_FLOAT32, COLL_INT8,  COLL_BFLOAT16, COLL_FLOAT64,
                                    COLL_UINT16,  COLL_INT64, COLL_FLOAT16,  COLL_FLOAT32_LOC64};
  static const coll_op ops[] = {COLL_SUM, COLL_MAX, COLL_BOR, COLL_PROD, COLL_AVG, COLL_MINLOC};
  site_plan plan = {.coll = colls[k % COLLS],
                    .type = types[k / 3 % 8],
                    .op = ops[k / 5 % 6],
                    .root = (int)(k / 2) % nranks,
                    .in_place = k / 7 % 3 == 0,
                    .registered = {k / 13 % 2, k / 13 % 4 % 3 > 0},
                    .shape = k};
  if (!case_takes(plan.type, plan.op))
    plan.op = plan.type == COLL_FLOAT32_LOC64 ? COLL_MAXLOC : COLL_MAX;
  if (plan.coll >= CASE_BROADCAST && plan.type == COLL_FLOAT32_LOC64)
    plan.type = COLL_UINT8;
  plan.count = sizes[k / COLLS % 8] / coll_type_bytes(plan.type);
  return plan;
}

/* Makes many calls, with buffers anywhere, which differs from rank to rank. */
static int run_calls(coll_comm *comm, int rank, int nranks, void *arg) {
  const scene *s = arg;
  arena registered;
  RANK_CHECK(share(comm, rank, nranks, s) == 0);
  RANK_OK(arena_make(comm, &registered, REGISTERED, s->offset % 2));
  colli_cu_stream stream = device_stream();
  for (unsigned k = s->offset; k < COLLS * 8 * 24; k += s->stride) {
    const site_plan plan = plan_of(k, nranks);
    const unsigned where = k / 4 + (unsigned)rank;
    const site_place places[] = {(site_place)(where % SITE_PLACES),
                                 (site_place)(where / 3 % SITE_PLACES)};
    site *it = site_make(&plan, rank, nranks, places, &registered);
    RANK_CHECK(site_repeat(it, k / 11 % 3 == 0, 2, comm, rank, stream) == 0);
    site_free(it);
  }
  RANK_OK(arena_free(comm, &registered));
  return 0;
}

Test(levels, calls) {
  DEVICE_NEEDS_FAKE("GPU_PEERS");
  const unsigned stride = (unsigned)extent(797, 127, 797);
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  levels_peers();
  device_use(0);
  EACH_MODE(mode, MODE_ORDERED, MODE_MEET)
    for (int i = 0; i < SHAPES; i++) {
      scene s = {shapes[i], mode, stride, (unsigned)(29 * i + 17 * mode) % stride};
      cr_assert_eq(run_threads(s.shape.ngroups * s.shape.size, NULL, run_calls, &s), 0,
                   "%d groups of %d, mode %d", s.shape.ngroups, s.shape.size, mode);
      cr_assert_eq(device_take_races(), 0);
    }
}

/* Reduce-scatters whose results are at the beginning of the input, as in MPI, in several rounds. */
static int run_over_input(coll_comm *comm, int rank, int nranks, void *arg) {
  RANK_CHECK(share(comm, rank, nranks, arg) == 0);
  colli_cu_stream stream = device_stream();
  for (int i = 0; i < 4; i++) {
    const test_case over = {.coll = i % 2 ? CASE_REDUCE_SCATTERV : CASE_REDUCE_SCATTER,
                            .form = CASE_STREAMED,
                            .type = i < 2 ? COLL_INT16 : COLL_FLOAT32,
                            .op = COLL_SUM,
                            .in_place = 2,
                            .count = 3 * SLOT + (size_t)i,
                            .seed = (uint64_t)i,
                            .device = &device_memory,
                            .stream = stream,
                            .in_device = {true, true}};
    RANK_CHECK(case_run(comm, rank, nranks, &over, 1) == 0);
  }
  return 0;
}

Test(levels, over_input) {
  DEVICE_NEEDS_FAKE("GPU_PEERS");
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  levels_peers();
  device_use(0);
  EACH_MODE(mode, MODE_ORDERED, MODE_MEET) {
    scene s = {{2, 2, mode % 2}, mode, 1, 0};
    cr_expect_eq(run_threads(4, NULL, run_over_input, &s), 0, "mode %d", mode);
  }
}

/* Several megabytes with the usual slots. */
static int run_long(coll_comm *comm, int rank, int nranks, void *arg) {
  static const case_coll colls[] = {CASE_ALLREDUCE, CASE_BROADCAST, CASE_ALLGATHER, CASE_REDUCE,
                                    CASE_REDUCE_SCATTER};
  RANK_CHECK(share(comm, rank, nranks, arg) == 0);
  colli_cu_stream stream = device_stream();
  for (int i = 0; i < 5; i++) {
    const site_plan plan = {.coll = colls[i],
                            .type = COLL_INT32,
                            .op = COLL_SUM,
                            .root = 3,
                            .count = (3u << 19) / 4 + 5};
    const site_place places[] = {SITE_NEAR, SITE_NEAR};
    site_plan longer = plan;
    longer.count *= colls[i] == CASE_ALLGATHER || colls[i] == CASE_REDUCE_SCATTER ? 1 : 2;
    site *it = site_make(&longer, rank, nranks, places, NULL);
    RANK_CHECK(site_repeat(it, i % 3 == 1, 2, comm, rank, stream) == 0);
    site_free(it);
  }
  return 0;
}

Test(levels, long_calls) {
  DEVICE_NEEDS_FAKE("GPU_PEERS");
  scene s = {{2, 2, true}, MODE_ORDERED, 1, 0};
  levels_peers();
  device_use(0);
  device_mode(s.mode);
  cr_assert_eq(run_threads(4, NULL, run_long, &s), 0);
}

/* ---- order ----------------------------------------------------------------------------------- */

enum { LAUNCHES = 25 };

/* What ranks know of each other. */
typedef struct relay {
  scene scene;
  case_coll colls[2];
  atomic_int ended; /* launches of the first graph that have ended on rank 0 */
} relay;

/* A broadcast (reduce-scatter) in one graph and an all-reduce (reduce) in another one, in another
 * stream, which is launched when the first has ended on rank 0: elsewhere it may be midway then. */
static int launch_in_turn(coll_comm *comm, int rank, int nranks, void *arg) {
  relay *r = arg;
  static const site_place near[] = {SITE_NEAR, SITE_NEAR};
  RANK_CHECK(share(comm, rank, nranks, &r->scene) == 0);
  const site_plan plans[] = {
      {.coll = r->colls[0], .type = COLL_INT32, .op = COLL_SUM, .count = 12 * SLOT},
      {.coll = r->colls[1], .type = COLL_INT32, .op = COLL_SUM, .root = 3, .count = SLOT}};
  colli_cu_stream streams[2];
  site *sites[2];
  device_graph graphs[2];
  for (int i = 0; i < 2; i++) {
    streams[i] = device_stream();
    sites[i] = site_make(&plans[i], rank, nranks, near, NULL);
    device_capture(streams[i]);
    RANK_OK(site_call(sites[i], CASE_STREAMED, comm, streams[i], NULL));
    graphs[i] = device_capture_end(streams[i]);
  }
  for (int n = 1; n <= LAUNCHES; n++) {
    for (int i = 0; i < 2; i++) {
      site_fill(sites[i], (uint64_t)n);
      device_launch(&graphs[i], streams[i]);
      if (i == 0 && rank == 0) {
        device_await(streams[0]);
        atomic_store(&r->ended, n);
      }
      RANK_CHECK(WAIT_UNTIL(atomic_load(&r->ended) >= n, slow_s(20)));
    }
    for (int i = 0; i < 2; i++) {
      device_await(streams[i]);
      RANK_OK(coll_comm_async_error(comm));
      RANK_CHECK(site_check(sites[i], (uint64_t)n));
    }
    RANK_OK(coll_barrier(comm));
  }
  for (int i = 0; i < 2; i++) {
    device_graph_free(&graphs[i]);
    site_free(sites[i]);
  }
  return 0;
}

Test(levels, order) {
  DEVICE_NEEDS_FAKE("GPU_PEERS");
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  levels_peers();
  device_use(0);
  device_mode(MODE_ORDERED);
  relay moves = {.scene = {{2, 2, false}, MODE_SPIN, 1, 0}, {CASE_BROADCAST, CASE_ALLREDUCE}};
  relay sums = {.scene = {{2, 2, true}, MODE_SPIN, 1, 0}, {CASE_REDUCE_SCATTER, CASE_REDUCE}};
  cr_expect_eq(run_threads(4, NULL, launch_in_turn, &moves), 0);
  cr_expect_eq(run_threads(4, NULL, launch_in_turn, &sums), 0);
}

/* ---- what crosses host memory ---------------------------------------------------------------- */

/* The bytes that one call copies between this rank's device and the host. */
static int copied_by(coll_comm *comm, int rank, int nranks, site_plan plan, uint64_t *bytes) {
  const site_place places[] = {SITE_NEAR, SITE_NEAR};
  colli_cu_stream stream = device_stream();
  site *it = site_make(&plan, rank, nranks, places, NULL);
  site_fill(it, 7);
  levels_take_copied(comm);
  RANK_OK(site_call(it, CASE_STREAMED, comm, stream, NULL));
  device_await(stream);
  RANK_OK(coll_comm_async_error(comm));
  *bytes = levels_take_copied(comm);
  RANK_CHECK(site_check(it, 7));
  site_free(it);
  return 0;
}

/* Compares with what is copied without levels. */
static int count_copies(coll_comm *comm, int rank, int nranks, void *arg) {
  const scene *s = arg;
  static const case_coll colls[] = {CASE_ALLREDUCE, CASE_BROADCAST, CASE_ALLGATHER, CASE_REDUCE,
                                    CASE_REDUCE_SCATTER};
  coll_comm *staged;
  uint64_t with, without;
  RANK_CHECK(share(comm, rank, nranks, s) == 0);
  RANK_OK(coll_comm_dup(comm, NULL, &staged));
  for (int i = 0; i < 5; i++) {
    const uint64_t bytes = 96 * PART, size = (uint64_t)s->shape.size;
    const bool blocks = colls[i] == CASE_ALLGATHER || colls[i] == CASE_REDUCE_SCATTER;
    site_plan plan = {.coll = colls[i], .type = COLL_INT32, .op = COLL_SUM, .count = bytes / 4};
    RANK_CHECK(copied_by(staged, rank, nranks, plan, &without) == 0);
    RANK_CHECK(copied_by(comm, rank, nranks, plan, &with) == 0);
    const bool of_root = levels_group(&s->shape, rank) == levels_group(&s->shape, 0);
    if (colls[i] == CASE_ALLREDUCE)
      RANK_CHECK(without == 2 * bytes && with * size == without);
    else if (!blocks) /* the root's input and everybody's result; the first rank across sends, and
                         all get it; or everybody's input and the root's result, likewise */
      RANK_CHECK(without == (1 + (rank == 0)) * bytes && with * size == (1 + of_root) * bytes);
    else
      RANK_CHECK(without == (uint64_t)(1 + nranks) * bytes &&
                 with == (uint64_t)(1 + s->shape.ngroups) * bytes);
    plan.count = size * PART / 4 / (blocks ? size : 1) - 1; /* too short */
    RANK_CHECK(copied_by(staged, rank, nranks, plan, &without) == 0);
    RANK_CHECK(copied_by(comm, rank, nranks, plan, &with) == 0);
    RANK_CHECK(with == without);
  }
  return coll_comm_destroy(&staged) != COLL_OK;
}

Test(levels, copies) {
  DEVICE_NEEDS_FAKE("GPU_PEERS");
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  levels_peers();
  device_use(0);
  device_mode(MODE_ORDERED);
  for (int i = 1; i < 4; i += extent(3, 1, 3)) {
    scene s = {shapes[i], MODE_ORDERED, 1, 0};
    cr_expect_eq(run_threads(s.shape.ngroups * s.shape.size, NULL, count_copies, &s), 0, "%d", i);
  }
}

/* ---- who is in groups ------------------------------------------------------------------------ */

/* Ranks that form no groups: each device is used by as many ranks as `devices` says. */
typedef struct placement {
  int nranks;
  int devices[6];
  const char *says;
} placement;

static const placement placements[] = {
    {3, {0, 1, 4}, "rank 0: GPU 0 has no peer access to rank 2's GPU 4"},
    {2, {0, 4}, "rank 0: GPU 0 has no peer access to rank 1's GPU 4"},
    {6, {0, 4, 0, 4, 0, 8}, "rank 0: GPU 0 has no peer access to rank 1's GPU 4"},
};

static int use_refused(coll_comm *comm, int rank, int nranks, void *arg) {
  const placement *p = arg;
  coll_comm *child;
  device_use(p->devices[rank]);
  RANK_CHECK(device_refused(comm, coll_comm_use_gpu(comm), COLL_ERR_UNSUPPORTED, p->says));
  RANK_CHECK(!comm->direct && !comm->levels);
  int32_t *a = device_vector(5 * SLOT, rank + 1);
  colli_cu_stream stream = device_stream();
  RANK_OK(coll_allreduce_on_stream(a, a, 5 * SLOT, COLL_INT32, COLL_SUM, comm, stream));
  device_await(stream);
  RANK_CHECK(device_has(a, 5 * SLOT, nranks * (nranks + 1) / 2));
  device_memory.give(a);
  RANK_OK(coll_comm_split(comm, p->devices[rank], 0, NULL, &child));
  return coll_comm_destroy(&child) != COLL_OK;
}

Test(levels, refused) {
  DEVICE_NEEDS_FAKE("GPU_PEERS");
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  levels_peers();
  device_use(0);
  for (int i = 0; i < 3; i++) {
    placement p = placements[i];
    cr_expect_eq(run_threads(p.nranks, NULL, use_refused, &p), 0, "%d", i);
  }
}

/* Sums that round are in host memory's order, if that is promised. */
static int sum_in_order(coll_comm *comm, int rank, int nranks, void *arg) {
  static const case_coll colls[] = {CASE_ALLREDUCE, CASE_REDUCE, CASE_REDUCE_SCATTER};
  RANK_CHECK(share(comm, rank, nranks, arg) == 0);
  for (int i = 0; i < 3; i++) {
    site_plan plan = {
        .coll = colls[i], .type = COLL_FLOAT32, .op = COLL_SUM, .root = 2, .count = SLOT};
    uint64_t bytes, staged = 4 * SLOT * (i == 2 ? 5 : 2), divided = 4 * SLOT * (i == 2 ? 3 : 1);
    if (i == 1 && rank != 2)
      staged = 4 * SLOT;
    if (i == 1 && rank < 2)
      divided = 2 * SLOT;
    RANK_CHECK(copied_by(comm, rank, nranks, plan, &bytes) == 0 && bytes == staged);
    plan.op = COLL_MAX;
    RANK_CHECK(copied_by(comm, rank, nranks, plan, &bytes) == 0 && bytes == divided);
  }
  return 0;
}

Test(levels, deterministic) {
  DEVICE_NEEDS_FAKE("GPU_PEERS");
  scene s = {{2, 2, false}, MODE_ORDERED, 1, 0};
  coll_config config = COLL_CONFIG_INIT;
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  levels_peers();
  device_use(0);
  device_mode(s.mode);
  for (int i = COLL_DETERMINISTIC_ON; i <= COLL_DETERMINISTIC_ON + 1; i++) {
    config.deterministic = (coll_determinism)i;
    cr_expect_eq(run_threads(4, &config, sum_in_order, &s), 0, "%d", i);
  }
}

/* All memory goes back. */
static int use_and_destroy(coll_comm *comm, int rank, int nranks, void *arg) {
  const scene *s = arg;
  coll_comm *child;
  uint64_t bytes;
  RANK_OK(coll_comm_dup(comm, NULL, &child));
  RANK_CHECK(share(child, rank, nranks, s) == 0);
  const site_plan plan = {.coll = CASE_ALLREDUCE, .type = COLL_INT8, .op = COLL_SUM, .count = SLOT};
  RANK_CHECK(copied_by(child, rank, nranks, plan, &bytes) == 0);
  return coll_comm_destroy(&child) != COLL_OK;
}

Test(levels, destroyed) {
  DEVICE_NEEDS_FAKE("GPU_PEERS");
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  levels_peers();
  device_use(0);
  EACH_MODE(mode, MODE_ORDERED, MODE_MEET) {
    scene s = {{2, 2, false}, mode, 1, 0};
    const uint64_t before = device_held();
    cr_expect_eq(run_threads(4, NULL, use_and_destroy, &s), 0, "mode %d", mode);
    cr_expect_eq(device_held() - before, 4 + 4, "mode %d: streams and contexts, and %llu", mode,
                 (unsigned long long)(device_held() - before));
  }
}
