/*
 * test_order.c: calls of a communicator begin in the order of the program on all ranks, whether
 * they are ordered on streams or not, and whenever the streams come to them.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "extent.h"
#include "support_device.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

enum { COUNT = 1000 };

TestSuite(order, .timeout = 120);

/* ---- calls without a stream wait for earlier ones with ----------------------------------------
 */

typedef enum later {
  BLOCKING,
  NONBLOCKING,
  STARTED_AGAIN,
  GROUPED,
  GROUPED_NONBLOCKING,
  ON_HOST,
  MESSAGE,
  DUPLICATE,
  WINDOW,
  LATERS
} later;

typedef struct scene {
  later what;
  bool meets; /* nothing waits for streams */
  callers in_call;
  device_gate *gate;
  atomic_bool opened;
} scene;

/* A message in a ring. */
static int send_around(coll_comm *comm, int rank, int nranks, int32_t *from, int32_t *to) {
  coll_request *request;
  RANK_OK(coll_irecv(to, COUNT, COLL_INT32, (rank + nranks - 1) % nranks, 0, NULL, comm, &request));
  RANK_OK(coll_send(from, COUNT, COLL_INT32, (rank + 1) % nranks, 0, comm));
  RANK_OK(coll_wait(&request, -1));
  return 0;
}

/* Makes a window and writes to the next rank's memory. */
static int use_window(coll_comm *comm, int rank, int nranks, const int32_t *from) {
  int32_t memory[COUNT] = {0};
  coll_window *window;
  RANK_OK(coll_window_create(comm, memory, sizeof(memory), &window));
  RANK_OK(coll_put(from, COUNT, COLL_INT32, (rank + 1) % nranks, 0, window, comm));
  RANK_OK(coll_signal((rank + 1) % nranks, window, comm));
  RANK_OK(coll_wait_signal((rank + nranks - 1) % nranks, 1, window, comm));
  RANK_CHECK(memory[0] == 10 && memory[COUNT - 1] == 10);
  RANK_OK(coll_window_destroy(&window));
  return 0;
}

/* The later call: the sum of `from` over all ranks in `to`, or something else where it says. */
static int call_later(coll_comm *comm, int rank, int nranks, const scene *s, int32_t *from,
                      int32_t *to) {
  coll_request *request = NULL;
  coll_comm *other = NULL;
  int32_t host[COUNT];
  switch (s->what) {
  case BLOCKING:
    RANK_OK(coll_allreduce(from, to, COUNT, COLL_INT32, COLL_SUM, comm));
    break;
  case NONBLOCKING:
    RANK_OK(coll_iallreduce(from, to, COUNT, COLL_INT32, COLL_SUM, comm, &request));
    break;
  case STARTED_AGAIN:
    RANK_OK(coll_allreduce_init(from, to, COUNT, COLL_INT32, COLL_SUM, comm, &request));
    RANK_OK(coll_start(request));
    RANK_OK(coll_wait(&request, -1));
    RANK_OK(coll_request_free(&request));
    break;
  case GROUPED:
  case GROUPED_NONBLOCKING:
    RANK_OK(coll_group_start(comm));
    RANK_OK(coll_allreduce(from, to, COUNT, COLL_INT32, COLL_SUM, comm));
    RANK_OK(s->what == GROUPED ? coll_group_end(comm) : coll_group_iend(comm, &request));
    break;
  case ON_HOST:
    for (int i = 0; i < COUNT; i++)
      host[i] = 10;
    RANK_OK(coll_allreduce(host, host, COUNT, COLL_INT32, COLL_SUM, comm));
    device_write(to, host, sizeof(host));
    break;
  case MESSAGE:
    RANK_CHECK(send_around(comm, rank, nranks, from, to) == 0);
    RANK_OK(coll_allreduce(to, to, COUNT, COLL_INT32, COLL_SUM, comm));
    break;
  case DUPLICATE:
    RANK_OK(coll_comm_dup(comm, NULL, &other));
    RANK_OK(coll_allreduce(from, to, COUNT, COLL_INT32, COLL_SUM, other));
    RANK_OK(coll_comm_destroy(&other));
    break;
  default:
    RANK_CHECK(use_window(comm, rank, nranks, from) == 0);
    RANK_OK(coll_allreduce(from, to, COUNT, COLL_INT32, COLL_SUM, comm));
  }
  if (request)
    RANK_OK(coll_wait(&request, -1));
  return 0;
}

