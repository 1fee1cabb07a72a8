/*
 * test_registered.c: stream-ordered calls on registered memory, which ranks read where it is:
 * results of every collective, with the bits that they have otherwise, and buffers that the program
 * overwrites right after the call.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extent.h"
#include "libcoll/comm/comm.h"
#include "libcoll/gpu/kernels/meet_args.h"
#include "number.h"
#include "support_registered.h"
#include "tests/proc/support_ranks.h"

enum { MOST_RANKS = 9, PLACE = 1 << 19, LIMIT_S = 100 };

TestSuite(registered, .timeout = 240);

/* ---- every collective ------------------------------------------------------------------------ */

/* Which cases. */
typedef struct sweep {
  unsigned stride, offset;
  coll_id id; /* of processes */
} sweep;

/* The k-th case. The result of a broadcast must be at the same place on all ranks. */
static test_case make_case(unsigned k, int nranks) {
  static const coll_type types[] = {COLL_FLOAT32,  COLL_INT8,   COLL_FLOAT64,
                                    COLL_BFLOAT16, COLL_UINT16, COLL_INT32_LOC};
  static const coll_op ops[] = {COLL_SUM, COLL_MAX, COLL_MIN, COLL_AVG, COLL_LXOR};
  const case_coll coll = (case_coll)(k % CASE_COLLS);
  test_case c = {.coll = coll,
                 .form = k % 5 ? CASE_STREAMED : CASE_STREAMED_GROUP,
                 .type = types[k / 3 % 6],
                 .op = ops[k / 5 % 5],
                 .root = (int)k % nranks,
                 .in_place = coll == CASE_BROADCAST ? 0 : (int)(k / 7 % 3),
                 .seed = k,
                 .device = &arena_memory,
                 .in_device = {k % 11 != 1, k % 11 != 2}};
  const bool scatters = coll == CASE_REDUCE_SCATTER || coll == CASE_REDUCE_SCATTERV;
  if (c.in_place == 2 && !scatters)
    c.in_place = 1;
  if (c.in_place)
    c.in_device[0] = c.in_device[1] = true;
  if (coll < CASE_BROADCAST && !case_takes(c.type, c.op)) {
    c.op = COLL_MINLOC;
    c.type = COLL_INT32_LOC;
  }
  if ((coll == CASE_SCAN || coll == CASE_EXSCAN) && c.op == COLL_AVG)
    c.op = COLL_SUM;
  if (coll >= CASE_BROADCAST)
    c.op = COLL_SUM;
  return c;
}

/* Goes through it, with some places of buffers. */
static int run_sweep(coll_comm *comm, int rank, int nranks, const sweep *s) {
  static const size_t offsets[] = {0, 64, 4, 1, 16};
  arena places;
  device_use(device_of_rank(rank));
  RANK_OK(device_share(comm));
  RANK_CHECK(comm->direct);
  RANK_OK(arena_make(comm, &places, PLACE, s->offset % 2));
  colli_cu_stream stream = device_stream();
  for (unsigned k = s->offset; k < 30 * CASE_COLLS; k += s->stride) {
    test_case cases[3];
    for (unsigned i = 0; i < 3; i++) {
      cases[i] = make_case(k, nranks);
      cases[i].count = (const size_t[]){5003, 40, 3001}[i];
      cases[i].seed = 3 * k + i;
      cases[i].stream = stream;
    }
    arena_use(&places, offsets[k / 2 % 5]);
    RANK_CHECK(case_run(comm, rank, nranks, cases, 3) == 0);
  }
  RANK_OK(arena_free(comm, &places));
  return 0;
}

static int run_thread(coll_comm *comm, int rank, int nranks, void *arg) {
  return run_sweep(comm, rank, nranks, arg);
}

