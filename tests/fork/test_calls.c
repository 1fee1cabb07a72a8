/*
 * test_calls.c: what a forked child may and may not do with libcoll. Every call on what it
 * inherited is refused and disturbs nothing; it may make communicators of its own.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sanitized.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

enum { RANKS = 3, ROUNDS = 30, REGION_BYTES = 1 << 16 };

/* One of everything that a rank can have. */
typedef struct belongings {
  coll_comm *comm, *dup;
  coll_window *window;
  coll_request *pending, *persistent, *complete;
  coll_op op;
  char *region;
  int received, in, out, memory[4];
} belongings;

/* What the ranks and their children share. */
typedef struct scene {
  const char *transport;
  bool thread;       /* a progress thread; LeakSanitizer takes what it had in a child for leaks */
  int fds;           /* that a process of this test has without libcoll */
  int fds_spawned;   /* and one that it spawns */
  atomic_int made;   /* 1: the children's id is there */
  coll_id id;        /* of the children's own communicator */
  atomic_int passed; /* children */
} scene;

/* A call that must be refused in a child. */
#define REFUSED(call)                                                                              \
  do {                                                                                             \
    coll_status refused_ = (call);                                                                 \
    if (refused_ != COLL_ERR_INVALID_USAGE) {                                                      \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, coll_status_name(refused_));   \
      return 1;                                                                                    \
    }                                                                                              \
  } while (0)

static void add(const void *left, const void *right, void *result, size_t count, coll_type type,
                void *context) {
  (void)type, (void)context;
  for (size_t i = 0; i < count; i++)
    ((int *)result)[i] = ((const int *)left)[i] + ((const int *)right)[i];
}

static void no_end(void *value) {
  (void)value;
}

/* Makes one of everything. */
static int acquire(belongings *b, coll_comm *comm, int rank, int nranks) {
  *b = (belongings){.comm = comm};
  RANK_OK(coll_comm_dup(comm, NULL, &b->dup));
  RANK_OK(coll_window_create(comm, b->memory, sizeof(b->memory), &b->window));
  RANK_OK(coll_irecv(&b->received, 1, COLL_INT32, (rank + 1) % nranks, 5, NULL, comm, &b->pending));
  RANK_OK(coll_allreduce_init(&b->in, &b->out, 1, COLL_INT32, COLL_SUM, comm, &b->persistent));
  RANK_OK(coll_ibarrier(comm, &b->complete));
  RANK_OK(coll_op_create("add", add, NULL, 1, &b->op));
  RANK_OK(coll_mem_alloc(comm, REGION_BYTES, (void **)&b->region));
  RANK_OK(coll_comm_set_attr(comm, b, b, no_end));
  memset(b->region, 7, REGION_BYTES);
  return 0;
}

/* Uses and releases it all: nothing has changed. */
static int release(belongings *b, int rank, int nranks) {
  coll_comm *comm = b->comm;
  void *value = NULL;
  RANK_OK(coll_send(&rank, 1, COLL_INT32, (rank + nranks - 1) % nranks, 5, comm));
  RANK_OK(coll_wait(&b->pending, -1));
  RANK_CHECK(b->received == (rank + 1) % nranks);
  RANK_OK(coll_wait(&b->complete, -1));
  for (int i = 0; i < ROUNDS; i++) {
    b->in = i;
    RANK_OK(coll_start(b->persistent));
    coll_request *running = b->persistent;
    RANK_OK(coll_wait(&running, -1));
    RANK_CHECK(b->out == i * nranks);
    RANK_OK(coll_allreduce(&i, &b->out, 1, COLL_INT32, b->op, comm));
    RANK_CHECK(b->out == i * nranks);
    RANK_OK(coll_allreduce(&i, &b->out, 1, COLL_INT32, COLL_SUM, b->dup));
    RANK_CHECK(b->out == i * nranks);
  }
  RANK_OK(coll_put(&rank, 1, COLL_INT32, (rank + 1) % nranks, 0, b->window, comm));
  RANK_OK(coll_window_destroy(&b->window));
  RANK_CHECK(b->memory[0] == (rank + nranks - 1) % nranks);
  RANK_OK(coll_comm_get_attr(comm, b, &value));
  RANK_CHECK(value == b);
  RANK_CHECK(b->region[0] == 7 && b->region[REGION_BYTES - 1] == 7);
  RANK_OK(coll_mem_free(comm, b->region));
  RANK_OK(coll_op_free(&b->op));
  RANK_OK(coll_request_free(&b->persistent));
  RANK_OK(coll_comm_destroy(&b->dup));
  return 0;
}

