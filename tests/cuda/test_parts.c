/*
 * test_parts.c: long staged calls in streams are made in parts (stream/staged_parts.h): results at
 * the borders of parts, that the host works on one while the stream goes on to the next, and that
 * copies on the host are short, however long the call is.
 */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "extent.h"
#include "libcoll/comm/comm.h"
#include "libcoll/progress/enter.h"
#include "libcoll/stream/staged_parts.h"
#include "libcoll/stream/stream_batch.h"
#include "support_device.h"
#include "tests/proc/support_ranks.h"

TestSuite(parts, .timeout = 120);

enum { SLOT_BYTES = 65536, PART = SLOT_BYTES / COLLI_STAGED_DEPTH / 4, PARTS = 12 };

/* ---- borders --------------------------------------------------------------------------------- */

/* The value of an element of a rank's input. */
static int32_t value(int rank, size_t i) {
  return (int32_t)(i % 10007) + 3 * rank;
}

/* What a call should give this rank; `got` is what was there before. */
static int32_t expected(int coll, int rank, int nranks, size_t i, int32_t got) {
  int32_t sum = 0;
  const int end = coll == 3 ? rank + 1 : coll == 4 ? rank : nranks;
  for (int r = 0; r < end; r++)
    sum += value(r, i);
  if (coll == 2)
    return value(nranks - 1, i);
  return (coll == 1 && rank != 0) || (coll == 4 && rank == 0) ? got : sum;
}

static coll_status call(int coll, const int32_t *in, int32_t *out, size_t count, int nranks,
                        coll_comm *comm, colli_cu_stream s) {
  switch (coll) {
  case 0:
    return coll_allreduce_on_stream(in, out, count, COLL_INT32, COLL_SUM, comm, s);
  case 1:
    return coll_reduce_on_stream(in, out, count, COLL_INT32, COLL_SUM, 0, comm, s);
  case 2:
    return coll_broadcast_on_stream(in, out, count, COLL_INT32, nranks - 1, comm, s);
  case 3:
    return coll_scan_on_stream(in, out, count, COLL_INT32, COLL_SUM, comm, s);
  default:
    return coll_exscan_on_stream(in, out, count, COLL_INT32, COLL_SUM, comm, s);
  }
}

typedef struct place {
  bool from_host, to_host, in_place, captured;
} place;

/* One call, and twice if it is in a graph. */
static int run_call(coll_comm *comm, int rank, int nranks, int coll, size_t count, place at) {
  colli_cu_stream s = device_stream();
  const size_t bytes = (count + 1) * sizeof(int32_t);
  int32_t *in = at.from_host ? malloc(bytes) : device_memory.take(bytes);
  int32_t *out = at.in_place ? in : at.to_host ? malloc(bytes) : device_memory.take(bytes);
  const bool in_host = at.from_host, out_host = at.in_place ? in_host : at.to_host;
  int32_t *const seen_in = in_host ? in : malloc(bytes);
  int32_t *const seen = at.in_place ? seen_in : out_host ? out : malloc(bytes);
  device_graph graph;
  if (at.captured) {
    device_capture(s);
    RANK_OK(call(coll, in, out, count, nranks, comm, s));
    graph = device_capture_end(s);
  }
  for (int turn = 0; turn < 1 + at.captured; turn++) {
    for (size_t i = 0; i <= count; i++)
      seen[i] = -7;
    for (size_t i = 0; i < count; i++)
      seen_in[i] = value(rank, i);
    if (!in_host)
      device_write(in, seen_in, bytes);
    if (!out_host && out != in)
      device_write(out, seen, bytes);
    if (at.captured)
      device_launch(&graph, s);
    else
      RANK_OK(call(coll, in, out, count, nranks, comm, s));
    device_await(s);
    RANK_OK(coll_comm_async_error(comm));
    if (!out_host)
      device_read(seen, out, bytes);
    for (size_t i = 0; i < count; i++)
      RANK_CHECK(seen[i] == expected(coll, rank, nranks, i, at.in_place ? value(rank, i) : -7));
    RANK_CHECK(seen[count] == -7);
    RANK_OK(coll_barrier(comm));
  }
  if (at.captured)
    device_graph_free(&graph);
  device_stream_give(s);
  if (!in_host)
    free(seen_in);
  if (!out_host && out != in)
    free(seen);
  if (out != in)
    out_host ? free(out) : device_memory.give(out);
  in_host ? free(in) : device_memory.give(in);
  return 0;
}

