/*
 * test_calls.c: what stream-ordered calls accept and refuse: groups, streams and threads of all
 * kinds, arrays and operations that end before the stream comes, windows; processes without a
 * driver, and with one that is loaded late or lacks functions.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "libcoll/comm/comm.h"
#include "support_device.h"
#include "tests/proc/support_ranks.h"

enum { COUNT = 30001, RANKS = 3 };

TestSuite(calls, .timeout = 120);

/* All-reduces `vector` on a stream, and checks that each rank had `value`. */
static int works(coll_comm *comm, int rank, int nranks, int32_t *vector, int32_t value,
                 void *stream) {
  RANK_OK(coll_allreduce_on_stream(vector, vector, COUNT, COLL_INT32, COLL_SUM, comm, stream));
  device_await(stream);
  RANK_OK(coll_comm_async_error(comm));
  RANK_CHECK(device_has(vector, COUNT, nranks * value));
  return 0;
}

/* ---- groups -----------------------------------------------------------------------------------
 */

/* Pairwise exchange: all sends and receives of a group begin together, so none waits for another.
 */
static int exchange(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  coll_message got[RANKS], ring;
  device_use(device_of_rank(rank));
  RANK_OK(device_share(comm));
  colli_cu_stream stream = device_stream();
  int32_t *out[RANKS], *in[RANKS];
  RANK_OK(coll_group_start(comm));
  for (int r = 0; r < nranks; r++) {
    out[r] = device_vector(COUNT, 100 * rank + r);
    in[r] = device_vector(COUNT, -1);
    RANK_OK(coll_send_on_stream(out[r], COUNT, COLL_INT32, r, 7, comm, stream));
    RANK_OK(coll_recv_on_stream(in[r], COUNT, COLL_INT32, r, COLL_ANY_TAG, &got[r], comm, stream));
  }
  RANK_OK(coll_group_end(comm));
  /* One after the other, in a ring. */
  RANK_OK(coll_sendrecv_on_stream(in[0], 5, (rank + 1) % nranks, 1, out[0], 9,
                                  (rank + nranks - 1) % nranks, 1, COLL_INT32, &ring, comm,
                                  stream));
  device_await(stream);
  RANK_OK(coll_comm_async_error(comm));
  for (int r = 0; r < nranks; r++) {
    RANK_CHECK(device_has(in[r], COUNT, 100 * r + rank));
    RANK_CHECK(got[r].source == r && got[r].tag == 7 && got[r].count == COUNT);
  }
  RANK_CHECK(ring.count == 5 && device_has(out[0], 5, (rank + nranks - 1) % nranks) &&
             device_has(out[0] + 5, 4, 100 * rank));
  return 0;
}

/* Groups that are refused leave nothing behind. */
static int refuse_groups(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  device_use(device_of_rank(rank));
  RANK_OK(device_share(comm));
  colli_cu_stream stream = device_stream(), other = device_stream();
  int32_t *a = device_vector(COUNT, 1), *b = device_vector(COUNT, 2);
  coll_request *request = NULL;
  for (int i = 0; i < 2; i++) {
    /* two streams */
    RANK_OK(coll_group_start(comm));
    RANK_OK(coll_allreduce_on_stream(a, a, COUNT, COLL_INT32, COLL_SUM, comm, stream));
    RANK_CHECK(device_refused(
        comm, coll_allreduce_on_stream(b, b, COUNT, COLL_INT32, COLL_SUM, comm, other),
        COLL_ERR_INVALID_USAGE, "two streams"));
    RANK_CHECK(coll_group_end(comm) == COLL_ERR_INVALID_USAGE);
    /* with and without a stream */
    RANK_OK(coll_group_start(comm));
    if (i == 0)
      RANK_OK(coll_allreduce(b, b, COUNT, COLL_INT32, COLL_SUM, comm));
    RANK_OK(coll_allreduce_on_stream(a, a, COUNT, COLL_INT32, COLL_SUM, comm, stream));
    if (i == 1)
      RANK_OK(coll_allreduce(b, b, COUNT, COLL_INT32, COLL_SUM, comm));
    RANK_CHECK(device_refused(comm, coll_group_end(comm), COLL_ERR_INVALID_USAGE, "two groups"));
    /* a request for it */
    RANK_OK(coll_group_start(comm));
    RANK_OK(coll_allreduce_on_stream(a, a, COUNT, COLL_INT32, COLL_SUM, comm, stream));
    RANK_CHECK(device_refused(comm, coll_group_iend(comm, &request), COLL_ERR_INVALID_USAGE,
                              "coll_group_end()"));
    RANK_CHECK(!request);
    /* one wrong call among right ones */
    RANK_OK(coll_group_start(comm));
    RANK_OK(coll_allreduce_on_stream(a, a, COUNT, COLL_INT32, COLL_SUM, comm, stream));
    RANK_CHECK(coll_broadcast_on_stream(a, a, COUNT, COLL_INT32, 99, comm, stream) ==
               COLL_ERR_INVALID_ARGUMENT);
    RANK_CHECK(coll_group_end(comm) == COLL_ERR_INVALID_ARGUMENT);
  }
  device_await(stream);
  RANK_CHECK(device_has(a, COUNT, 1) && device_has(b, COUNT, 2));
  RANK_CHECK(works(comm, rank, nranks, a, 1, stream) == 0);
  /* a group that is never closed */
  RANK_OK(coll_group_start(comm));
  RANK_OK(coll_allreduce_on_stream(a, a, COUNT, COLL_INT32, COLL_SUM, comm, stream));
  return 0;
}