/* Child: operations on what it inherited. */
static int try_operations(belongings *b, coll_comm *comm) {
  int in = 1000, out = 0, index;
  coll_request *request = NULL, *both[2] = {b->pending, b->complete};
  REFUSED(coll_allreduce(&in, &out, 1, COLL_INT32, COLL_SUM, comm));
  REFUSED(coll_iallreduce(&in, &out, 1, COLL_INT32, COLL_SUM, comm, &request));
  REFUSED(coll_allreduce_init(&in, &out, 1, COLL_INT32, COLL_SUM, comm, &request));
  REFUSED(coll_allreduce_on_stream(&in, &out, 1, COLL_INT32, COLL_SUM, comm, NULL));
  REFUSED(coll_barrier(comm));
  REFUSED(coll_send(&in, 1, COLL_INT32, 0, 5, comm));
  REFUSED(coll_irecv(&out, 1, COLL_INT32, 0, 5, NULL, comm, &request));
  REFUSED(coll_put(&in, 1, COLL_INT32, 0, 0, b->window, comm));
  REFUSED(coll_signal(0, b->window, comm));
  REFUSED(coll_window_create(comm, &out, sizeof(out), &b->window));
  REFUSED(coll_window_destroy(&b->window));
  REFUSED(coll_test(&b->pending));
  REFUSED(coll_wait(&b->pending, 0));
  REFUSED(coll_wait(&b->complete, -1));
  REFUSED(coll_wait_any(both, 2, &index, -1));
  REFUSED(coll_start(b->persistent));
  REFUSED(coll_request_free(&b->persistent));
  REFUSED(coll_group_start(comm));
  REFUSED(coll_group_end(comm));
  return request != NULL || out != 0 || !b->window || !b->pending || !b->persistent;
}

/* Child: calls about a communicator that it inherited. */
static int try_comm(belongings *b, coll_comm *comm) {
  int number = -1, ranks[1] = {0};
  uint64_t word = 1;
  void *value = NULL;
  coll_id id;
  coll_comm *made = NULL, *same = comm;
  coll_request *request = NULL;
  coll_message message;
  REFUSED(coll_comm_rank(comm, &number));
  REFUSED(coll_comm_nranks(comm, &number));
  REFUSED(coll_comm_origin_rank(comm, 0, &number));
  REFUSED(coll_comm_split(comm, 0, 0, NULL, &made));
  REFUSED(coll_comm_dup(comm, NULL, &made));
  REFUSED(coll_probe(comm, 0, 0, &message, NULL, 0));
  REFUSED(coll_comm_isplit(comm, 0, 0, NULL, &made, &request));
  REFUSED(coll_comm_idup(comm, NULL, &made, &request));
  REFUSED(coll_comm_subset(comm, ranks, 1, NULL, &made));
  REFUSED(coll_comm_create_group(comm, ranks, 1, 0, NULL, &made));
  REFUSED(coll_comm_shrink(comm, NULL, &made));
  REFUSED(coll_comm_agree(comm, &word, &number, NULL));
  REFUSED(coll_comm_grow(comm, NULL, &made));
  REFUSED(coll_comm_join_id(comm, &id));
  REFUSED(coll_comm_joiners(comm, &number));
  REFUSED(coll_comm_epoch(comm, &word));
  REFUSED(coll_comm_abort(comm));
  REFUSED(coll_comm_revoke(comm));
  REFUSED(coll_comm_set_attr(comm, b, NULL, NULL));
  REFUSED(coll_comm_get_attr(comm, b, &value));
  REFUSED(coll_mem_alloc(comm, 100, &value));
  REFUSED(coll_mem_free(comm, b->region));
  REFUSED(coll_candidates(comm, "allreduce", 1, COLL_INT32, COLL_SUM, 0, NULL, 0, &number));
  REFUSED(coll_reduce_local(&word, &word, 1, COLL_UINT64, COLL_SUM, comm));
  REFUSED(coll_comm_destroy(&same));
  return same != comm || made || request || value || number != -1 || word != 1;
}

