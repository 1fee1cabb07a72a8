/*
 * test_lost_midway.c: a rank is killed, frozen or aborted at any point of long calls in GPU memory,
 * which have many rounds: what ends without an error on the others has the right result, and
 * everything ends.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "extent.h"
#include "libcoll/base/prng.h"
#include "libcoll/comm/comm.h"
#include "support_registered.h"
#include "tests/proc/support_ranks.h"

enum { RANKS = 3, COUNT = 20001, SLOT = 4096 / 4, CALLS = 4, LANES = 2, LIMIT_S = 60 };

TestSuite(lost_midway, .timeout = 200);

typedef enum fault { KILLED, FROZEN, ABORTED, FAULTS } fault;
typedef enum kind { ALLREDUCE, SCAN, BROADCAST, ALLGATHER, KINDS } kind;

/* What happens, to whom, and when. */
typedef struct scene {
  fault fault;
  int mode, victim;
  bool registered; /* buffers are, and overwritten after each call */
  uint64_t seed;
  coll_id id;
} scene;

/* One call of a rank. */
typedef struct turn {
  kind what;
  int root;
  int32_t *in, *out; /* RANKS blocks of results */
  int32_t *kept;     /* the result; `out`, or a copy of it */
} turn;

/* A rank. */
typedef struct player {
  coll_comm *comm;
  int rank;
  const scene *scene;
  arena places;
  colli_cu_stream lanes[LANES];
  turn turns[CALLS];
  int after; /* when the victim suffers: some block of this call's result is there, */
  size_t at; /* the one that has this element */
  atomic_bool ends;
} player;

/* ---- calls ----------------------------------------------------------------------------------- */

/* Element i of a rank's input of a call. */
static int32_t input(int call, int rank, size_t i) {
  return 1 + call * 1000003 + rank * 7919 + (int32_t)i;
}

/* Element i of block b of a rank's result. */
static int32_t result(const player *p, int call, int b, size_t i) {
  const turn *t = &p->turns[call];
  int32_t sum = 0;
  if (t->what == BROADCAST || t->what == ALLGATHER)
    return input(call, t->what == BROADCAST ? t->root : b, i);
  for (int r = 0; r < (t->what == SCAN ? p->rank + 1 : RANKS); r++)
    sum += input(call, r, i);
  return sum;
}

static bool is_right(const player *p, int call) {
  const turn *t = &p->turns[call];
  const int blocks = t->what == ALLGATHER ? RANKS : 1;
  int32_t *out = malloc(RANKS * COUNT * sizeof(*out));
  bool right = true;
  device_read(out, t->kept, (size_t)blocks * COUNT * sizeof(*out));
  for (int b = 0; b < blocks; b++)
    for (size_t i = 0; i < COUNT && right; i++)
      if (out[(size_t)b * COUNT + i] != result(p, call, b, i)) {
        fprintf(stderr, "rank %d: call %d, kind %d, block %d: element %zu is wrong\n", p->rank,
                call, t->what, b, i);
        right = false;
      }
  free(out);
  return right;
}

static coll_status make_call(const player *p, int call) {
  const turn *t = &p->turns[call];
  void *stream = p->lanes[call % LANES];
  switch (t->what) {
  case ALLREDUCE:
    return coll_allreduce_on_stream(t->in, t->out, COUNT, COLL_INT32, COLL_SUM, p->comm, stream);
  case SCAN:
    return coll_scan_on_stream(t->in, t->out, COUNT, COLL_INT32, COLL_SUM, p->comm, stream);
  case BROADCAST:
    return coll_broadcast_on_stream(t->in, t->out, COUNT, COLL_INT32, t->root, p->comm, stream);
  default:
    return coll_allgather_on_stream(t->in, t->out, COUNT, COLL_INT32, p->comm, stream);
  }
}

/* Makes a call, and lets its stream overwrite what others may read, as soon as it has the result.
 */