/* Opens the gate when rank 0 waits in its later call. */
static void *open_soon(void *arg) {
  scene *s = arg;
  (void)WAIT_UNTIL(waits_in_call(&s->in_call, 0), slow_s(20));
  atomic_store(&s->opened, true);
  device_open(s->gate);
  return NULL;
}

/* Rank 0's stream comes late to two calls. */
static int overtake(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  pthread_t thread;
  device_use(device_of_rank(rank));
  RANK_OK(device_share(comm));
  colli_cu_stream stream = device_stream();
  int32_t *a = device_vector(COUNT, 1), *b = device_vector(COUNT, 10),
          *c = device_vector(COUNT, 100), *out = device_vector(COUNT, 0);
  if (rank == 0)
    s->gate = device_hold(stream);
  RANK_OK(coll_allreduce_on_stream(a, a, COUNT, COLL_INT32, COLL_SUM, comm, stream));
  RANK_OK(coll_allreduce_on_stream(c, c, COUNT, COLL_INT32, COLL_SUM, comm, stream));
  if (rank == 0 && !s->meets) {
    enters_call(&s->in_call, 0);
    RANK_CHECK(pthread_create(&thread, NULL, open_soon, s) == 0);
  }
  RANK_CHECK(call_later(comm, rank, nranks, s, b, out) == 0);
  if (rank == 0 && s->meets) {
    device_open(s->gate);
  } else if (rank == 0) {
    RANK_CHECK(atomic_load(&s->opened));
    pthread_join(thread, NULL);
  }
  device_await(stream);
  RANK_OK(coll_comm_async_error(comm));
  RANK_CHECK(device_has(a, COUNT, nranks) && device_has(c, COUNT, 100 * nranks) &&
             device_has(out, COUNT, 10 * nranks));
  return 0;
}

Test(order, later_calls_wait) {
  device_use(0);
  EACH_MODE(i, 0, MODE_MEET)
    for (int what = 0; what < LATERS; what++) {
      scene s = {.what = (later)what, .meets = i == MODE_MEET};
      cr_expect_eq(run_threads(3, NULL, overtake, &s), 0, "later call %d, %s", what,
                   device_mode(i));
    }
}

/* ---- a held stream holds nothing else ---------------------------------------------------------
 */

/* While a call on one communicator is held, others go on: on a duplicate, with and without a
 * stream. */
static int go_on_elsewhere(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  coll_comm *other = NULL;
  device_use(device_of_rank(rank));
  colli_cu_stream held = device_stream(), free_one = device_stream();
  int32_t *a = device_vector(COUNT, 1), *b = device_vector(COUNT, 10);
  RANK_OK(coll_comm_dup(comm, NULL, &other));
  RANK_OK(device_share(comm));
  RANK_OK(device_share(other));
  device_gate *gate = device_hold(held);
  RANK_OK(coll_allreduce_on_stream(a, a, COUNT, COLL_INT32, COLL_SUM, comm, held));
  for (int i = 0; i < 5; i++) {
    RANK_OK(coll_broadcast_on_stream(b, b, COUNT, COLL_INT32, 0, other, free_one));
    RANK_OK(coll_barrier(other));
  }
  device_await(free_one); /* else its last call could write to it later */
  RANK_OK(coll_allreduce(b, b, COUNT, COLL_INT32, COLL_SUM, other));
  RANK_CHECK(device_has(b, COUNT, 10 * nranks) && device_has(a, COUNT, 1));
  device_open(gate);
  device_await(held);
  device_await(free_one);
  RANK_CHECK(device_has(a, COUNT, nranks));
  RANK_OK(coll_comm_destroy(&other));
  return 0;
}

/* Ranks put calls of two communicators into two streams in opposite orders. */
static int cross(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  coll_comm *comms[2] = {comm, NULL};
  device_use(device_of_rank(rank));
  colli_cu_stream streams[2] = {device_stream(), device_stream()};
  int32_t *vectors[2] = {device_vector(COUNT, 1), device_vector(COUNT, 10)};
  RANK_OK(coll_comm_dup(comm, NULL, &comms[1]));
  RANK_OK(device_share(comms[0]));
  RANK_OK(device_share(comms[1]));
  for (int i = 0; i < 20; i++) {
    const int which = (i + rank) % 2;
    RANK_OK(coll_allreduce_on_stream(vectors[which], vectors[which], COUNT, COLL_INT32, COLL_MAX,
                                     comms[which], streams[which]));
  }
  for (int i = 0; i < 2; i++) {
    device_await(streams[i]);
    RANK_OK(coll_comm_async_error(comms[i]));
  }
  RANK_CHECK(nranks > 0 && device_has(vectors[0], COUNT, 1) && device_has(vectors[1], COUNT, 10));
  RANK_OK(coll_comm_destroy(&comms[1]));
  return 0;
}

