/*
 * test_parts_blocks.c: long staged calls with equal blocks are made in parts, each of which takes
 * a piece of every block (stream/staged_parts.h): results at the borders of parts, wherever the
 * ranks' buffers are; and that copies on the host are short, however long the call is.
 */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extent.h"
#include "libcoll/comm/comm.h"
#include "libcoll/progress/enter.h"
#include "libcoll/stream/staged_parts.h"
#include "support_device.h"
#include "tests/proc/support_ranks.h"

TestSuite(parts_blocks, .timeout = 120);

enum { SLOT_BYTES = 65536, LEAST = 4096, PARTS = 6, MANY_PARTS = 40, UNTOUCHED = -7 };
enum { ALLGATHER, REDUCE_SCATTER, GATHER, SCATTER, ALLTOALL, COLLS };

/* Elements of a part's block: all its blocks are as long as a quarter of a slot, if these are not
 * too short for messages. */
static size_t part_of(int nranks) {
  const size_t bytes = SLOT_BYTES / COLLI_STAGED_DEPTH / (size_t)nranks;
  return (bytes > LEAST ? bytes : LEAST) / sizeof(int32_t);
}

/* ---- what a call should do ------------------------------------------------------------------- */

/* One rank's call. */
typedef struct shape {
  int coll, rank, nranks, root, turn;
  size_t count;
} shape;

static bool is_at_root(const shape *it) {
  return it->rank == it->root;
}

/* The blocks that a call reads and writes on this rank. */
static size_t blocks_in(const shape *it) {
  if (it->coll == SCATTER && !is_at_root(it))
    return 0;
  return it->coll == ALLGATHER || it->coll == GATHER ? 1 : (size_t)it->nranks;
}

static size_t blocks_out(const shape *it) {
  if (it->coll == GATHER && !is_at_root(it))
    return 0;
  return it->coll == REDUCE_SCATTER || it->coll == SCATTER ? 1 : (size_t)it->nranks;
}

/* An element of a block of a rank's input. */
static int32_t value(const shape *it, int rank, size_t block, size_t i) {
  return (int32_t)(i % 10007) + 3 * rank + 20011 * (int32_t)block + 101 * it->turn;
}

/* An element of a block of this rank's result. */
static int32_t expected(const shape *it, size_t block, size_t i) {
  int32_t sum = 0;
  switch (it->coll) {
  case REDUCE_SCATTER:
    for (int r = 0; r < it->nranks; r++)
      sum += value(it, r, (size_t)it->rank, i);
    return sum;
  case SCATTER:
    return value(it, it->root, (size_t)it->rank, i);
  case ALLTOALL:
    return value(it, (int)block, (size_t)it->rank, i);
  default:
    return value(it, (int)block, 0, i);
  }
}

static coll_status call(const shape *it, const int32_t *in, int32_t *out, coll_comm *comm,
                        colli_cu_stream s) {
  switch (it->coll) {
  case ALLGATHER:
    return coll_allgather_on_stream(in, out, it->count, COLL_INT32, comm, s);
  case REDUCE_SCATTER:
    return coll_reduce_scatter_on_stream(in, out, it->count, COLL_INT32, COLL_SUM, comm, s);
  case GATHER:
    return coll_gather_on_stream(in, out, it->count, COLL_INT32, it->root, comm, s);
  case SCATTER:
    return coll_scatter_on_stream(in, out, it->count, COLL_INT32, it->root, comm, s);
  default:
    return coll_alltoall_on_stream(in, out, it->count, COLL_INT32, comm, s);
  }
}

/* ---- a call ---------------------------------------------------------------------------------- */

/* Where a rank's buffers are. */
typedef struct place {
  bool from_host, to_host, in_place, at_start, captured;
} place;

/* A buffer, with one element more than the call may touch; what it holds, and what it should. */
typedef struct buffer {
  bool host;
  int32_t *at, *seen, *want;
  size_t count;
} buffer;

static void take(buffer *b, bool host, size_t count) {
  b->host = host;
  b->count = count + 1;
  b->at =
      host ? malloc(b->count * sizeof(int32_t)) : device_memory.take(b->count * sizeof(int32_t));
  b->seen = host ? b->at : malloc(b->count * sizeof(int32_t));
  b->want = malloc(b->count * sizeof(int32_t));
}

