/*
 * test_progress.c: the progress thread: operations end, failures are noticed and deadlines pass
 * while the program is in no call. Without the thread none of that happens.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support_family.h"
#include "support_ranks.h"
#include "waits.h"

enum { COUNT = 500000, PATIENCE_MS = 20000, MOMENT_MS = 100 };

/* One run. */
typedef struct setting {
  char transport[8];
  coll_progress progress;
  int nranks;
} setting;

#define ON(transport, nranks)                                                                      \
  { transport, COLL_PROGRESS_ON, nranks }
#define OFF(transport, nranks)                                                                     \
  { transport, COLL_PROGRESS_OFF, nranks }

static coll_config config_of(const setting *s) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = s->transport;
  config.progress = s->progress;
  config.timeout_ms = 30000;
  return config;
}

/* Memory that the forked ranks share. */
typedef struct scene {
  setting set;
  volatile int reached[8]; /* by rank: how far it is */
} scene;

static scene *make_scene(const setting *s) {
  scene *shared =
      mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  cr_assert_neq(shared, MAP_FAILED);
  memset(shared, 0, sizeof(*shared));
  shared->set = *s;
  return shared;
}

/* Runs a rank function in processes; the scene is its argument. */
static void run(const setting *s, rank_fn fn) {
  coll_config config = config_of(s);
  scene *shared = make_scene(s);
  int results[8];
  run_processes(s->nranks, &config, fn, shared, 40, results);
  for (int r = 0; r < s->nranks; r++)
    cr_expect(results[r] == 0 || (r == 1 && results[r] == 128 + SIGKILL),
              "%s: rank %d ended with %d", s->transport, r, results[r]);
  munmap(shared, sizeof(*shared));
}

/* Waits, outside all calls, until another thread or process has written a value. */
static bool becomes(const volatile int *value, int wanted, int patience_ms) {
  return WAIT_UNTIL(*value == wanted, patience_ms / 1e3);
}

/* All ranks wait for each other, outside all calls. */
static bool meet(scene *s, int rank, int nranks, int stage) {
  s->reached[rank] = stage;
  for (int r = 0; r < nranks; r++)
    if (!WAIT_UNTIL(s->reached[r] >= stage, PATIENCE_MS / 1e3))
      return false;
  return true;
}

/* Waits, without a call that makes progress, until the communicator has failed. */
static coll_status await_failure(coll_comm *comm, coll_error *error, int patience_ms) {
  *error = (coll_error)COLL_ERROR_INIT;
  (void)WAIT_UNTIL((coll_last_error(comm, error), error->status != COLL_OK), patience_ms / 1e3);
  return error->status;
}

/* ---- operations end -------------------------------------------------------------------------- */

/* Sums more data than connections hold; whether the sum ended before the program asked. */
static int sum_without_calls(coll_comm *comm, int rank, int nranks, scene *s, int stage,
                             bool *ended) {
  int *in = calloc(COUNT, sizeof(*in)), *out = calloc(COUNT, sizeof(*out));
  bool on = s->set.progress == COLL_PROGRESS_ON;
  coll_request *request = NULL;
  for (int i = 0; i < COUNT; i++)
    in[i] = i + rank;
  /* Rank 0 first: if ranks start together, the calls that start may already complete the sum. */
  RANK_CHECK(rank == 0 || becomes(&s->reached[0], stage, PATIENCE_MS));
  RANK_OK(coll_iallreduce(in, out, COUNT, COLL_INT32, COLL_SUM, comm, &request));
  RANK_CHECK(meet(s, rank, nranks, stage));
  *ended = true;
  for (int i = 0; i < COUNT; i += 997)
    *ended = *ended && becomes(&out[i], nranks * i + nranks * (nranks - 1) / 2,
                               on       ? PATIENCE_MS
                               : i == 0 ? MOMENT_MS
                                        : 1);
  RANK_CHECK(meet(s, rank, nranks, stage + 1));
  RANK_OK(coll_wait(&request, -1));
  for (int i = 0; i < COUNT; i++)
    RANK_CHECK(out[i] == nranks * i + nranks * (nranks - 1) / 2);
  free(in);
  free(out);
  return 0;
}

static int ends_alone(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  bool ended;
  RANK_OK(coll_barrier(comm));
  for (int round = 0; round < 3; round++) {
    RANK_CHECK(sum_without_calls(comm, rank, nranks, s, 2 * round + 1, &ended) == 0);
    if (rank == 0 || s->set.progress == COLL_PROGRESS_ON)
      RANK_CHECK(ended == (s->set.progress == COLL_PROGRESS_ON));
  }
  return 0;
}