/* Child: the operation is a copy of its own, for communicators of its own. */
static int try_op(belongings *b) {
  const int in = 1000;
  int inout = 1;
  coll_op op = b->op;
  if (coll_reduce_local(&in, &inout, 1, COLL_INT32, op, NULL) != COLL_OK || inout != 1001)
    return 1;
  return coll_op_free(&op) != COLL_OK;
}

/* Child: the record of a refusal says what to do. */
static int check_record(coll_comm *comm) {
  int rank = -1;
  coll_error error = COLL_ERROR_INIT;
  RANK_CHECK(coll_last_error(comm, &error) == COLL_OK);
  RANK_CHECK(error.status == COLL_ERR_INVALID_USAGE);
  RANK_CHECK(strstr(error.message, "fork") && strstr(error.message, "create"));
  return 0;
}

static int try_everything(belongings *b) {
  for (int i = 0; i < 2; i++) {
    coll_comm *comm = i ? b->dup : b->comm;
    if (try_operations(b, comm) != 0 || try_comm(b, comm) != 0 || check_record(comm) != 0)
      return 1;
  }
  /* What the parent has in a region can be read. */
  return try_op(b) != 0 || b->region[0] != 7 || b->region[REGION_BYTES - 1] != 7;
}

/* How many descriptors a spawned program has. */
static int count_spawned_fds(void) {
  pid_t pid;
  int status = 0;
  char *arguments[] = {"sh", "-c", "set -- /proc/$$/fd/*; exit $#", NULL};
  extern char **environ;
  if (posix_spawn(&pid, "/bin/sh", NULL, NULL, arguments, environ) != 0 ||
      waitpid(pid, &status, 0) != pid)
    return -1;
  return WEXITSTATUS(status);
}

/* Waits for a child that should be content. */
static bool ends_well(pid_t pid) {
  int status = -1;
  return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

/* Each rank forks children that try everything and end in all ways. */
static int fork_children(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  belongings b;
  RANK_CHECK(acquire(&b, comm, rank, nranks) == 0);
  for (int way = 0; way < 3; way++) {
    pid_t pid = fork();
    if (pid == 0) {
      int failed = try_everything(&b);
      if (s->fds != count_fds()) {
        fprintf(stderr, "a child has %d descriptors, not %d\n", count_fds(), s->fds);
        failed = 1;
      }
      if (failed || way == 0)
        _exit(failed);
      if (way == 1 && !(SANITIZED && s->thread))
        exit(0);
      execl("/bin/true", "true", NULL);
      _exit(1);
    }
    RANK_CHECK(ends_well(pid));
  }
  RANK_CHECK(count_spawned_fds() == s->fds_spawned);
  return release(&b, rank, nranks);
}

static scene *make_scene(const char *transport) {
  scene *s = shared_memory(sizeof(*s));
  s->transport = transport;
  s->fds = count_fds();
  s->fds_spawned = count_spawned_fds();
  return s;
}

static void run_scene(scene *s, coll_progress progress, rank_fn fn) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = s->transport;
  config.progress = progress;
  s->thread = progress == COLL_PROGRESS_ON;
  cr_expect_eq(run_processes(RANKS, &config, fn, s, 60, NULL), 0, "%s", s->transport);
}

Test(fork_calls, refused_shm, .timeout = 100) {
  run_scene(make_scene("shm"), COLL_PROGRESS_OFF, fork_children);
}
Test(fork_calls, refused_tcp, .timeout = 100) {
  run_scene(make_scene("tcp"), COLL_PROGRESS_OFF, fork_children);
}
Test(fork_calls, refused_with_progress_thread, .timeout = 100) {
  run_scene(make_scene("shm"), COLL_PROGRESS_ON, fork_children);
}

/* ---- ranks that are threads ------------------------------------------------------------------ */

/* Each thread forks while the others are in operations. */
static int fork_among_threads(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  for (int turn = 0; turn < nranks; turn++) {
    pid_t pid = 0;
    if (turn == rank) {
      pid = fork();
      if (pid == 0) {
        int number, sum = 0;
        _exit(coll_comm_rank(comm, &number) != COLL_ERR_INVALID_USAGE ||
              coll_allreduce(&number, &sum, 1, COLL_INT32, COLL_SUM, comm) !=
                  COLL_ERR_INVALID_USAGE ||
              check_record(comm) != 0);
      }
    }
    for (int i = 0, sum; i < ROUNDS; i++) {
      RANK_OK(coll_allreduce(&i, &sum, 1, COLL_INT32, COLL_SUM, comm));
      RANK_CHECK(sum == i * nranks);
    }
    RANK_CHECK(turn != rank || ends_well(pid));
  }
  return 0;
}