static void give(const buffer *b) {
  if (!b->host)
    device_memory.give(b->at);
  free(b->seen);
  free(b->want);
}

/* The buffers of a call: `out` is `in` if it works in place, and then one begins later. */
typedef struct buffers {
  buffer memory[2];
  buffer *in, *out;
  size_t in_first, out_first;
} buffers;

static void take_buffers(const shape *it, const place *at, buffers *b) {
  const size_t reads = blocks_in(it) * it->count, writes = blocks_out(it) * it->count;
  const size_t own = (size_t)it->rank * it->count;
  memset(b, 0, sizeof(*b));
  b->in = b->out = &b->memory[0];
  if (!at->in_place || reads == 0 || writes == 0) {
    take(b->in, at->from_host, reads);
    b->out = &b->memory[1];
    take(b->out, at->to_host, writes);
    return;
  }
  take(b->in, at->from_host, reads > writes ? reads : writes);
  b->in_first = it->coll == ALLGATHER || it->coll == GATHER ? own : 0;
  if (it->coll == SCATTER || (it->coll == REDUCE_SCATTER && !at->at_start))
    b->out_first = own;
}

/* Writes the input, and what should be there afterwards. */
static void fill(const shape *it, buffers *b) {
  for (int k = 0; k < 2; k++)
    for (size_t i = 0; i < b->memory[k].count; i++)
      b->memory[k].seen[i] = UNTOUCHED;
  for (size_t block = 0; block < blocks_in(it); block++)
    for (size_t i = 0; i < it->count; i++)
      b->in->seen[b->in_first + block * it->count + i] = value(it, it->rank, block, i);
  for (int k = 0; k < 2; k++) {
    const buffer *one = &b->memory[k];
    if (one->count)
      memcpy(one->want, one->seen, one->count * sizeof(int32_t));
    if (one->count && !one->host)
      device_write(one->at, one->seen, one->count * sizeof(int32_t));
  }
  for (size_t block = 0; block < blocks_out(it); block++)
    for (size_t i = 0; i < it->count; i++)
      b->out->want[b->out_first + block * it->count + i] = expected(it, block, i);
}

static bool is_right(const buffers *b) {
  for (int k = 0; k < 2; k++) {
    const buffer *one = &b->memory[k];
    if (one->count && !one->host)
      device_read(one->seen, one->at, one->count * sizeof(int32_t));
    if (one->count && memcmp(one->seen, one->want, one->count * sizeof(int32_t)) != 0)
      return false;
  }
  return true;
}

/* A call, twice; from a graph or not. */
static int run_call(coll_comm *comm, shape it, place at) {
  const int rank = it.rank;
  buffers b;
  device_graph graph;
  colli_cu_stream s = device_stream();
  take_buffers(&it, &at, &b);
  const int32_t *in = blocks_in(&it) || !at.in_place ? b.in->at + b.in_first : NULL;
  int32_t *out = blocks_out(&it) || !at.in_place ? b.out->at + b.out_first : NULL;
  if (at.captured) {
    device_capture(s);
    RANK_OK(call(&it, in, out, comm, s));
    graph = device_capture_end(s);
  }
  for (; it.turn < 2; it.turn++) {
    fill(&it, &b);
    if (at.captured)
      device_launch(&graph, s);
    else
      RANK_OK(call(&it, in, out, comm, s));
    device_await(s);
    RANK_OK(coll_comm_async_error(comm));
    RANK_CHECK(is_right(&b));
  }
  if (at.captured)
    device_graph_free(&graph);
  device_stream_give(s);
  for (int k = 0; k < 2; k++)
    if (b.memory[k].count)
      give(&b.memory[k]);
  return 0;
}

/* ---- borders --------------------------------------------------------------------------------- */

/* Whether a call with blocks of so many elements has as many parts as it should. */
static bool has_parts(const coll_comm *comm, size_t count, size_t parts) {
  const colli_call it = {.coll = COLLI_ALLGATHER, .type = COLL_INT32, .count = count};
  return colli_staged_parts(comm, &it) == parts;
}

/* Calls of one length after the other, around the borders of parts. Ranks differ in where their
 * buffers are, and in whether the call is in a graph. */