ParameterizedTestParameters(progress, ends_alone) {
  static setting all[] = {ON("shm", 2), ON("tcp", 2), ON("shm", 5), OFF("shm", 2), OFF("tcp", 2)};
  return cr_make_param_array(setting, all, sizeof(all) / sizeof(*all));
}

ParameterizedTest(setting *s, progress, ends_alone, .timeout = 60) {
  run(s, ends_alone);
}

/* The same on communicators made by split and by shrink from one without the thread. */
static int ends_on_children(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  bool ended;
  coll_comm *child = NULL, *survivor = NULL;
  coll_config config = COLL_CONFIG_INIT;
  config.progress = s->set.progress = COLL_PROGRESS_ON;
  RANK_OK(coll_comm_dup(comm, &config, &child));
  RANK_OK(coll_barrier(child));
  RANK_CHECK(sum_without_calls(child, rank, nranks, s, 1, &ended) == 0 && ended);
  RANK_CHECK(sum_without_calls(comm, rank, nranks, s, 3, &ended) == 0 && ended);
  RANK_OK(coll_comm_revoke(child));
  RANK_OK(coll_comm_shrink(child, NULL, &survivor)); /* replaces `child` */
  RANK_OK(coll_barrier(survivor));
  coll_comm_destroy(&child);
  RANK_CHECK(sum_without_calls(survivor, rank, nranks, s, 5, &ended) == 0 && ended);
  coll_comm_destroy(&survivor);
  return 0;
}

ParameterizedTestParameters(progress, ends_on_children) {
  static setting all[] = {OFF("shm", 2), OFF("tcp", 3)};
  return cr_make_param_array(setting, all, sizeof(all) / sizeof(*all));
}

ParameterizedTest(setting *s, progress, ends_on_children, .timeout = 60) {
  run(s, ends_on_children);
}

/* Only odd ranks have the thread: operations of all forms still succeed, and those ranks do not
 * wait. */
static int some_ranks(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *mixed = NULL;
  coll_id id;
  coll_config config = config_of(&((scene *)arg)->set);
  config.progress = rank % 2 ? COLL_PROGRESS_ON : COLL_PROGRESS_OFF;
  if (rank == 0)
    RANK_OK(coll_unique_id(&id, NULL));
  RANK_OK(coll_broadcast(&id, &id, sizeof(id), COLL_UINT8, 0, comm));
  RANK_OK(coll_comm_create(&mixed, &id, nranks, rank, &config));
  for (unsigned i = 0; i < 10; i++) {
    family_pending pending[2];
    for (unsigned k = 0; k < 2; k++)
      RANK_CHECK(family_start(&pending[k], mixed, 30000 * i * k, i + k) == 0);
    be_late(rank);
    for (int k = 0; k < 2; k++)
      RANK_CHECK(family_finish(&pending[k]) == 0);
    RANK_CHECK(family_exercise(mixed, 5000 * i, i) == 0);
  }
  coll_comm_destroy(&mixed);
  return 0;
}

ParameterizedTestParameters(progress, some_ranks) {
  static setting all[] = {OFF("shm", 4), OFF("tcp", 3)};
  return cr_make_param_array(setting, all, sizeof(all) / sizeof(*all));
}

ParameterizedTest(setting *s, progress, some_ranks, .timeout = 60) {
  run(s, some_ranks);
}

/* Puts arrive although the window's owner is in no call. */
static int put_arrives(coll_comm *comm, int rank, int nranks, void *arg) {
  static volatile int memory[4];
  coll_window *window = NULL;
  int value = 7;
  (void)nranks;
  RANK_OK(coll_window_create(comm, (void *)memory, sizeof(memory), &window));
  if (rank == 0)
    RANK_OK(coll_put(&value, 1, COLL_INT32, 1, 4, window, comm));
  else
    RANK_CHECK(becomes(&memory[1], 7, PATIENCE_MS));
  RANK_CHECK(meet(arg, rank, nranks, 1));
  RANK_OK(coll_window_destroy(&window));
  return 0;
}

ParameterizedTestParameters(progress, put_arrives) {
  static setting all[] = {ON("shm", 2), ON("tcp", 2)};
  return cr_make_param_array(setting, all, sizeof(all) / sizeof(*all));
}

ParameterizedTest(setting *s, progress, put_arrives, .timeout = 60) {
  run(s, put_arrives);
}

