/*
 * test_train_join.c: a worker joins a run of the trainer, with each strategy that can do without a
 * rank; also in place of a worker that was killed.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/proc/support_train.h"
#include "trainer/program.h"
#include "trainer/ranks.h"
#include "waits.h"

enum { EPOCHS = 12, NOBODY = -1 };

/* In memory that all processes share. */
typedef struct scene {
  job j;
  char offer[128]; /* --join-file */
  uint64_t seed;   /* of the process that joins, if not 0 */
  int killed;      /* a rank that is killed when the other process waits; NOBODY */
  pid_t pids[JOB_MOST_RANKS];
  atomic_int ended; /* epochs */
  fail why;         /* of the process that joins */
} scene;

static scene *shared;

coll_status __real_coll_comm_joiners(coll_comm *comm, int *count);
coll_status __wrap_coll_comm_joiners(coll_comm *comm, int *count);

/* Rank 0 counts waiting processes. It reports none after the first epoch, and waits for one after
 * the second; after the third, too, if there is a new rank 0 by then. */
coll_status __wrap_coll_comm_joiners(coll_comm *comm, int *count) {
  int rank;
  coll_status status = COLL_OK;
  coll_comm_rank(comm, &rank);
  *count = 0;
  if (rank != 0)
    return COLL_OK;
  int epoch = atomic_fetch_add(&shared->ended, 1);
  if (epoch > 0)
    status = __real_coll_comm_joiners(comm, count);
  if (epoch == 1 || (epoch == 2 && shared->killed == 0))
    (void)WAIT_UNTIL((status = __real_coll_comm_joiners(comm, count)) != COLL_OK || *count > 0, 40);
  if (epoch == 1 && shared->killed != NOBODY) {
    *count = 0; /* the others must not know yet */
    kill(shared->pids[shared->killed], SIGKILL);
  }
  return status;
}

static void note_pid(int rank) {
  shared->pids[rank] = getpid();
}

/* The process that joins, as it ends. */
static int newcomer(void) {
  options o = shared->j.o;
  fail *why = &shared->why;
  dataset data;
  coll_comm *comm = NULL;
  o.join = true;
  o.seed = shared->seed ? shared->seed : o.seed;
  bool ok = WAIT_UNTIL(access(shared->offer, F_OK) == 0, 40) &&
            dataset_load(&data, shared->j.folder, 64, why) && join_run(&o, &comm, why) &&
            train(&o, model_asked_for, comm, &data, why);
  coll_comm_destroy(&comm);
  return ok ? 0 : 1;
}

/* Runs a job with another process that joins. Returns that one's exit status. */
static int run_and_join(const char *how, int nranks, int killed, uint64_t seed) {
  int results[JOB_MOST_RANKS], status;
  shared = shared_memory(sizeof(*shared));
  shared->j = job_make(how);
  job *j = &shared->j;
  j->o.epochs = EPOCHS;
  snprintf(shared->offer, sizeof(shared->offer), "%s/offer", j->folder);
  j->o.join_file = shared->offer;
  j->before = note_pid;
  shared->killed = killed;
  shared->seed = seed;
  pid_t pid = fork();
  if (pid == 0)
    _exit(newcomer());
  job_run(j, nranks, results);
  cr_assert_eq(waitpid(pid, &status, 0), pid);
  for (int r = 0; r < nranks; r++)
    cr_assert_eq(results[r], r == killed ? 128 + SIGKILL : 0, "%s: rank %d: %d: %s", how, r,
                 results[r], j->out->why[r].text);
  cr_expect_neq(access(shared->offer, F_OK), 0, "%s: the file is left", how);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The ranks themselves compare their weights after each epoch. */
static void check_joined(const char *how, int nranks, int killed) {
  cr_assert_eq(run_and_join(how, nranks, killed, 0), 0, "%s: %s", how, shared->why.text);
  const job *j = &shared->j;
  curve c = job_curve(j);
  cr_assert_geq(c.epochs, EPOCHS);
  cr_assert_eq(job_number(j, 0, "ranks"), nranks);
  cr_assert_eq(job_number(j, c.epochs - 1, "ranks"), nranks + (killed == NOBODY), "%s", how);
  cr_assert_lt(c.train_loss[c.epochs - 1], c.train_loss[0] / 2, "%s", how);
  cr_assert_gt(c.test_accuracy, 0.8, "%s: %g", how, c.test_accuracy);
  job_drop(&shared->j);
}

static const char *const strategies[] = {"allreduce",
                                         "zero1",
                                         "ps-sync",
                                         "ps-async",
                                         "ps-bounded",
                                         "ps-sharded",
                                         "ps-sharded --servers 2",
                                         "local-sgd --local-steps 4",
                                         "easgd --local-steps 2",
                                         "gossip --local-steps 2",
                                         "zero1 --optimizer adam --lr 0.01",
                                         "allreduce --wire int8"};
enum { STRATEGIES = sizeof(strategies) / sizeof(*strategies) };

static void with_each(int nranks, int killed) {
  for (int i = 0; i < STRATEGIES; i++) {
    char how[80];
    snprintf(how, sizeof(how), "--strategy %s", strategies[i]);
    check_joined(how, nranks, killed);
  }
}

Test(train_join, one_joins, .timeout = 300) {
  with_each(3, NOBODY);
  check_joined("--strategy allreduce", 1, NOBODY);
}

Test(train_join, in_place_of_a_killed_one, .timeout = 300) {
  with_each(3, 1);
  with_each(3, 2); /* a server, where there is one */
}

/* The next rank 0 writes another file, which the process reads. */
Test(train_join, in_place_of_rank_0, .timeout = 300) {
  for (int i = 0; i < STRATEGIES; i += 5) {
    char how[80];
    snprintf(how, sizeof(how), "--strategy %s", strategies[i]);
    check_joined(how, 3, 0);
  }
}

/* A process with other options ends, and the others go on without it. */
Test(train_join, with_other_options, .timeout = 100) {
  cr_assert_eq(run_and_join("--strategy allreduce", 2, NOBODY, 7), 1);
  cr_expect(strstr(shared->why.text, "different options"), "%s", shared->why.text);
  cr_assert_eq(job_number(&shared->j, EPOCHS - 1, "ranks"), 2);
  job_drop(&shared->j);
}

/* Writes a file and tells what stat() says of it. */
static struct stat write_file(const char *path, const char *text) {
  struct stat info;
  FILE *file = fopen(path, "w");
  cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0 && stat(path, &info) == 0);
  return info;
}

/* A rank 0 that the others have left behind does not remove the file of the next rank 0. */
Test(train_join, offer_of_another_rank) {
  char path[] = "/tmp/coll-offer-XXXXXX", next[sizeof(path) + 5];
  int fd = mkstemp(path);
  cr_assert(fd >= 0 && close(fd) == 0);
  options o = {.join_file = path};
  worker w = {.o = &o, .offer = write_file(path, "mine")};
  snprintf(next, sizeof(next), "%s.next", path);
  write_file(next, "another");
  cr_assert_eq(rename(next, path), 0);
  join_end(&w);
  cr_assert_eq(stat(path, &w.offer), 0, "the file of another rank is gone");
  join_end(&w);
  cr_assert_neq(access(path, F_OK), 0, "the rank's own file is left");
}