static int run_process(coll_comm *comm, int rank, int nranks, void *arg) {
  sweep *s = arg;
  coll_comm *mine = NULL;
  RANK_OK(device_create(comm, &s->id, NULL, &mine));
  RANK_CHECK(run_sweep(mine, rank, nranks, s) == 0);
  RANK_OK(coll_comm_destroy(&mine));
  return 0;
}

Test(registered, threads) {
  const unsigned stride = (unsigned)extent(1201, 67, 1201);
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  device_use(0);
  EACH_MODE(mode, MODE_ORDERED, MODE_MEET)
    for (int nranks = 2; nranks <= MOST_RANKS; nranks += nranks < 5 ? 1 : 4) {
      sweep s = {.stride = stride, .offset = (unsigned)(5 * nranks + 17 * mode) % stride};
      cr_assert_eq(run_threads(nranks, NULL, run_thread, &s), 0, "%d ranks, mode %d", nranks, mode);
    }
}

Test(registered, processes) {
  const unsigned stride = (unsigned)extent(601, 67, 601);
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  device_load();
  EACH_MODE(mode, MODE_ORDERED, MODE_SPIN) {
    const int nranks = 2 + mode % 3;
    sweep *s = shared_memory(sizeof(*s));
    *s = (sweep){.stride = stride, .offset = (unsigned)(7 * nranks + 13 * mode) % stride};
    cr_assert_eq(run_processes(nranks, NULL, run_process, s, LIMIT_S, NULL), 0, "%d ranks, mode %d",
                 nranks, mode);
  }
}

/* ---- the same bits --------------------------------------------------------------------------- */

enum { ELEMENTS = 3001 };

/* Reduces `in` into `out`; collective `what` of three. */
static coll_status reduce(int what, const void *in, void *out, coll_type type, coll_op op,
                          coll_comm *comm, void *stream) {
  return what == 0   ? coll_allreduce_on_stream(in, out, ELEMENTS, type, op, comm, stream)
         : what == 1 ? coll_reduce_on_stream(in, out, ELEMENTS, type, op, 1, comm, stream)
                     : coll_reduce_scatter_on_stream(in, out, ELEMENTS / 9, type, op, comm, stream);
}

/* The same inputs in registered memory and elsewhere. */
static int compare(coll_comm *comm, int rank, int nranks, void *arg) {
  static const coll_type types[] = {COLL_FLOAT16, COLL_BFLOAT16, COLL_FLOAT32, COLL_FLOAT64};
  static const coll_op ops[] = {COLL_SUM, COLL_AVG, COLL_PROD};
  arena places;
  (void)arg;
  (void)nranks;
  device_use(device_of_rank(rank));
  RANK_OK(device_share(comm));
  RANK_OK(arena_make(comm, &places, PLACE, false));
  colli_cu_stream stream = device_stream();
  char *here = arena_take(&places), *there = device_memory.take(PLACE);
  char *seen[2] = {malloc(PLACE), malloc(PLACE)};
  for (int k = 0; k < 3 * 12; k++) {
    const coll_type type = types[k / 3 % 4];
    const size_t bytes = ELEMENTS * coll_type_bytes(type);
    memset(seen[0], 0, PLACE);
    for (size_t i = 0; i < ELEMENTS; i++)
      number_input(seen[0] + i * coll_type_bytes(type), type, COLL_PROD, rank, i, (uint64_t)k);
    for (size_t i = 0; type == COLL_FLOAT32 && i < ELEMENTS; i++)
      ((float *)(void *)seen[0])[i] *= 1.1f + (float)rank + (float)i / 7;
    device_write(here, seen[0], PLACE);
    device_write(there, seen[0], PLACE);
    RANK_OK(reduce(k / 12, here, here + PLACE / 2, type, ops[k % 3], comm, stream));
    RANK_OK(reduce(k / 12, there, there + PLACE / 2, type, ops[k % 3], comm, stream));
    device_await(stream);
    RANK_OK(coll_comm_async_error(comm));
    device_read(seen[0], here + PLACE / 2, bytes);
    device_read(seen[1], there + PLACE / 2, bytes);
    RANK_CHECK(memcmp(seen[0], seen[1], bytes) == 0);
  }
  free(seen[0]);
  free(seen[1]);
  device_memory.give(there);
  RANK_OK(arena_free(comm, &places));
  return 0;
}

