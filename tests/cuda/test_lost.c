/*
 * test_lost.c: ranks that are killed, frozen, aborted or that disagree while streams of the others
 * wait for them: the streams go on in time, and say the same as calls on host memory.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "extent.h"
#include "libcoll/comm/comm.h"
#include "support_device.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

enum { RANKS = 4, VICTIM = 2, STREAMS = 2, AT_ONCE = 3, LIMIT_S = 60 };
#define COUNT ((size_t)50001)

TestSuite(lost, .timeout = 200);

typedef enum fault { KILLED, FROZEN, ABORTED, MISMATCHED } fault;

/* What a rank does, and what it saw. */
typedef struct scene {
  fault fault;
  int mode;     /* of streams, */
  bool on_host; /* or the same on host memory, without streams */
  coll_id id;
  atomic_int waiting, seen;
  int pid; /* the victim's */
  coll_error errors[RANKS];
} scene;

/* The victim's part, once the others wait. */
static coll_status suffer(coll_comm *comm, scene *s) {
  (void)WAIT_UNTIL(atomic_load(&s->waiting) == RANKS - 1, slow_s(20));
  s->pid = getpid();
  if (s->fault == KILLED)
    raise(SIGKILL);
  else if (s->fault == FROZEN)
    raise(SIGSTOP);
  else if (s->fault == ABORTED)
    coll_comm_abort(comm);
  float values[7] = {0}; /* another count than the others' */
  return coll_allreduce(values, values, 7, COLL_FLOAT32, COLL_SUM, comm);
}

/* On host memory. */
static coll_status wait_on_host(coll_comm *comm, scene *s) {
  float *buf = calloc(COUNT, sizeof(*buf));
  atomic_fetch_add(&s->waiting, 1);
  const coll_status status = coll_allreduce(buf, buf, COUNT, COLL_FLOAT32, COLL_SUM, comm);
  free(buf);
  return status;
}

/* Several operations wait in several streams. */
static int wait_in_streams(coll_comm *comm, int rank, scene *s, coll_status *status) {
  const size_t bytes = COUNT * sizeof(float);
  device_use(device_of_rank(rank));
  colli_cu_stream streams[STREAMS];
  char *buf[STREAMS];
  for (int i = 0; i < STREAMS; i++) {
    streams[i] = device_stream();
    buf[i] = device_memory.take(bytes);
    for (int k = 0; k < AT_ONCE; k++)
      RANK_OK(coll_allreduce_on_stream(buf[i], buf[i], COUNT, COLL_FLOAT32, COLL_SUM, comm,
                                       streams[i]));
  }
  atomic_fetch_add(&s->waiting, 1);
  for (int i = 0; i < STREAMS; i++)
    device_await(streams[i]);
  *status = coll_comm_async_error(comm);
  RANK_CHECK(*status != COLL_OK);
  /* It stays so, and no later call waits. */
  RANK_CHECK(coll_barrier_on_stream(comm, streams[0]) == *status);
  RANK_CHECK(coll_barrier(comm) == *status && coll_comm_async_error(comm) == *status);
  for (int i = 0; i < STREAMS; i++) {
    device_memory.give(buf[i]);
    device_stream_give(streams[i]);
  }
  return 0;
}

/* One rank, on a communicator of its own. */
static int play(coll_comm *comm, int rank, scene *s) {
  coll_status status = COLL_OK;
  if (rank == VICTIM)
    status = suffer(comm, s);
  else if (s->on_host)
    status = wait_on_host(comm, s);
  else
    RANK_CHECK(wait_in_streams(comm, rank, s, &status) == 0);
  RANK_CHECK(status != COLL_OK);
  s->errors[rank] = (coll_error)COLL_ERROR_INIT;
  RANK_CHECK(coll_last_error(comm, &s->errors[rank]) == COLL_OK);
  RANK_CHECK(s->errors[rank].status == status);
  return 0;
}

/* The library gives everything back to the driver but, where calls are direct, its area of GPU
 * memory, into which the streams of others may still look. */
static int run_rank(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_comm *mine = NULL;
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = s->fault == FROZEN ? slow_ms(1500) : 20000;
  alarm(LIMIT_S);
  device_use(device_of_rank(rank));
  if (rank == 0)
    RANK_OK(coll_unique_id(&s->id, NULL));
  RANK_OK(coll_barrier(comm));
  const uint64_t before = device_held() + (rank != VICTIM && !s->on_host); /* wait_in_streams() */
  RANK_OK(coll_comm_create(&mine, &s->id, nranks, rank, &config));
  RANK_CHECK((mine->direct != NULL) == (s->mode != MODE_STAGED));
  const int result = play(mine, rank, s);
  RANK_CHECK(coll_comm_destroy(&mine) == COLL_OK);
  RANK_CHECK(device_is_real() || device_held() == before + (s->mode != MODE_STAGED));
  return result;
}

