/*
 * test_parents.c: ranks with forked children, such as the workers of a data loader. A rank's death
 * is noticed at once although its children live on, and the survivors continue without it.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/proc/support_ranks.h"
#include "waits.h"

enum { RANKS = 3, VICTIM = 1, WORKERS = 3, TIMEOUT_MS = 30000, ROUNDS = 40 };

/* When the victim forks. */
typedef enum moment {
  BEFORE_CONNECTIONS, /* before the first operation */
  AFTER_CONNECTIONS,
  MEANWHILE, /* in a second thread, while the first one is in operations */
  MOMENTS
} moment;

typedef struct scene {
  moment when;
  int hold[2];  /* children end when nobody has its writing end any more */
  int batch[2]; /* the workers of a loader write here */
  callers in_call;
  atomic_int made; /* children */
  pid_t children[2 * WORKERS];
  coll_status status[RANKS];
  coll_error error[RANKS];
  double killed_s, noticed_s[RANKS], shrunk_s[RANKS];
} scene;

static scene *make_scene(moment when) {
  scene *s = shared_memory(sizeof(*s));
  s->when = when;
  cr_assert_eq(pipe(s->hold), 0);
  cr_assert_eq(pipe(s->batch), 0);
  return s;
}

/* A child that lives until the test ends, and so does its own child. */
static void fork_idle_child(scene *s) {
  for (int generation = 0; generation < 2; generation++) {
    pid_t pid = fork();
    if (pid != 0) {
      if (generation == 1) /* the first child stays, too */
        break;
      return;
    }
    s->children[atomic_fetch_add(&s->made, 1)] = getpid();
  }
  char byte;
  close(s->hold[1]);
  while (read(s->hold[0], &byte, 1) > 0)
    continue;
  _exit(0);
}

static void *fork_in_thread(void *arg) {
  fork_idle_child(arg);
  return NULL;
}

/* All-reduces; the sums are right. */
static int reduce_some(coll_comm *comm, int rank, int nranks) {
  int first = 0, sum = 0;
  RANK_OK(coll_comm_origin_rank(comm, 0, &first));
  for (int i = 0; i < ROUNDS; i++) {
    int mine = i;
    RANK_OK(coll_allreduce(&mine, &sum, 1, COLL_INT32, COLL_SUM, comm));
    RANK_CHECK(sum == i * nranks);
  }
  return 0;
}

/* The victim forks, and dies while the others wait for it. */
static int fork_and_die(coll_comm *comm, scene *s) {
  int rank = VICTIM;
  pthread_t thread;
  if (s->when == BEFORE_CONNECTIONS)
    fork_idle_child(s);
  RANK_CHECK(reduce_some(comm, rank, RANKS) == 0);
  if (s->when == MEANWHILE)
    RANK_CHECK(pthread_create(&thread, NULL, fork_in_thread, s) == 0);
  RANK_CHECK(reduce_some(comm, rank, RANKS) == 0);
  if (s->when == MEANWHILE)
    pthread_join(thread, NULL);
  if (s->when == AFTER_CONNECTIONS)
    fork_idle_child(s);
  RANK_CHECK(WAIT_UNTIL(atomic_load(&s->made) == 2, slow_s(20)));
  RANK_CHECK(WAIT_UNTIL(all_wait_in_call(&s->in_call, RANKS, VICTIM), slow_s(20)));
  s->killed_s = now_s();
  raise(SIGKILL);
  return 1;
}

/* A survivor waits for the victim, sees it die, and continues without it. */
static int survive(coll_comm *comm, int rank, scene *s) {
  int mine = 1, sum;
  coll_comm *smaller = NULL;
  RANK_CHECK(reduce_some(comm, rank, RANKS) == 0);
  RANK_CHECK(reduce_some(comm, rank, RANKS) == 0);
  enters_call(&s->in_call, rank);
  s->status[rank] = coll_allreduce(&mine, &sum, 1, COLL_INT32, COLL_SUM, comm);
  s->noticed_s[rank] = now_s();
  s->error[rank] = (coll_error)COLL_ERROR_INIT;
  RANK_OK(coll_last_error(comm, &s->error[rank]));
  RANK_OK(coll_comm_shrink(comm, NULL, &smaller));
  s->shrunk_s[rank] = now_s();
  RANK_CHECK(reduce_some(smaller, rank, RANKS - 1) == 0);
  return coll_comm_destroy(&smaller);
}

static int lose_a_parent(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  scene *s = arg;
  close(s->hold[1]);
  return rank == VICTIM ? fork_and_die(comm, s) : survive(comm, rank, s);
}

/* The children of the dead rank outlived its death, and end now. */
static void end_children(scene *s) {
  for (int i = 0; i < atomic_load(&s->made); i++)
    cr_expect(!has_ended(s->children[i]), "child %d did not outlive its parent", i);
  close(s->hold[1]);
  close(s->hold[0]);
  close(s->batch[0]);
  close(s->batch[1]);
  for (int i = 0; i < atomic_load(&s->made); i++)
    cr_expect(WAIT_UNTIL(has_ended(s->children[i]), slow_s(20)));
}