Test(calls, groups) {
  device_use(0);
  EACH_MODE(i, 0, MODE_MEET) {
    cr_expect_eq(run_threads(RANKS, NULL, exchange, NULL), 0, "%s", device_mode(i));
    cr_expect_eq(run_threads(RANKS, NULL, refuse_groups, NULL), 0, "%s", device_mode(i));
  }
}

/* A message that is shorter than the receive leaves the rest as it was. */
static int receive_short(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  const int next = (rank + 1) % nranks, before = (rank + nranks - 1) % nranks;
  coll_message got;
  coll_matched *matched;
  coll_request *request;
  device_use(device_of_rank(rank));
  int32_t *out = device_vector(5, rank), *in[5];
  for (int i = 0; i < 5; i++) {
    in[i] = device_vector(COUNT, -1);
    RANK_OK(coll_isend(out, 5, COLL_INT32, next, i, comm, &request));
    RANK_OK(coll_wait(&request, -1));
  }
  RANK_OK(coll_recv(in[0], COUNT, COLL_INT32, before, 0, &got, comm));
  RANK_CHECK(got.count == 5);
  RANK_OK(coll_irecv(in[1], COUNT, COLL_INT32, before, 1, &got, comm, &request));
  RANK_OK(coll_wait(&request, -1));
  RANK_OK(coll_recv_init(in[2], COUNT, COLL_INT32, before, 2, &got, comm, &request));
  RANK_OK(coll_start(request));
  RANK_OK(coll_wait(&request, -1));
  RANK_OK(coll_request_free(&request));
  RANK_OK(coll_probe(comm, before, 3, &got, &matched, -1));
  RANK_OK(coll_mrecv(in[3], COUNT, COLL_INT32, &matched));
  RANK_OK(coll_probe(comm, before, 4, &got, &matched, -1));
  RANK_OK(coll_imrecv(in[4], COUNT, COLL_INT32, &matched, &request));
  RANK_OK(coll_wait(&request, -1));
  for (int i = 0; i < 5; i++)
    RANK_CHECK(device_has(in[i], 5, before) && device_has(in[i] + 5, COUNT - 5, -1));
  return 0;
}

Test(calls, short_messages) {
  device_use(0);
  cr_expect_eq(run_threads(RANKS, NULL, receive_short, NULL), 0);
}

/* ---- streams and threads ----------------------------------------------------------------------
 */

/* The default stream, what is no stream, and the stream of another device, which calls in GPU
 * memory refuse. Ranks that wait for the host must not have one stream: with ONE_GPU they would
 * wait for each other. */