Test(registered, bits) {
  static const coll_determinism levels[] = {COLL_DETERMINISTIC_ON, COLL_DETERMINISTIC_ORDERED,
                                            COLL_DETERMINISTIC_OFF};
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  device_use(0);
  for (int k = 0; k < 4 * 3; k += extent(5, 1, 5)) {
    const int mode = MODE_ORDERED + k % 4, nranks = 2 + k % 5;
    coll_config config = COLL_CONFIG_INIT;
    config.deterministic = levels[k % 3];
    if (k % 3 == 1)
      config.accumulate = COLL_ACCUMULATE_FLOAT32;
    if (device_mode(mode))
      cr_assert_eq(run_threads(nranks, &config, compare, NULL), 0, "%d ranks, mode %d", nranks,
                   mode);
  }
}

/* ---- buffers after the call ------------------------------------------------------------------ */

enum { COUNT = 3500 };
typedef enum kind {
  ALLREDUCE,
  ALLREDUCE_IN_PLACE,
  ALLREDUCE_FROM, /* only the input is registered */
  REDUCE,
  REDUCE_SCATTER,
  BROADCAST,
  BROADCAST_IN_PLACE,
  ALLGATHER,
  ALLGATHER_IN_PLACE,
  ALLGATHER_FROM,
  ALLTOALL,
  KINDS
} kind;

/* A rank's buffers, and where results are kept. */
typedef struct buffers {
  arena places;
  int32_t *in, *out, *kept;
  int32_t *apart; /* a result that is not registered */
} buffers;

/* Elements of input and result on a rank. */
static size_t inputs_of(kind what, int nranks) {
  return what == REDUCE_SCATTER || what == ALLTOALL ? (size_t)nranks * COUNT : COUNT;
}

static size_t results_of(kind what, int rank, int nranks) {
  if (what == REDUCE)
    return rank == 1 ? COUNT : 0;
  return what >= ALLGATHER ? (size_t)nranks * COUNT : COUNT;
}

/* Where the result of a call goes, and where its input is. */
static int32_t *result_of(const buffers *b, kind what) {
  return what == ALLREDUCE_FROM || what == ALLGATHER_FROM ? b->apart
         : what == ALLREDUCE_IN_PLACE                     ? b->in
                                                          : b->out;
}

static int32_t *input_of(const buffers *b, kind what, int rank) {
  return what == ALLGATHER_IN_PLACE   ? b->out + (size_t)rank * COUNT
         : what == BROADCAST_IN_PLACE ? b->out
                                      : b->in;
}

static int32_t input(int turn, int rank, size_t i) {
  return 1 + turn * 1000003 + rank * 7919 + (int32_t)i;
}

static int32_t expected(kind what, int turn, int rank, int nranks, size_t i) {
  int32_t sum = 0;
  if (what >= ALLTOALL)
    return input(turn, (int)(i / COUNT), (size_t)rank * COUNT + i % COUNT);
  if (what >= ALLGATHER)
    return input(turn, (int)(i / COUNT), i % COUNT);
  if (what >= BROADCAST)
    return input(turn, 1, i);
  for (int r = 0; r < nranks; r++)
    sum += input(turn, r, what == REDUCE_SCATTER ? (size_t)rank * COUNT + i : i);
  return sum;
}