/* All survivors noticed the death at once, and blame the dead rank. */
static void check_survivors(const scene *s, const char *transport) {
  for (int r = 0; r < RANKS; r++) {
    if (r == VICTIM)
      continue;
    cr_expect_eq(s->status[r], COLL_ERR_PEER_LOST, "%s: rank %d got %s: %s", transport, r,
                 coll_status_name(s->status[r]), s->error[r].message);
    cr_expect_eq(s->error[r].peer, VICTIM, "%s: rank %d: %s", transport, r, s->error[r].message);
    cr_expect_lt(s->noticed_s[r] - s->killed_s, slow_s(1), "%s: rank %d took %.3f s", transport, r,
                 s->noticed_s[r] - s->killed_s);
    /* A child that still listened for its parent would be waited for. */
    cr_expect_lt(s->shrunk_s[r] - s->noticed_s[r], TIMEOUT_MS / 3e3, "%s: rank %d took %.3f s",
                 transport, r, s->shrunk_s[r] - s->noticed_s[r]);
  }
}

/* Runs the ranks; the victim, and only it, is killed. */
static void run_scene(scene *s, const char *transport, coll_progress progress, rank_fn fn) {
  int results[RANKS];
  coll_config config = COLL_CONFIG_INIT;
  config.transport = transport;
  config.progress = progress;
  config.timeout_ms = config.create_timeout_ms = TIMEOUT_MS;
  run_processes(RANKS, &config, fn, s, 90, results);
  for (int r = 0; r < RANKS; r++)
    cr_expect_eq(results[r], r == VICTIM ? 128 + SIGKILL : 0, "%s: rank %d ended with %d",
                 transport, r, results[r]);
}

static void kill_parents(const char *transport, coll_progress progress) {
  for (moment when = 0; when < MOMENTS; when++) {
    scene *s = make_scene(when);
    run_scene(s, transport, progress, lose_a_parent);
    check_survivors(s, transport);
    end_children(s);
  }
}

Test(fork, death_with_living_children_shm, .timeout = 300) {
  kill_parents("shm", COLL_PROGRESS_OFF);
}
Test(fork, death_with_living_children_tcp, .timeout = 300) {
  kill_parents("tcp", COLL_PROGRESS_OFF);
}
Test(fork, death_with_living_children_thread, .timeout = 300) {
  kill_parents("shm", COLL_PROGRESS_ON);
}

/* ---- a data loader --------------------------------------------------------------------------- */

/* A worker: writes batches until nobody reads them. */
static void load_batches(scene *s, const int *out) {
  close(s->hold[1]);
  close(out[0]);
  for (int batch = 1; write(out[1], &batch, sizeof(batch)) == sizeof(batch);)
    continue;
  char byte; /* the rank is gone, and this worker hangs around */
  while (read(s->hold[0], &byte, 1) > 0)
    continue;
  _exit(0);
}

/* A rank whose workers feed it. They are many, and outlive it. */
static int train_with_workers(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  int from[2], mine = 0, sum = 0;
  close(s->hold[1]);
  signal(SIGPIPE, SIG_IGN);
  RANK_CHECK(pipe(from) == 0);
  for (int i = 0; i < WORKERS; i++) {
    RANK_CHECK(reduce_some(comm, rank, nranks) == 0);
    pid_t pid = fork();
    if (pid == 0)
      load_batches(s, from);
    RANK_CHECK(pid > 0);
    if (rank == VICTIM)
      s->children[atomic_fetch_add(&s->made, 1)] = pid;
  }
  close(from[1]);
  for (int i = 0; i < ROUNDS; i++) {
    RANK_CHECK(read(from[0], &mine, sizeof(mine)) == sizeof(mine));
    RANK_OK(coll_allreduce(&mine, &sum, 1, COLL_INT32, COLL_SUM, comm));
    RANK_CHECK(sum == nranks);
  }
  if (rank != VICTIM)
    return survive(comm, rank, s);
  RANK_CHECK(reduce_some(comm, rank, nranks) == 0 && reduce_some(comm, rank, nranks) == 0);
  RANK_CHECK(WAIT_UNTIL(all_wait_in_call(&s->in_call, RANKS, VICTIM), slow_s(20)));
  s->killed_s = now_s();
  raise(SIGKILL);
  return 1;
}

/* The workers of the survivors live as long as the test, like those of the victim. */
static void lose_a_trainer(const char *transport) {
  scene *s = make_scene(AFTER_CONNECTIONS);
  run_scene(s, transport, COLL_PROGRESS_OFF, train_with_workers);
  check_survivors(s, transport);
  end_children(s);
}

Test(fork, data_loader_shm, .timeout = 200) {
  lose_a_trainer("shm");
}
Test(fork, data_loader_tcp, .timeout = 200) {
  lose_a_trainer("tcp");
}