static const size_t counts[] = {PART - 1,     2 * PART - 1, 2 * PART,       2 * PART + 1,
                                3 * PART + 5, 4 * PART,     PARTS *PART - 1};

static int run_borders(coll_comm *comm, int rank, int nranks, void *arg) {
  const unsigned stride = *(const unsigned *)arg;
  unsigned k = (unsigned)nranks;
  device_use(device_of_rank(rank));
  for (int coll = 0; coll < 5; coll++)
    for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++)
      for (unsigned bits = 0; bits < 16; bits++) {
        /* Ranks differ in where their buffers are. */
        const bool turn = rank % 2;
        const place at = {(bits & 1) ^ turn, bits >> 1 & 1, bits >> 2 & 1, bits >> 3 & 1};
        if (k++ % stride == 0)
          RANK_CHECK(run_call(comm, rank, nranks, coll, counts[c], at) == 0);
      }
  return 0;
}

static void set_slots(void) {
  char text[16];
  snprintf(text, sizeof(text), "%d", SLOT_BYTES);
  setenv("COLL_GPU_SLOT_BYTES", text, 1);
  device_mode(MODE_STAGED);
}

Test(parts, borders_threads) {
  unsigned stride = (unsigned)extent(7, 1, 29);
  set_slots();
  device_use(0);
  for (int nranks = 1; nranks <= 4; nranks++)
    cr_assert_eq(run_threads(nranks, NULL, run_borders, &stride), 0, "%d ranks", nranks);
}

/* ---- the host works while the stream goes on --------------------------------------------------
 */

/* What the operation of one rank knows and has seen. */
typedef struct watcher {
  coll_comm *comm;
  atomic_bool looked, ahead;
} watcher;

/* How many parts the stream has come to that have not ended. */
static int count_there(const coll_comm *comm) {
  int count = 0;
  const colli_stream_batch *batch;
  TAILQ_FOREACH(batch, &comm->streams->batches, link)
    count += batch->state == COLLI_BATCH_RUNNING || atomic_load(&batch->passage.reached);
  return count;
}

/* A sum. The first time, it does not end before the stream has come to all parts that may go
 * ahead: while it runs, the host does nothing else. */
static void add(const void *left, const void *right, void *result, size_t count, coll_type type,
                void *context) {
  watcher *w = context;
  (void)type;
  if (!atomic_exchange(&w->looked, true)) {
    const uint64_t until_ns = colli_now_ns() + 20 * COLLI_NS_PER_S;
    bool ahead = false;
    while (!ahead && colli_now_ns() < until_ns) {
      ahead = count_there(w->comm) == COLLI_STAGED_DEPTH;
      sched_yield();
    }
    atomic_store(&w->ahead, ahead);
  }
  for (size_t i = 0; i < count; i++)
    ((int32_t *)result)[i] = ((const int32_t *)left)[i] + ((const int32_t *)right)[i];
}

/* Blocks of pinned memory as long as a part. */
static int count_blocks(coll_comm *comm) {
  const colli_pinned *block;
  int count = 0;
  LIST_FOREACH(block, &comm->gpu->pool.used, link)
    count += (size_t)1 << block->class >= PART * sizeof(int32_t);
  for (int class = 0; class < COLLI_PINNED_CLASSES; class ++)
    LIST_FOREACH(block, &comm->gpu->pool.free[class], link)
      count += (size_t)1 << class >= PART * sizeof(int32_t);
  return count;
}