/* A base and three children, on the last of which every rank does everything. */
typedef struct relatives {
  coll_comm *base, *child[2], *lively;
  coll_request *request[3]; /* on the children, and on the base */
  int *out[3];
} relatives;

/* The number of threads of this process. */
static int count_threads(void) {
  DIR *dir = opendir("/proc/self/task");
  int count = -2; /* "." and ".." */
  while (dir && readdir(dir))
    count++;
  if (dir)
    closedir(dir);
  return count;
}

/* Makes the communicators, with one progress thread. */
static int make_relatives(coll_comm *comm, int rank, int nranks, const setting *set, relatives *r) {
  coll_config config = config_of(set);
  coll_id id;
  if (rank == 0)
    RANK_OK(coll_unique_id(&id, NULL));
  RANK_OK(coll_broadcast(&id, &id, sizeof(id), COLL_UINT8, 0, comm));
  RANK_OK(coll_comm_create(&r->base, &id, nranks, rank, &config));
  for (int i = 0; i < 2; i++)
    RANK_OK(coll_comm_dup(r->base, NULL, &r->child[i]));
  RANK_OK(coll_comm_dup(r->base, NULL, &r->lively));
  return 0;
}

/* Destroys one of the family; the last child must still work. */
static int end_one(coll_comm **which, coll_comm *lively, int rank, unsigned seed) {
  RANK_CHECK(coll_comm_destroy(which) == COLL_OK && !*which);
  RANK_CHECK(family_exercise(lively, 5000, seed) == 0);
  return 0;
}

/* Starts an operation on each communicator, which cannot end without the last rank, and completes
 * them one by one. */
static int end_relatives(relatives *r, int rank, int nranks, scene *s, const int *in) {
  bool comes = rank < nranks - 1;
  for (int i = 0; i < 3 && comes; i++) {
    coll_comm *comm = i < 2 ? r->child[i] : r->base;
    RANK_OK(coll_iallreduce(in, r->out[i], COUNT, COLL_INT32, COLL_SUM, comm, &r->request[i]));
  }
  for (int i = 0; i < 3 && comes; i++)
    RANK_CHECK(coll_test(&r->request[i]) == COLL_IN_PROGRESS);
  RANK_CHECK(meet(s, rank, nranks, 1));
  RANK_CHECK(end_one(&r->child[0], r->lively, rank, 1) == 0);
  RANK_CHECK(end_one(&r->base, r->lively, rank, 2) == 0);
  RANK_CHECK(end_one(&r->child[1], r->lively, rank, 3) == 0);
  RANK_CHECK(coll_comm_destroy(&r->lively) == COLL_OK);
  return 0;
}

/*
 * Communicators are destroyed with operations in flight, before and after their base: the others
 * still work, and no thread or descriptor remains.
 */
static int ends_in_flight(coll_comm *comm, int rank, int nranks, void *arg) {
  static int in[COUNT], out[3][COUNT];
  scene *s = arg;
  relatives r = {.out = {out[0], out[1], out[2]}};
  RANK_OK(coll_broadcast(in, in, sizeof(coll_id), COLL_UINT8, 0, comm)); /* connects as later */
  RANK_OK(coll_barrier(comm));
  int fds = count_fds(), threads = count_threads();
  RANK_CHECK(make_relatives(comm, rank, nranks, &s->set, &r) == 0);
  RANK_CHECK(count_threads() == threads + 1);
  RANK_CHECK(end_relatives(&r, rank, nranks, s, in) == 0);
  RANK_CHECK(count_threads() == threads && count_fds() <= fds);
  return 0;
}

ParameterizedTestParameters(progress, ends_in_flight) {
  static setting all[] = {ON("shm", 3), ON("tcp", 3)};
  return cr_make_param_array(setting, all, sizeof(all) / sizeof(*all));
}

ParameterizedTest(setting *s, progress, ends_in_flight, .timeout = 60) {
  run(s, ends_in_flight);
}

/* ---- failures are noticed -------------------------------------------------------------------- */

/* Rank 1 dies: outside all calls, the others notice it only if there is a thread. */
static int death(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_error error;
  RANK_OK(coll_barrier(comm));
  RANK_CHECK(meet(s, rank, nranks, 1));
  if (rank == 1)
    kill(getpid(), SIGKILL);
  if (s->set.progress == COLL_PROGRESS_ON) {
    RANK_CHECK(await_failure(comm, &error, PATIENCE_MS) == COLL_ERR_PEER_LOST);
    RANK_CHECK(error.peer == 1);
  } else {
    RANK_CHECK(await_failure(comm, &error, MOMENT_MS) == COLL_OK);
  }
  RANK_CHECK(coll_barrier(comm) == COLL_ERR_PEER_LOST);
  return 0;
}

