/*
 * test_direct.c: stream-ordered calls that stay in the memory of (fake) GPUs: every collective,
 * type and operation against a plain reference, in rounds and segments, on one and several devices,
 * by more ranks than a kernel takes addresses as arguments.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "extent.h"
#include "libcoll/comm/comm.h"
#include "support_cases.h"
#include "tests/proc/support_ranks.h"

TestSuite(direct, .timeout = 240);

/* Shares GPU memory and runs the cases. */
static int run_direct(coll_comm *comm, int rank, int nranks, void *part) {
  device_use(device_of_rank(rank));
  RANK_OK(coll_comm_use_gpu(comm));
  RANK_CHECK(comm->direct != NULL);
  return cases_run(comm, rank, nranks, part);
}

Test(direct, cases) {
  const unsigned share = (unsigned)extent(1201, 311, 1201);
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  device_use(0);
  EACH_MODE(mode, MODE_ORDERED, MODE_MEET)
    for (int nranks = 2; nranks <= 5; nranks++) {
      cases_part part = {share, (unsigned)(MODES * nranks + mode) % share, CASE_STREAMED, 2};
      cr_assert_eq(run_threads(nranks, NULL, run_direct, &part), 0, "%d ranks, mode %d", nranks,
                   mode);
    }
}

/* ---- rounds, and where buffers are ------------------------------------------------------------
 */

/* Which cases of a sweep through collectives and places. */
typedef struct sweep {
  unsigned stride, offset;
  size_t sizes[2];
} sweep;

/* Where buffers are. */
typedef struct spot {
  const case_device *memory;
  bool in, out; /* there; else on the host */
} spot;

static const spot spots[] = {{&device_memory, true, true},      {&device_odd_memory, true, true},
                             {&device_odd_memory, true, false}, {&device_odd_memory, false, true},
                             {&device_far_memory, true, true},  {&device_far_memory, true, false},
                             {&device_far_memory, false, true}, {&device_memory, false, false}};
enum { SPOTS = sizeof(spots) / sizeof(*spots) };

/* The k-th case of the sweep. */
static test_case make_case(unsigned k, int nranks) {
  static const coll_type types[] = {COLL_FLOAT32, COLL_INT8, COLL_FLOAT64, COLL_BFLOAT16,
                                    COLL_UINT16};
  static const coll_op ops[] = {COLL_SUM, COLL_MAX, COLL_MIN};
  const spot *at = &spots[k % SPOTS];
  return (test_case){.coll = (case_coll)(k / SPOTS % CASE_COLLS),
                     .form = k % 5 ? CASE_STREAMED : CASE_STREAMED_GROUP,
                     .type = types[k % 5],
                     .op = k / SPOTS % CASE_COLLS < CASE_BROADCAST ? ops[k % 3] : COLL_SUM,
                     .root = (int)k % nranks,
                     .in_place = at->in == at->out && k % 7 % 2,
                     .seed = k,
                     .device = at->memory,
                     .in_device = {at->in, at->out}};
}

/* Goes through it. */
static int run_sweep(coll_comm *comm, int rank, int nranks, void *arg) {
  const sweep *s = arg;
  device_use(device_of_rank(rank));
  RANK_OK(coll_comm_use_gpu(comm));
  colli_cu_stream stream = device_stream();
  for (unsigned k = s->offset; k < 2 * SPOTS * CASE_COLLS; k += s->stride) {
    test_case cases[2];
    for (unsigned i = 0; i < 2; i++) {
      cases[i] = make_case(k, nranks);
      cases[i].count = s->sizes[i];
      cases[i].stream = stream;
    }
    RANK_CHECK(case_run(comm, rank, nranks, cases, 2) == 0);
  }
  return 0;
}

Test(direct, rounds) {
  const unsigned stride = (unsigned)extent(601, 127, 601);
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  device_use(0);
  EACH_MODE(mode, MODE_ORDERED, MODE_MEET)
    for (int nranks = 2; nranks <= 4; nranks++) {
      sweep s = {stride, (unsigned)(5 * nranks + 17 * mode) % stride, {1003, 20001}};
      cr_assert_eq(run_threads(nranks, NULL, run_sweep, &s), 0, "%d ranks, mode %d", nranks, mode);
    }
}

Test(direct, many_ranks) {
  const unsigned stride = (unsigned)extent(601, 157, 601);
  const int few = extent(3, 1, 3);
  static const int ranks[] = {9, MOST_DEVICES, MOST_DEVICES + 1};
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  device_use(0);
  EACH_MODE(mode, MODE_ORDERED, MODE_MEET)
    for (int i = mode % few; i < (mode == MODE_SPIN ? 2 : 3); i += few) {
      sweep s = {stride, (unsigned)(31 * i + 7 * mode) % stride, {7, 1003}};
      cr_assert_eq(run_threads(ranks[i], NULL, run_sweep, &s), 0, "%d ranks, mode %d", ranks[i],
                   mode);
    }
}

/* ---- all-reduce in segments -------------------------------------------------------------------
 */

/* Two rounds with slots of 1 MiB, of which the first at least is in segments. */
static int run_segments(coll_comm *comm, int rank, int nranks, void *arg) {
  const unsigned *which = arg;
  static const coll_type types[] = {COLL_FLOAT32, COLL_INT8, COLL_FLOAT16};
  static const coll_op ops[] = {COLL_SUM, COLL_MIN, COLL_AVG};
  device_use(device_of_rank(rank));
  RANK_OK(coll_comm_use_gpu(comm));
  test_case c = {.coll = CASE_ALLREDUCE,
                 .form = CASE_STREAMED,
                 .type = types[*which % 3],
                 .op = ops[*which % 3],
                 .in_place = (int)(*which / 3 % 2),
                 .seed = *which,
                 .device = *which / 6 % 2 ? &device_odd_memory : &device_memory,
                 .stream = device_stream(),
                 .in_device = {true, true}};
  c.count = ((3u << 19) + 12) / coll_type_bytes(c.type);
  return case_run(comm, rank, nranks, &c, 1);
}

Test(direct, segments) {
  const unsigned stride = (unsigned)extent(36, 18, 36);
  setenv("COLL_GPU_SLOT_BYTES", "1M", 1);
  device_use(0);
  for (unsigned k = 0; k < 4 * 3 * 12; k += stride) {
    const int mode = MODE_ORDERED + (int)(k / 12 % 4), nranks = 3 + (int)(k / 48);
    unsigned which = (k + k / 12 * 5) % 12;
    if (device_mode(mode))
      cr_assert_eq(run_threads(nranks, NULL, run_segments, &which), 0, "%d ranks, mode %d, %u",
                   nranks, mode, which);
  }
}