static int use_streams(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  int bad[64] = {0};
  const colli_cuda *cuda = device_use(1 - device_of_rank(rank));
  colli_cu_stream elsewhere = device_stream();
  int32_t *far = device_vector(COUNT, 1);
  device_use(device_of_rank(rank));
  RANK_OK(device_share(comm));
  int32_t *a = device_vector(COUNT, 1);
  colli_cu_context before, after;
  cuda->ctx_get_current(&before);
  RANK_CHECK(device_refused(comm,
                            coll_allreduce_on_stream(a, a, COUNT, COLL_INT32, COLL_SUM, comm, bad),
                            COLL_ERR_INVALID_ARGUMENT, "no stream"));
  RANK_CHECK(works(comm, rank, nranks, a, 1, NULL) == 0);
  const coll_status status =
      coll_allreduce_on_stream(far, far, COUNT, COLL_INT32, COLL_SUM, comm, elsewhere);
  cuda->ctx_get_current(&after);
  RANK_CHECK(before == after);
  device_use(1 - device_of_rank(rank));
  device_await(elsewhere);
  if (comm->direct)
    RANK_CHECK(device_refused(comm, status, COLL_ERR_INVALID_USAGE, "uses GPU"));
  RANK_CHECK(device_has(far, COUNT, comm->direct ? 1 : nranks));
  RANK_OK(coll_comm_async_error(comm));
  device_use(device_of_rank(rank));
  return works(comm, rank, nranks, a, nranks, NULL);
}

/* A thread without a context has no default stream; streams it may use. */
static int use_no_context(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  const colli_cuda *cuda = device_use(device_of_rank(rank));
  RANK_OK(device_share(comm));
  colli_cu_context context, now;
  colli_cu_stream stream = device_stream();
  int32_t *a = device_vector(COUNT, 1), *b = device_vector(COUNT, 1);
  cuda->ctx_get_current(&context);
  cuda->ctx_set_current(NULL);
  RANK_CHECK(device_refused(comm,
                            coll_allreduce_on_stream(a, a, COUNT, COLL_INT32, COLL_SUM, comm, NULL),
                            COLL_ERR_INVALID_ARGUMENT, "cudaSetDevice"));
  RANK_OK(coll_allreduce_on_stream(a, a, COUNT, COLL_INT32, COLL_SUM, comm, stream));
  RANK_OK(coll_allreduce(b, b, COUNT, COLL_INT32, COLL_SUM, comm));
  cuda->ctx_get_current(&now);
  RANK_CHECK(!now);
  cuda->ctx_set_current(context);
  device_await(stream);
  RANK_OK(coll_comm_async_error(comm));
  RANK_CHECK(device_has(a, COUNT, nranks) && device_has(b, COUNT, nranks));
  cuda->ctx_set_current(NULL); /* to destroy the communicator */
  return 0;
}

Test(calls, streams) {
  DEVICE_NEEDS_TWO;
  device_use(0);
  EACH_MODE(i, 0, MODE_MEET)
    if (i != MODE_ONE_GPU)
      cr_expect_eq(run_threads(2, NULL, use_streams, NULL), 0, "%s", device_mode(i));
}

/* Copies that are too long to be kept go back at once, whichever thread ends the call. */
static int use_long(coll_comm *comm, int rank) {
  const size_t bytes = ((size_t)64 << 20) + 1;
  colli_cu_stream stream = device_stream();
  uint8_t *a = device_memory.take(bytes);
  uint8_t last = 7;
  device_write(a + bytes - 1, &last, 1);
  RANK_OK(coll_allreduce_on_stream(a, a, bytes, COLL_UINT8, COLL_SUM, comm, stream));
  device_await(stream);
  RANK_OK(coll_comm_async_error(comm));
  last = 0;
  device_read(&last, a + bytes - 1, 1);
  RANK_CHECK(last == 7);
  device_memory.give(a);
  return 0;
}

Test(calls, long_copies) {
  device_use(0);
  coll_comm *comm;
  const uint64_t before = device_held();
  cr_assert_eq(coll_comm_create_local(&comm, 1, NULL), COLL_OK);
  cr_expect_eq(use_long(comm, 0), 0);
  cr_expect_eq(coll_comm_destroy(&comm), COLL_OK);
  if (!device_is_real())
    cr_expect_eq(device_held(), before + 1); /* the stream */
}

/* Whoever destroys a communicator need not have a context for its memory to go back. */
Test(calls, no_context) {
  device_use(0);
  coll_comm *comm;
  EACH_MODE(i, 0, MODE_MEET)
    cr_assert_eq(run_threads(2, NULL, use_no_context, NULL), 0, "%s", device_mode(i));
  const uint64_t before = device_held();
  for (int i = 0; i < 3; i++) {
    cr_assert_eq(coll_comm_create_local(&comm, 1, NULL), COLL_OK);
    cr_expect_eq(use_no_context(comm, 0, 1, NULL), 0);
    cr_expect_eq(coll_comm_destroy(&comm), COLL_OK);
  }
  /* The test's own: each time a stream, two vectors and a context. */
  if (!device_is_real())
    cr_expect_eq(device_held(), before + 12, "%llu", (unsigned long long)(device_held() - before));
}