static int run_watched(coll_comm *comm, int rank, int nranks, void *arg) {
  watcher *w = (watcher *)arg + rank;
  const size_t count = (size_t)PARTS * PART;
  coll_op op;
  device_use(device_of_rank(rank));
  w->comm = comm;
  RANK_OK(coll_op_create("watched sum", add, w, 1, &op));
  colli_cu_stream s = device_stream();
  int32_t *in = device_vector(count, rank + 1), *out = device_vector(count, 0);
  RANK_OK(coll_allreduce_on_stream(in, out, count, COLL_INT32, op, comm, s));
  device_await(s);
  RANK_OK(coll_comm_async_error(comm));
  RANK_CHECK(device_has(out, count, nranks * (nranks + 1) / 2));
  RANK_CHECK(count_blocks(comm) <= 2 * COLLI_STAGED_DEPTH); /* each rank has a pool of its own */
  RANK_OK(coll_op_free(&op));
  device_memory.give(in);
  device_memory.give(out);
  return 0;
}

Test(parts, host_works_while_the_stream_goes_on) {
  watcher watchers[2] = {0};
  set_slots();
  device_use(0);
  cr_assert_eq(run_threads(2, NULL, run_watched, watchers), 0);
  int looked = 0;
  for (int rank = 0; rank < 2; rank++) {
    looked += watchers[rank].looked;
    cr_expect_eq(watchers[rank].ahead, watchers[rank].looked, "rank %d", rank);
  }
  cr_expect(looked > 0, "no rank has used the operation");
}

/* ---- graphs -----------------------------------------------------------------------------------
 */

static bool has_reached(const coll_comm *comm, int batches) {
  const colli_stream_batch *batch;
  TAILQ_FOREACH(batch, &comm->streams->batches, link)
    batches -= atomic_load(&batch->passage.reached);
  return batches == 0;
}

/* A graph is launched again before the host has seen that its stream had left the first part, but
 * after it has seen that of the second. The first begins first nevertheless: all ranks' parts begin
 * in one order. */
static int run_again(coll_comm *comm, int rank, int nranks, void *arg) {
  const size_t count = (size_t)2 * PART;
  (void)arg;
  (void)nranks;
  device_use(0);
  colli_cu_stream s = device_stream();
  int32_t *in = device_vector(count, rank + 1), *out = device_vector(count, 0);
  device_capture(s);
  RANK_OK(coll_allreduce_on_stream(in, out, count, COLL_INT32, COLL_SUM, comm, s));
  const device_graph graph = device_capture_end(s);
  RANK_CHECK(colli_call_enter(comm) == COLL_OK); /* so that nobody else moves them */
  device_launch(&graph, s);
  while (!has_reached(comm, 2))
    sched_yield();
  colli_stream_batch *first = TAILQ_FIRST(&comm->streams->batches);
  const colli_stream_batch *second = TAILQ_NEXT(first, link);
  first->state = COLLI_BATCH_ANSWERED;
  atomic_store(&first->passage.left, true);
  atomic_fetch_add(&comm->streams->in_graphs, 1); /* as if the stream had come twice */
  (void)colli_batches_move(comm);
  const bool waits = second->state == COLLI_BATCH_EXPECTED;
  (void)colli_batches_move(comm);
  const bool began = first->state != COLLI_BATCH_EXPECTED;
  colli_call_leave(comm);
  device_await(s);
  RANK_CHECK(waits && began);
  RANK_OK(coll_comm_async_error(comm));
  RANK_CHECK(device_has(out, count, 1));
  device_graph_free(&graph);
  device_memory.give(in);
  device_memory.give(out);
  return 0;
}

Test(parts, begin_in_the_order_in_which_streams_come) {
  set_slots();
  device_use(0);
  cr_assert_eq(run_threads(1, NULL, run_again, NULL), 0);
}