static coll_status call(const buffers *b, kind what, int rank, coll_comm *comm, void *stream) {
  const void *in = input_of(b, what, rank);
  void *out = result_of(b, what);
  switch (what) {
  case REDUCE:
    return coll_reduce_on_stream(in, out, COUNT, COLL_INT32, COLL_SUM, 1, comm, stream);
  case REDUCE_SCATTER:
    return coll_reduce_scatter_on_stream(in, out, COUNT, COLL_INT32, COLL_SUM, comm, stream);
  case BROADCAST:
  case BROADCAST_IN_PLACE:
    return coll_broadcast_on_stream(rank == 1 ? in : NULL, out, COUNT, COLL_INT32, 1, comm, stream);
  case ALLGATHER:
  case ALLGATHER_IN_PLACE:
  case ALLGATHER_FROM:
    return coll_allgather_on_stream(in, out, COUNT, COLL_INT32, comm, stream);
  case ALLTOALL:
    return coll_alltoall_on_stream(in, out, COUNT, COLL_INT32, comm, stream);
  default:
    return coll_allreduce_on_stream(in, out, COUNT, COLL_INT32, COLL_SUM, comm, stream);
  }
}

/* The call, and right after it what keeps the result and overwrites all buffers that others read.
 */
static int call_and_spoil(const buffers *b, kind what, int rank, int nranks, coll_comm *comm,
                          colli_cu_stream stream) {
  const colli_cuda *cuda = &comm->gpu->cuda;
  const size_t bytes = results_of(what, rank, nranks) * sizeof(int32_t);
  RANK_OK(call(b, what, rank, comm, stream));
  if (bytes)
    RANK_CHECK(cuda->memcpy_async((uint64_t)b->kept, (uint64_t)result_of(b, what), bytes, stream) ==
               COLLI_CUDA_SUCCESS);
  arena_spoil(comm, stream, b->in, inputs_of(what, nranks) * sizeof(int32_t));
  arena_spoil(comm, stream, b->out, (size_t)nranks * COUNT * sizeof(int32_t));
  return 0;
}

/* One collective, some times, of which the last ones in a graph. */
static int check_kind(const buffers *b, kind what, int rank, int nranks, coll_comm *comm,
                      colli_cu_stream stream) {
  device_graph graph;
  int32_t *seen = malloc(PLACE);
  for (int turn = 0; turn < 5; turn++) {
    const size_t results = results_of(what, rank, nranks);
    const size_t ninputs = inputs_of(what, nranks);
    for (size_t i = 0; i < ninputs; i++)
      seen[i] = input(turn, rank, i);
    if (!(what >= BROADCAST && what <= BROADCAST_IN_PLACE && rank != 1))
      device_write(input_of(b, what, rank), seen, ninputs * sizeof(*seen));
    if (turn == 2)
      device_capture(stream);
    if (turn <= 2)
      RANK_CHECK(call_and_spoil(b, what, rank, nranks, comm, stream) == 0);
    if (turn == 2)
      graph = device_capture_end(stream);
    if (turn >= 2)
      device_launch(&graph, stream);
    device_await(stream);
    RANK_OK(coll_comm_async_error(comm));
    device_read(seen, b->kept, results * sizeof(*seen));
    for (size_t i = 0; i < results; i++)
      if (seen[i] != expected(what, turn, rank, nranks, i)) {
        fprintf(stderr, "rank %d of %d: kind %d, turn %d: element %zu is wrong\n", rank, nranks,
                what, turn, i);
        return 1;
      }
  }
  device_graph_free(&graph);
  free(seen);
  return 0;
}

/* That the call is done in place: it uses the registration until its stream has ended it. */
static int check_use(const buffers *b, kind what, int rank, coll_comm *comm,
                     colli_cu_stream stream) {
  device_gate *gate = device_stop(stream);
  RANK_OK(call(b, what, rank, comm, stream));
  RANK_CHECK(b->places.registration->eager > 0);
  device_open(gate);
  device_await(stream);
  RANK_OK(coll_comm_async_error(comm));
  return 0;
}