/* ---- what may end before the stream comes ------------------------------------------------------
 */

/* Counts, displacements and types are the caller's again when the call returns. */
static int overwrite_arrays(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  device_use(device_of_rank(rank));
  RANK_OK(device_share(comm));
  colli_cu_stream stream = device_stream();
  size_t counts[RANKS], displs[RANKS], bytes[RANKS];
  coll_type types[RANKS], others[RANKS];
  int32_t *a = device_vector(COUNT, rank + 1), *out = device_vector(COUNT, -1);
  int32_t *in = device_vector(RANKS, 10 * rank), *w = device_vector(RANKS, -1);
  for (int r = 0; r < nranks; r++) {
    counts[r] = (size_t)r + 1;
    displs[r] = 10 * (size_t)(nranks - r);
    bytes[r] = 4 * (size_t)r;
    types[r] = COLL_INT32;
    others[r] = COLL_FLOAT32;
    device_fill(in + r, 1, 10 * rank + r);
  }
  size_t ones[RANKS] = {1, 1, 1};
  device_gate *gate = device_hold(stream);
  RANK_OK(coll_allgatherv_on_stream(a, out, counts, displs, COLL_INT32, comm, stream));
  RANK_OK(coll_alltoallw_on_stream(in, ones, bytes, types, w, ones, bytes, others, comm, stream));
  memset(counts, 0x55, sizeof(counts));
  memset(displs, 0x55, sizeof(displs));
  memset(bytes, 0x55, sizeof(bytes));
  memset(ones, 0x55, sizeof(ones));
  memset(types, 0x55, sizeof(types));
  memset(others, 0x55, sizeof(others));
  device_open(gate);
  device_await(stream);
  RANK_OK(coll_comm_async_error(comm));
  for (int r = 0; r < nranks; r++) {
    const int32_t *block = out + 10 * (nranks - r);
    RANK_CHECK(device_has(block, (size_t)r + 1, r + 1) &&
               device_has(block + r + 1, 9 - (size_t)r, -1));
    RANK_CHECK(device_has(w + r, 1, 10 * r + rank));
  }
  return 0;
}

/* The larger of two numbers; counts how often it is called. */
static void take_larger(const void *left, const void *right, void *result, size_t count,
                        coll_type type, void *context) {
  (void)type;
  const int32_t *a = left, *b = right;
  for (size_t i = 0; i < count; i++)
    ((int32_t *)result)[i] = a[i] > b[i] ? a[i] : b[i];
  atomic_fetch_add((atomic_int *)context, 1);
}

/* An operation may be released when the call has returned. */
static int release_operation(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_op op;
  device_use(device_of_rank(rank));
  RANK_OK(device_share(comm));
  colli_cu_stream stream = device_stream();
  int32_t *a = device_vector(COUNT, rank);
  device_gate *gate = device_hold(stream);
  RANK_CHECK(coll_op_create("larger", take_larger, arg, 1, &op) == COLL_OK);
  RANK_OK(coll_allreduce_on_stream(a, a, COUNT, COLL_INT32, op, comm, stream));
  RANK_CHECK(coll_op_free(&op) == COLL_OK);
  device_open(gate);
  device_await(stream);
  RANK_OK(coll_comm_async_error(comm));
  RANK_CHECK(device_has(a, COUNT, nranks - 1));
  return 0;
}

Test(calls, arguments) {
  device_use(0);
  EACH_MODE(i, 0, MODE_MEET) {
    atomic_int count = 0;
    cr_expect_eq(run_threads(RANKS, NULL, overwrite_arrays, NULL), 0, "%s", device_mode(i));
    cr_expect_eq(run_threads(RANKS, NULL, release_operation, &count), 0, "%s", device_mode(i));
    cr_expect_gt(atomic_load(&count), 0);
  }
}

/* ---- windows ----------------------------------------------------------------------------------
 */