static int run_borders(coll_comm *comm, int rank, int nranks, void *arg) {
  const unsigned stride = *(const unsigned *)arg;
  const size_t part = part_of(nranks);
  const size_t counts[] = {part - 1,     2 * part - 1, 2 * part,        2 * part + 1,
                           3 * part + 5, 4 * part,     PARTS * part - 1};
  unsigned k = (unsigned)nranks;
  device_use(device_of_rank(rank));
  for (int coll = 0; coll < COLLS; coll++)
    for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++)
      for (unsigned bits = 0; bits < 32; bits++) {
        const bool odd = rank % 2;
        const place at = {(bits & 1) ^ odd, bits >> 1 & 1, bits >> 2 & 1, bits >> 4 & 1,
                          (bits >> 3 & 1) ^ (odd && bits >> 4)};
        const shape it = {coll, rank, nranks, (int)(bits % (unsigned)nranks), 0, counts[c]};
        if (k++ % stride == 0)
          RANK_CHECK(run_call(comm, it, at) == 0);
      }
  RANK_CHECK(has_parts(comm, 2 * part - 1, 1) && has_parts(comm, 2 * part, 2));
  RANK_CHECK(has_parts(comm, 2 * part + 1, 3) && has_parts(comm, PARTS * part - 1, PARTS));
  return 0;
}

static void set_slots(int bytes) {
  char text[16];
  snprintf(text, sizeof(text), "%d", bytes);
  setenv("COLL_GPU_SLOT_BYTES", text, 1);
  device_mode(MODE_STAGED);
}

Test(parts_blocks, borders) {
  unsigned stride = (unsigned)extent(13, 1, 61);
  set_slots(SLOT_BYTES);
  device_use(0);
  for (int nranks = 1; nranks <= 4; nranks++)
    cr_assert_eq(run_threads(nranks, NULL, run_borders, &stride), 0, "%d ranks", nranks);
}

/* Blocks that are too far apart for one copy: the device says so. */
Test(parts_blocks, borders_far_apart) {
  DEVICE_NEEDS_FAKE("GPU_PITCH");
  unsigned stride = (unsigned)extent(31, 7, 121);
  set_slots(SLOT_BYTES);
  setenv("GPU_PITCH", "30000", 1);
  device_use(0);
  cr_assert_eq(run_threads(3, NULL, run_borders, &stride), 0);
}

/* So many ranks that their blocks would be too short. */
Test(parts_blocks, many_ranks) {
  unsigned stride = (unsigned)extent(61, 13, 199);
  set_slots(SLOT_BYTES);
  device_use(0);
  cr_assert_eq(run_threads(6, NULL, run_borders, &stride), 0);
}

/* ---- ranks that were told different lengths -------------------------------------------------- */

static int run_unequal(coll_comm *comm, int rank, int nranks, void *arg) {
  unsigned stride = 61;
  coll_comm *own;
  set_slots(rank == 1 ? SLOT_BYTES : SLOT_BYTES << (1 + rank));
  RANK_OK(device_create(comm, arg, NULL, &own));
  RANK_CHECK(run_borders(own, rank, nranks, &stride) == 0);
  RANK_OK(coll_comm_destroy(&own));
  return 0;
}

Test(parts_blocks, parts_are_those_of_the_shortest_slot) {
  coll_id *id = shared_memory(sizeof(*id));
  device_load();
  cr_assert_eq(run_processes(3, NULL, run_unequal, id, 100, NULL), 0);
}

/* ---- ranks that do not agree ----------------------------------------------------------------- */

/* One rank's call is a part longer, so that the others' parts are also the first of its own. */
static int run_mismatch(coll_comm *comm, int rank, int nranks, void *arg) {
  const bool blocks = *(const bool *)arg;
  const size_t part = blocks ? part_of(nranks) : part_of(1), count = (size_t)(rank ? 2 : 3) * part;
  device_use(device_of_rank(rank));
  colli_cu_stream s = device_stream();
  int32_t *in = device_vector(count, 1), *out = device_vector(count * (size_t)nranks, 0);
  if (blocks)
    RANK_OK(coll_allgather_on_stream(in, out, count, COLL_INT32, comm, s));
  else
    RANK_OK(coll_allreduce_on_stream(in, out, count, COLL_INT32, COLL_SUM, comm, s));
  device_await(s);
  RANK_CHECK(device_refused(comm, coll_comm_async_error(comm), COLL_ERR_MISMATCH, "checksum"));
  device_memory.give(in);
  device_memory.give(out);
  return 0;
}