static int run_kinds(coll_comm *comm, int rank, int nranks, void *arg) {
  const bool uses = *(const bool *)arg;
  buffers b;
  device_use(device_of_rank(rank));
  RANK_OK(device_share(comm));
  RANK_OK(arena_make(comm, &b.places, PLACE, false));
  b.in = arena_take(&b.places);
  b.out = arena_take(&b.places);
  b.kept = device_memory.take(PLACE);
  b.apart = device_memory.take(PLACE);
  colli_cu_stream stream = device_stream();
  for (int what = 0; what < KINDS; what++)
    RANK_CHECK((uses ? check_use(&b, (kind)what, rank, comm, stream)
                     : check_kind(&b, (kind)what, rank, nranks, comm, stream)) == 0);
  device_memory.give(b.kept);
  device_memory.give(b.apart);
  RANK_OK(arena_free(comm, &b.places));
  return 0;
}

Test(registered, overwritten) {
  static bool uses = false;
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  setenv("GPU_MODEL", "races", 1);
  device_use(0);
  EACH_MODE(mode, MODE_ORDERED, MODE_MEET)
    for (int nranks = 2; nranks <= 4; nranks += extent(3, 1, 3)) {
      cr_assert_eq(run_threads(nranks, NULL, run_kinds, &uses), 0, "%d ranks, mode %d", nranks,
                   mode);
      cr_assert_eq(device_take_races(), 0, "%d ranks, mode %d", nranks, mode);
    }
}

Test(registered, in_place) {
  static bool uses = true;
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  setenv("GPU_QUEUES", "128", 1);
  device_use(0);
  EACH_MODE(mode, MODE_ORDERED, MODE_MEET)
    cr_assert_eq(run_threads(3, NULL, run_kinds, &uses), 0, "mode %d", mode);
}

/* ---- ranks that go on without the others ----------------------------------------------------- */

/* Where a rank says so. */
static int32_t *gone_word(const coll_comm *comm) {
  return (int32_t *)(colli_gpu_peers_state(comm->direct->peers) +
                     offsetof(struct coll_gpu_meet_state, released));
}

/* Rank 1 pretends that it has gone on before the others have read its memory: they do not take the
 * result for one. Or it does not come, and the others say that they have gone on. */
static int go_on(coll_comm *comm, int rank, int nranks, void *arg) {
  const bool pretends = *(const bool *)arg;
  arena places;
  (void)nranks;
  device_may_leak();
  device_use(device_of_rank(rank));
  RANK_OK(device_share(comm));
  RANK_OK(arena_make(comm, &places, PLACE, false));
  int32_t *a = arena_take(&places);
  colli_cu_stream stream = device_stream();
  coll_status status = COLL_OK;
  RANK_CHECK(device_has(gone_word(comm), 1, 0));
  if (pretends && rank == 1)
    device_fill(gone_word(comm), 1, 1);
  RANK_OK(coll_barrier(comm));
  if (pretends || rank != 1)
    RANK_OK(coll_allreduce_on_stream(a, a, COUNT, COLL_INT32, COLL_SUM, comm, stream));
  if (!pretends && rank == 1)
    RANK_OK(coll_comm_abort(comm));
  device_await(stream);
  status = coll_comm_async_error(comm);
  if (pretends && status == COLL_OK) /* rank 1 has read in time; the others say what is wrong */
    status = coll_barrier(comm);
  RANK_CHECK(pretends
                 ? device_refused(comm, status, COLL_ERR_ABORTED, "has gone on without")
                 : status == COLL_ERR_ABORTED && (rank == 1 || device_has(gone_word(comm), 1, 1)));
  return 0;
}

Test(registered, gone) {
  static bool pretends[] = {true, false};
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  device_use(0);
  device_may_leak();
  EACH_MODE(mode, MODE_ORDERED, MODE_SPIN) {
    if (mode != MODE_SPIN) /* there the word also ends the rank's meets */
      cr_expect_eq(run_threads(3, NULL, go_on, &pretends[0]), 0, "mode %d", mode);
    cr_expect_eq(run_threads(3, NULL, go_on, &pretends[1]), 0, "mode %d", mode);
  }
}