Test(order, elsewhere) {
  device_use(0);
  EACH_MODE(i, 0, MODE_MEET) {
    cr_expect_eq(run_threads(3, NULL, go_on_elsewhere, NULL), 0, "%s", device_mode(i));
    if (i != MODE_MEET) /* there these calls would wait for each other */
      cr_expect_eq(run_threads(2, NULL, cross, NULL), 0, "%s", device_mode(i));
  }
}

/* ---- a stream that never comes ----------------------------------------------------------------
 */

/* A later call without a stream waits for it until the timeout; with MEET, not at all. */
static int never(coll_comm *comm, int rank, int nranks, void *arg) {
  const bool meets = *(const int *)arg == MODE_MEET;
  coll_error error = COLL_ERROR_INIT;
  coll_comm *other = NULL;
  device_may_leak();
  device_use(device_of_rank(rank));
  colli_cu_stream stream = device_stream();
  int32_t *a = device_vector(COUNT, 1), host = 1;
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = slow_ms(200);
  RANK_OK(coll_comm_dup(comm, &config, &other));
  RANK_OK(device_share(comm));
  RANK_OK(device_share(other));
  device_gate *gate = device_hold(stream);
  RANK_OK(coll_allreduce_on_stream(a, a, COUNT, COLL_INT32, COLL_SUM, other, stream));
  RANK_CHECK(coll_barrier(other) == (meets ? COLL_OK : COLL_ERR_TIMEOUT));
  RANK_OK(coll_last_error(other, &error));
  RANK_CHECK(meets || (error.status == COLL_ERR_TIMEOUT && strstr(error.message, "stream") &&
                       strcmp(error.operation, "barrier") == 0));
  RANK_CHECK(coll_comm_async_error(other) == COLL_OK);
  const double before_s = now_s();
  RANK_CHECK(coll_comm_destroy(&other) == COLL_OK);
  RANK_CHECK(now_s() - before_s < slow_s(5));
  /* The stream comes after all, and passes. */
  device_open(gate);
  device_await(stream);
  RANK_OK(coll_allreduce_on_stream(a, a, COUNT, COLL_INT32, COLL_SUM, comm, stream));
  device_await(stream);
  RANK_OK(coll_comm_async_error(comm));
  RANK_OK(coll_allreduce(&host, &host, 1, COLL_INT32, COLL_SUM, comm));
  RANK_CHECK(host == nranks);
  return 0;
}

Test(order, never) {
  device_use(0);
  device_may_leak();
  EACH_MODE(i, 0, MODE_MEET)
    cr_expect_eq(run_threads(2, NULL, never, &i), 0, "%s", device_mode(i));
}

/* ---- many -------------------------------------------------------------------------------------
 */

enum { MOST_CALLS = 1000, CALLS_ON_A_GPU = 10 }; /* a full stream of a GPU would hold the threads */

/* So many calls are in flight at once, behind a gate: each takes what the one before it gave. */
static int many(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  device_use(device_of_rank(rank));
  RANK_OK(device_share(comm));
  colli_cu_stream stream = device_stream();
  int64_t at[MOST_CALLS] = {1};
  const int calls = device_is_real() ? CALLS_ON_A_GPU : extent(MOST_CALLS, MOST_CALLS, 100);
  int64_t *values = device_memory.take(sizeof(at));
  device_write(values, at, sizeof(at));
  device_gate *gate = device_stop(stream);
  for (int i = 1; i < calls; i++)
    RANK_OK(coll_scan_on_stream(&values[i - 1], &values[i], 1, COLL_INT64, COLL_MAX, comm, stream));
  RANK_OK(
      coll_allreduce_on_stream(&values[calls - 1], values, 1, COLL_INT64, COLL_SUM, comm, stream));
  device_open(gate);
  device_await(stream);
  RANK_OK(coll_comm_async_error(comm));
  device_read(at, values, sizeof(at));
  RANK_CHECK(at[0] == nranks && at[calls - 1] == 1 && at[calls / 2] == 1);
  device_memory.give(values);
  return 0;
}

Test(order, many) {
  device_use(0);
  EACH_MODE(i, 0, MODE_MEET) {
    const uint64_t before = device_held();
    cr_expect_eq(run_threads(2, NULL, many, NULL), 0, "%s", device_mode(i));
    cr_expect_leq(device_held(), before + 10, "%s: %llu more", device_mode(i),
                  (unsigned long long)(device_held() - before)); /* of the test: streams, ... */
  }
}