Test(parts_blocks, different_counts_are_found) {
  set_slots(SLOT_BYTES);
  device_use(0);
  for (int blocks = 0; blocks < 2; blocks++)
    cr_assert_eq(run_threads(3, NULL, run_mismatch, &(bool){blocks}), 0);
}

static bool has_open(coll_comm *comm) {
  if (colli_call_enter(comm) != COLL_OK)
    return false;
  const bool open = comm->streams->open > 0;
  colli_call_leave(comm);
  return open;
}

/* A request that a part has used is used by a call of the same length, on one rank: others have no
 * such request left. The call is no part any more. */
static int run_used_again(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_request *taken[4 * COLLI_STAGED_DEPTH], *request;
  const size_t part = part_of(1), count = 3 * part;
  (void)arg;
  device_use(device_of_rank(rank));
  colli_cu_stream s = device_stream();
  int32_t *at = device_vector(count, rank + 1);
  RANK_OK(coll_broadcast_on_stream(at, at, count, COLL_INT32, nranks - 1, comm, s));
  device_await(s);
  while (has_open(comm)) /* then its requests are free */
    sched_yield();
  for (size_t i = 0; rank > 0 && i < sizeof(taken) / sizeof(*taken); i++)
    RANK_OK(coll_broadcast_init(at, at, 1, COLL_INT32, 0, comm, &taken[i]));
  RANK_OK(coll_ibroadcast(at, at, part, COLL_INT32, nranks - 1, comm, &request));
  RANK_OK(coll_wait(&request, -1));
  RANK_CHECK(device_has(at, count, nranks));
  for (size_t i = 0; rank > 0 && i < sizeof(taken) / sizeof(*taken); i++)
    RANK_OK(coll_request_free(&taken[i]));
  device_memory.give(at);
  return 0;
}

Test(parts_blocks, requests_of_parts_are_used_again) {
  set_slots(SLOT_BYTES);
  device_use(0);
  cr_assert_eq(run_threads(2, NULL, run_used_again, NULL), 0);
}

/* ---- copies on the host ---------------------------------------------------------------------- */

/* Whether no copy was longer than a part, and there were no more of a length than the parts of two
 * calls have under way: the host may not have seen yet that the stream has left the last one. */
static bool are_few_and_short(const coll_comm *comm) {
  int count[COLLI_PINNED_CLASSES] = {0};
  const colli_pinned *block;
  LIST_FOREACH(block, &comm->gpu->pool.used, link)
    count[block->class]++;
  for (int class = 0; class < COLLI_PINNED_CLASSES; class ++) {
    LIST_FOREACH(block, &comm->gpu->pool.free[class], link)
      count[class]++;
    const size_t bytes = (size_t)1 << class;
    if (count[class] > (bytes > SLOT_BYTES / COLLI_STAGED_DEPTH ? 0 : 4 * COLLI_STAGED_DEPTH) &&
        bytes > COLLI_PINNED_PAGE) /* of those, each part has one for a word */
      return false;
  }
  return true;
}

static int run_long(coll_comm *comm, int rank, int nranks, void *arg) {
  const size_t count = MANY_PARTS * part_of(nranks);
  (void)arg;
  device_use(device_of_rank(rank));
  for (int coll = 0; coll < COLLS; coll++)
    for (unsigned bits = 0; bits < 8; bits++) {
      const place at = {bits & 1, bits >> 1 & 1, bits >> 2 & 1, false, false};
      RANK_CHECK(run_call(comm, (shape){coll, rank, nranks, 0, 0, count}, at) == 0);
      RANK_CHECK(are_few_and_short(comm));
    }
  return 0;
}

Test(parts_blocks, copies_are_short) {
  set_slots(SLOT_BYTES);
  device_use(0);
  cr_assert_eq(run_threads(3, NULL, run_long, NULL), 0);
}