/* Each rank writes from device memory to the next one's window, with and without a stream. */
static int put(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  device_use(device_of_rank(rank));
  colli_cu_stream stream = device_stream();
  coll_window *window;
  const int next = (rank + 1) % nranks, before = (rank + nranks - 1) % nranks;
  int32_t *memory = calloc(2 * COUNT, sizeof(*memory));
  int32_t *a = device_vector(COUNT, rank + 1);
  RANK_OK(coll_window_create(comm, memory, 2 * COUNT * sizeof(*memory), &window));
  RANK_OK(coll_put(a, COUNT, COLL_INT32, next, 0, window, comm));
  RANK_OK(coll_put_on_stream(a, COUNT, COLL_INT32, next, COUNT * sizeof(*a), window, comm, stream));
  RANK_OK(coll_signal_on_stream(next, window, comm, stream));
  RANK_OK(coll_wait_signal_on_stream(before, 1, window, comm, stream));
  device_await(stream);
  RANK_OK(coll_comm_async_error(comm));
  for (int i = 0; i < 2 * COUNT; i++)
    RANK_CHECK(memory[i] == before + 1);
  RANK_OK(coll_window_destroy(&window));
  free(memory);
  return 0;
}

Test(calls, windows) {
  device_use(0);
  cr_expect_eq(run_threads(RANKS, NULL, put, NULL), 0);
}

/* ---- drivers ----------------------------------------------------------------------------------
 */

/* Calls on host memory work, stream-ordered ones say why they do not. */
static int no_driver(coll_comm *comm, int rank, int nranks, void *arg) {
  int value = 1;
  RANK_CHECK(device_refused(
      comm, coll_allreduce_on_stream(&value, &value, 1, COLL_INT32, COLL_SUM, comm, NULL),
      COLL_ERR_UNSUPPORTED, arg));
  RANK_OK(coll_group_start(comm));
  (void)coll_barrier_on_stream(comm, NULL); /* this or the end of the group says it */
  RANK_CHECK(coll_group_end(comm) == COLL_ERR_UNSUPPORTED);
  RANK_OK(coll_comm_async_error(comm));
  RANK_OK(coll_allreduce(&value, &value, 1, COLL_INT32, COLL_SUM, comm));
  RANK_CHECK(value == nranks);
  return 0;
}

Test(calls, no_driver) {
  char words[] = "has not loaded CUDA's driver";
  cr_expect_eq(run_threads(RANKS, NULL, no_driver, words), 0);
}

/* As a driver before CUDA 11.7. */
static int old_driver(coll_comm *comm, int rank, int nranks, void *arg) {
  device_use(device_of_rank(rank));
  comm->gpu->cuda.stream_wait_value_32 = NULL;
  RANK_CHECK(no_driver(comm, rank, nranks, arg) == 0);
  int32_t *a = device_vector(COUNT, 1);
  RANK_OK(coll_allreduce(a, a, COUNT, COLL_INT32, COLL_SUM, comm));
  RANK_CHECK(device_has(a, COUNT, nranks));
  return 0;
}

Test(calls, old_driver) {
  char words[] = "install one for CUDA 11.7";
  device_use(0);
  cr_expect_eq(run_threads(RANKS, NULL, old_driver, words), 0);
}

/* The program initialises CUDA when communicators exist already. */
static int late_driver(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  coll_comm *child = NULL;
  int value = 1;
  RANK_OK(coll_comm_dup(comm, NULL, &child));
  RANK_OK(coll_allreduce(&value, &value, 1, COLL_INT32, COLL_SUM, comm));
  device_use(device_of_rank(rank));
  int32_t *a = device_vector(COUNT, 1), *b = device_vector(COUNT, 1);
  RANK_CHECK(works(child, rank, nranks, a, 1, device_stream()) == 0);
  RANK_CHECK(works(comm, rank, nranks, b, 1, NULL) == 0);
  RANK_OK(coll_allreduce(a, a, COUNT, COLL_INT32, COLL_SUM, comm));
  RANK_CHECK(device_has(a, COUNT, nranks * nranks));
  RANK_OK(coll_comm_destroy(&child));
  return 0;
}

Test(calls, late_driver) {
  DEVICE_NEEDS_TWO; /* each rank's default stream is one of its own */
  cr_expect_eq(run_threads(2, NULL, late_driver, NULL), 0);
}