ParameterizedTestParameters(progress, death) {
  static setting all[] = {ON("shm", 3), ON("tcp", 4), OFF("shm", 3)};
  return cr_make_param_array(setting, all, sizeof(all) / sizeof(*all));
}

ParameterizedTest(setting *s, progress, death, .timeout = 60) {
  run(s, death);
}

/* Rank 1 aborts, and makes no further call. */
static int abortion(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_error error;
  int value = 1, sum;
  coll_request *request = NULL;
  RANK_OK(coll_barrier(comm));
  if (rank == 0)
    RANK_OK(coll_iallreduce(&value, &sum, 1, COLL_INT32, COLL_SUM, comm, &request));
  RANK_CHECK(meet(s, rank, nranks, 1));
  if (rank == 1)
    RANK_OK(coll_comm_abort(comm));
  RANK_CHECK(await_failure(comm, &error, PATIENCE_MS) == COLL_ERR_ABORTED && error.peer == 1);
  if (rank == 0)
    RANK_CHECK(coll_test(&request) == COLL_ERR_ABORTED && !request);
  RANK_CHECK(meet(s, rank, nranks, 2));
  return 0;
}

ParameterizedTestParameters(progress, abortion) {
  static setting all[] = {ON("shm", 3), ON("tcp", 3)};
  return cr_make_param_array(setting, all, sizeof(all) / sizeof(*all));
}

ParameterizedTest(setting *s, progress, abortion, .timeout = 60) {
  run(s, abortion);
}

/* Rank 1 does not join an operation; rank 2 makes a different call. */
static int deadline(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_comm *hasty = NULL;
  coll_error error;
  coll_config config = COLL_CONFIG_INIT;
  coll_request *request = NULL;
  int value = 1, sum;
  config.timeout_ms = 2000;
  RANK_OK(coll_comm_dup(comm, &config, &hasty));
  RANK_OK(coll_barrier(hasty));
  if (rank == 0)
    RANK_OK(coll_iallreduce(&value, &sum, 1, COLL_INT32, COLL_SUM, hasty, &request));
  RANK_CHECK(await_failure(hasty, &error, PATIENCE_MS) == COLL_ERR_TIMEOUT);
  RANK_CHECK(error.peer == 1 && error.rank == 0);
  RANK_CHECK(meet(s, rank, nranks, 1));
  coll_comm_destroy(&hasty);
  return 0;
}

ParameterizedTestParameters(progress, deadline) {
  static setting all[] = {ON("shm", 2), ON("tcp", 2)};
  return cr_make_param_array(setting, all, sizeof(all) / sizeof(*all));
}

ParameterizedTest(setting *s, progress, deadline, .timeout = 60) {
  run(s, deadline);
}

/* Two ranks make different calls, and notice it outside all calls. */
static int disagreement(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_error error;
  coll_request *request = NULL;
  int value[2] = {1, 1}, sum[2];
  RANK_OK(coll_barrier(comm));
  RANK_OK(coll_iallreduce(value, sum, 1 + (size_t)rank, COLL_INT32, COLL_SUM, comm, &request));
  RANK_CHECK(await_failure(comm, &error, PATIENCE_MS) == COLL_ERR_MISMATCH);
  RANK_CHECK(meet(arg, rank, nranks, 1));
  return 0;
}

ParameterizedTestParameters(progress, disagreement) {
  static setting all[] = {ON("shm", 2), ON("tcp", 2)};
  return cr_make_param_array(setting, all, sizeof(all) / sizeof(*all));
}

ParameterizedTest(setting *s, progress, disagreement, .timeout = 60) {
  run(s, disagreement);
}

/* ---- settings -------------------------------------------------------------------------------- */

Test(progress, bad_setting) {
  coll_comm *comm = NULL;
  coll_config config = COLL_CONFIG_INIT;
  config.progress = (coll_progress)7;
  cr_assert_eq(coll_comm_create_local(&comm, 1, &config), COLL_ERR_INVALID_ARGUMENT);
}

/* A program that was compiled before the setting existed. */
Test(progress, old_program) {
  coll_comm *comm = NULL;
  coll_config config = COLL_CONFIG_INIT;
  config.size = offsetof(coll_config, progress);
  config.progress = (coll_progress)7;
  cr_assert_eq(coll_comm_create_local(&comm, 1, &config), COLL_OK);
  coll_comm_destroy(&comm);
}