Test(fork_calls, threads, .timeout = 100) {
  cr_expect_eq(run_threads(RANKS, NULL, fork_among_threads, NULL), 0);
}

/* ---- communicators of a child's own ---------------------------------------------------------- */

static int reduce_some(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  for (int i = 0, sum; i < ROUNDS; i++) {
    RANK_OK(coll_allreduce(&i, &sum, 1, COLL_INT32, COLL_SUM, comm));
    RANK_CHECK(sum == i * nranks);
  }
  return 0;
}

/* A child of a child: neither its parent's communicator nor its grandparent's is its own. */
static int try_inherited(coll_comm *first, coll_comm *second) {
  int number;
  REFUSED(coll_comm_rank(first, &number));
  REFUSED(coll_barrier(first));
  REFUSED(coll_barrier(second));
  REFUSED(coll_comm_destroy(&second));
  return run_threads(2, NULL, reduce_some, NULL);
}

/* The children of all ranks meet in a communicator, and their own children do not disturb it. */
static int meet_other_children(scene *s, coll_comm *inherited, int rank, int nranks) {
  coll_comm *comm = NULL;
  coll_config config = COLL_CONFIG_INIT;
  config.transport = s->transport;
  if (rank == 0) {
    RANK_CHECK(coll_unique_id(&s->id, &config) == COLL_OK);
    atomic_store(&s->made, 1);
  }
  RANK_CHECK(WAIT_UNTIL(atomic_load(&s->made), slow_s(20)));
  RANK_CHECK(coll_comm_create(&comm, &s->id, nranks, rank, &config) == COLL_OK);
  RANK_CHECK(reduce_some(comm, rank, nranks, NULL) == 0);
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0)
    exit(try_inherited(inherited, comm));
  RANK_CHECK(reduce_some(comm, rank, nranks, NULL) == 0);
  RANK_CHECK(ends_well(pid));
  RANK_CHECK(reduce_some(comm, rank, nranks, NULL) == 0);
  REFUSED(coll_comm_destroy(&inherited));
  RANK_CHECK(coll_comm_destroy(&comm) == COLL_OK);
  RANK_CHECK(count_fds() == s->fds);
  atomic_fetch_add(&s->passed, 1);
  return 0;
}

static int fork_a_second_job(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  RANK_CHECK(reduce_some(comm, rank, nranks, NULL) == 0);
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0)
    exit(meet_other_children(s, comm, rank, nranks));
  RANK_CHECK(reduce_some(comm, rank, nranks, NULL) == 0);
  RANK_CHECK(ends_well(pid));
  return reduce_some(comm, rank, nranks, NULL);
}

static void run_second_job(const char *transport) {
  scene *s = make_scene(transport);
  run_scene(s, COLL_PROGRESS_OFF, fork_a_second_job);
  cr_expect_eq(atomic_load(&s->passed), RANKS);
}

Test(fork_calls, own_communicator_shm, .timeout = 100) {
  run_second_job("shm");
}
Test(fork_calls, own_communicator_tcp, .timeout = 100) {
  run_second_job("tcp");
}

/* An id's listener belongs to the process that made it; a child is a rank like any other. */
Test(fork_calls, inherited_id, .timeout = 60) {
  coll_id id;
  coll_comm *comm = NULL;
  cr_assert_eq(coll_unique_id(&id, NULL), COLL_OK);
  pid_t pid = fork();
  if (pid == 0) {
    coll_id copy = id;
    if (coll_unique_id_release(&copy) != COLL_OK)
      _exit(1);
    _exit(coll_comm_create(&comm, &id, 2, 0, NULL) != COLL_OK || coll_barrier(comm) != COLL_OK ||
          coll_comm_destroy(&comm) != COLL_OK);
  }
  cr_expect_eq(coll_comm_create(&comm, &id, 2, 1, NULL), COLL_OK);
  cr_expect_eq(coll_barrier(comm), COLL_OK);
  cr_expect(ends_well(pid));
  coll_comm_destroy(&comm);
}