/* Runs a scene; the ranks' records are in it. */
static scene *run_scene(const char *transport, fault what, int mode, bool on_host) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = transport;
  config.timeout_ms = 20000;
  scene *s = shared_memory(sizeof(*s));
  s->fault = what;
  s->mode = mode;
  s->on_host = on_host;
  device_mode(mode);
  int results[RANKS];
  run_processes(RANKS, &config, run_rank, s, LIMIT_S, results);
  for (int r = 0; r < RANKS; r++)
    if (r != VICTIM || what == ABORTED || what == MISMATCHED)
      cr_expect_eq(results[r], 0, "%s, mode %d: rank %d ended with %d", transport, mode, r,
                   results[r]);
  return s;
}

/* Compares what ranks saw with streams and on host memory. */
static void compare_scenes(const char *transport, const scene *streams, const scene *host,
                           coll_status status) {
  const fault what = streams->fault;
  for (int r = 0; r < RANKS; r++) {
    const coll_error *seen = &streams->errors[r], *want = &host->errors[r];
    if (r == VICTIM && what <= FROZEN)
      continue;
    cr_expect_eq(seen->status, status, "%s, mode %d: rank %d: %s", transport, streams->mode, r,
                 seen->message);
    cr_expect_eq(want->status, status, "%s: rank %d: %s", transport, r, want->message);
    if (seen->operation[0] && want->operation[0]) /* empty: it was between operations */
      cr_expect_str_eq(seen->operation, want->operation, "rank %d: %s\n%s", r, seen->message,
                       want->message);
    cr_expect_str_eq(seen->peer_host, want->peer_host);
    if (what == MISMATCHED) /* who notices first is by chance */
      cr_expect(strstr(seen->message, "rank 2 "), "%s", seen->message);
    else
      cr_expect(seen->peer == VICTIM && want->peer == VICTIM, "rank %d: %s\n%s", r, seen->message,
                want->message);
    if (what == KILLED)
      cr_expect_eq(seen->peer_pid, streams->pid);
  }
}

/* In modes in which ranks are processes; one is enough for TCP. */
static void compare(const char *transport, fault what, coll_status status) {
  static const int modes[] = {MODE_SPIN, MODE_ORDERED, MODE_STAGED};
  const scene *host = run_scene(transport, what, MODE_ORDERED, true);
  for (int i = 0; i < (strcmp(transport, "tcp") == 0 ? 1 : extent(1, 3, 1)); i++)
    if (device_mode(modes[i]))
      compare_scenes(transport, run_scene(transport, what, modes[i], false), host, status);
}

static void compare_both(fault what, coll_status status) {
  device_load();
  compare("shm", what, status);
  compare("tcp", what, status);
}

Test(lost, killed) {
  compare_both(KILLED, COLL_ERR_PEER_LOST);
}

Test(lost, frozen) {
  device_load();
  compare("shm", FROZEN, COLL_ERR_TIMEOUT);
}

Test(lost, aborted) {
  compare_both(ABORTED, COLL_ERR_ABORTED);
}

Test(lost, mismatched) {
  compare_both(MISMATCHED, COLL_ERR_MISMATCH);
}

/* ---- threads --------------------------------------------------------------------------------- */

/* With MEET, the other ranks wait for the victim in a call, and streams are held in the one before
 * it, which has no result then. Else streams wait for it. */
static int meet_in_vain(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  const bool meets = s->mode == MODE_MEET;
  coll_error error = COLL_ERROR_INIT;
  device_may_leak();
  device_use(device_of_rank(rank));
  RANK_OK(device_share(comm));
  colli_cu_stream stream = device_stream();
  int32_t *a = device_vector(COUNT, 1), *b = device_vector(COUNT, 1);
  device_gate *gate = device_stop(stream);
  RANK_OK(coll_allreduce_on_stream(a, a, COUNT, COLL_INT32, COLL_SUM, comm, stream));
  if (!meets) {
    device_open(gate);
    device_await(stream);
  }
  RANK_OK(coll_barrier(comm));
  if (rank == VICTIM) {
    RANK_CHECK(suffer(comm, s) != COLL_OK);
  } else {
    atomic_fetch_add(&s->waiting, 1);
    const coll_status status =
        coll_allreduce_on_stream(b, b, COUNT, COLL_INT32, COLL_SUM, comm, stream);
    RANK_CHECK((status == COLL_OK) == !meets);
  }
  if (meets)
    device_open(gate);
  device_await(stream);
  const coll_status want = s->fault == ABORTED ? COLL_ERR_ABORTED : COLL_ERR_MISMATCH;
  RANK_CHECK(coll_comm_async_error(comm) == want);
  RANK_CHECK(coll_last_error(comm, &error) == COLL_OK && error.status == want);
  RANK_CHECK(strstr(error.message, "rank 2 "));
  RANK_CHECK(meets || device_has(a, COUNT, nranks));
  return 0;
}

/* In all modes. */
static void run_threads_in_vain(fault what) {
  device_use(0);
  device_may_leak();
  EACH_MODE(i, MODE_ORDERED, MODE_MEET) {
    scene s = {.fault = what, .mode = i};
    cr_expect_eq(run_threads(RANKS, NULL, meet_in_vain, &s), 0, "mode %d", i);
  }
}

Test(lost, aborted_threads) {
  run_threads_in_vain(ABORTED);
}

Test(lost, mismatched_threads) {
  run_threads_in_vain(MISMATCHED);
}