static coll_status make(const player *p, int call) {
  const turn *t = &p->turns[call];
  const coll_status status = make_call(p, call);
  if (status != COLL_OK || !p->scene->registered)
    return status;
  const size_t bytes = COUNT * sizeof(int32_t);
  colli_cu_stream stream = p->lanes[call % LANES];
  if (p->comm->gpu->cuda.memcpy_async((uint64_t)t->kept, (uint64_t)t->out, RANKS * bytes, stream) !=
      COLLI_CUDA_SUCCESS)
    return COLL_ERR_SYSTEM;
  arena_spoil(p->comm, stream, t->in, bytes);
  arena_spoil(p->comm, stream, t->out, RANKS * bytes);
  return COLL_OK;
}

/* ---- the victim ------------------------------------------------------------------------------ */

/* Suffers when some result is there, or when all calls have ended. */
static void *suffer(void *arg) {
  player *p = arg;
  int32_t seen = 0;
  device_use(device_of_rank(p->rank));
  while (seen == 0 && !atomic_load(&p->ends)) {
    sched_yield();
    device_read(&seen, p->turns[p->after].out + p->at, sizeof(seen));
  }
  if (p->scene->fault == KILLED)
    raise(SIGKILL);
  else if (p->scene->fault == FROZEN)
    kill(getpid(), SIGSTOP);
  else
    coll_comm_abort(p->comm);
  return NULL;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* Makes a rank's memory and streams. */
static void begin(player *p) {
  colli_prng random = {p->scene->seed};
  int32_t *in = malloc(COUNT * sizeof(*in));
  for (int i = 0; i < LANES; i++)
    p->lanes[i] = device_stream();
  for (int call = 0; call < CALLS; call++) {
    turn *t = &p->turns[call];
    t->what = (kind)(colli_prng_next(&random) % KINDS);
    t->root = (int)(colli_prng_next(&random) % RANKS);
    t->in = p->scene->registered ? arena_take(&p->places) : device_vector(COUNT, 0);
    t->out = p->scene->registered ? arena_take(&p->places) : device_vector(RANKS * COUNT, 0);
    t->kept = p->scene->registered ? device_vector(RANKS * COUNT, 0) : t->out;
    for (size_t i = 0; i < COUNT; i++)
      in[i] = input(call, p->rank, i);
    device_write(t->in, in, COUNT * sizeof(*in));
  }
  free(in);
  p->after = (int)(colli_prng_next(&random) % CALLS);
  p->at = colli_prng_next(&random) % (COUNT / SLOT) * SLOT;
}

/* Makes all calls, some at a time, until the communicator fails. Whether what has ended is right.
 */
static bool make_calls(player *p, coll_status *status) {
  colli_prng random = {p->scene->seed + 1};
  int made = 0, checked = 0;
  *status = COLL_OK;
  while (made < CALLS && *status == COLL_OK) {
    const int more = 1 + (int)(colli_prng_next(&random) % CALLS);
    for (int i = 0; i < more && made < CALLS && *status == COLL_OK; i++, made++)
      *status = make(p, made);
    for (int i = 0; i < LANES; i++)
      device_await(p->lanes[i]);
    if (*status == COLL_OK)
      *status = coll_comm_async_error(p->comm);
    for (; *status == COLL_OK && checked < made; checked++)
      if (!is_right(p, checked))
        return false;
  }
  return true;
}

/* Whether a rank may see this status. */
static bool is_expected(const scene *s, coll_status status) {
  static const coll_status statuses[] = {COLL_ERR_PEER_LOST, COLL_ERR_TIMEOUT, COLL_ERR_ABORTED};
  return status == COLL_OK || status == statuses[s->fault];
}

/* One rank's part. */
static int play(coll_comm *comm, int rank, const scene *s) {
  player *p = calloc(1, sizeof(*p));
  pthread_t thread;
  coll_status status;
  p->comm = comm;
  p->rank = rank;
  p->scene = s;
  RANK_CHECK(comm->direct && comm->direct->mode == (s->mode == MODE_SPIN   ? COLLI_GPU_SPIN
                                                    : s->mode == MODE_MEET ? COLLI_GPU_MEET
                                                                           : COLLI_GPU_ORDERED));
  status =
      s->registered ? arena_make(comm, &p->places, RANKS * COUNT * sizeof(int32_t), true) : COLL_OK;
  RANK_CHECK(is_expected(s, status));
  if (status !=
      COLL_OK) { /* the victim had its memory earlier, and the fault came before this rank's */
    free(p);
    return 0;
  }
  begin(p);
  if (rank == s->victim)
    RANK_CHECK(pthread_create(&thread, NULL, suffer, p) == 0);
  RANK_CHECK(make_calls(p, &status));
  atomic_store(&p->ends, true);
  if (rank == s->victim)
    pthread_join(thread, NULL);
  if (status == COLL_OK)
    status = coll_barrier(comm);
  if (!is_expected(s, status))
    fprintf(stderr, "%s\n", coll_status_name(status));
  RANK_CHECK(is_expected(s, status));
  RANK_CHECK(status != COLL_OK);
  for (int i = 0; i < CALLS; i++) {
    if (!s->registered)
      device_memory.give(p->turns[i].in);
    device_memory.give(p->turns[i].kept);
  }
  free(p);
  return 0;
}

/* A process. */
static int run_rank(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  (void)nranks;
  coll_comm *mine = NULL;
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = s->fault == FROZEN ? slow_ms(1000) : 20000;
  alarm(LIMIT_S);
  RANK_OK(device_create(comm, &s->id, &config, &mine));
  const int failed = play(mine, rank, s);
  RANK_CHECK(coll_comm_destroy(&mine) == COLL_OK);
  return failed;
}

/* A thread. */
static int run_thread(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  device_may_leak();
  device_use(device_of_rank(rank));
  RANK_OK(device_share(comm));
  return play(comm, rank, arg);
}

/* Goes through seeds in a mode. */
static void run(fault what, int mode) {
  const int seeds = extent_seeds(2, 3, 1, 25);
  if (!device_mode(mode))
    return;
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  for (int seed = 1; seed <= seeds; seed++) {
    scene *s = shared_memory(sizeof(*s));
    int results[RANKS];
    char text[16];
    *s = (scene){.fault = what, .mode = mode, .victim = seed % RANKS, .registered = seed % 2};
    s->seed = (uint64_t)(seed * FAULTS + (int)what) * MODES + (uint64_t)mode;
    snprintf(text, sizeof(text), "%d", seed);
    setenv("GPU_SEED", text, 1);
    run_processes(RANKS, NULL, run_rank, s, LIMIT_S, results);
    for (int r = 0; r < RANKS; r++)
      if (r != s->victim || what == ABORTED)
        cr_expect_eq(results[r], 0, "mode %d, seed %d: rank %d: %d", mode, seed, r, results[r]);
  }
}

Test(lost_midway, killed) {
  device_load();
  run(KILLED, MODE_ORDERED);
  run(KILLED, MODE_SPIN);
}

Test(lost_midway, frozen) {
  device_load();
  run(FROZEN, MODE_ORDERED);
  run(FROZEN, MODE_SPIN);
}

Test(lost_midway, aborted) {
  device_load();
  run(ABORTED, MODE_ORDERED);
  run(ABORTED, MODE_SPIN);
}

Test(lost_midway, aborted_threads) {
  const int seeds = extent_seeds(3, 4, 1, 25);
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  device_use(0);
  device_may_leak();
  EACH_MODE(mode, MODE_ORDERED, MODE_MEET)
    for (int seed = 1; seed <= seeds; seed++) {
      scene s = {.fault = ABORTED, .mode = mode, .victim = seed % RANKS, .registered = seed % 2};
      s.seed = (uint64_t)(seed * MODES + mode);
      cr_expect_eq(run_threads(RANKS, NULL, run_thread, &s), 0, "mode %d, seed %d", mode, seed);
    }
}
