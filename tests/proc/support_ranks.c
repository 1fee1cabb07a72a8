/* support_ranks.c: runs one function on many ranks, as threads or as processes. */
#include "support_ranks.h"
#include "waits.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* How many times slower this machine is (TEST_SLOW). */
static double slowness(void) {
  const char *factor = getenv("TEST_SLOW");
  return factor ? atof(factor) : 1;
}

double slow_s(double seconds) {
  return seconds * slowness() * slowness();
}

int slow_ms(int ms) {
  return (int)(ms * slowness());
}

void *shared_memory(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    abort();
  return memory;
}

void enters_call(callers *c, int rank) {
  atomic_store(&c->thread[rank], gettid());
}

bool waits_in_call(callers *c, int rank) {
  return sleeps(atomic_load(&c->thread[rank]));
}

bool all_wait_in_call(callers *c, int nranks, int but) {
  for (int r = 0; r < nranks; r++)
    if (r != but && !waits_in_call(c, r))
      return false;
  return true;
}

int count_fds(void) {
  DIR *dir = opendir("/proc/self/fd");
  int count = -3; /* ".", ".." and the directory itself */
  while (dir && readdir(dir))
    count++;
  if (dir)
    closedir(dir);
  return count;
}

typedef struct thread_rank {
  pthread_t thread;
  coll_comm *comm;
  int rank, nranks;
  rank_fn fn;
  void *arg;
  int result;
} thread_rank;

static void *thread_main(void *arg) {
  thread_rank *self = arg;
  self->result = self->fn(self->comm, self->rank, self->nranks, self->arg);
  coll_comm_destroy(&self->comm);
  return NULL;
}

/*
 * The configuration of a test. In the virtual machine with a verbs device TEST_TRANSPORT replaces
 * the transport that a test asks for.
 */
static coll_config configure(const coll_config *config) {
  coll_config made = config ? *config : (coll_config)COLL_CONFIG_INIT;
  const char *instead = getenv("TEST_TRANSPORT");
  if (instead)
    made.transport = instead;
  return made;
}

int transports_tried(void) {
  return getenv("TEST_TRANSPORT") ? 1 : 2;
}

int run_threads(int nranks, const coll_config *config, rank_fn fn, void *arg) {
  coll_comm **comms = calloc((size_t)nranks, sizeof(*comms));
  thread_rank *ranks = calloc((size_t)nranks, sizeof(*ranks));
  coll_config made = configure(config);
  int result = -1;
  if (comms && ranks && coll_comm_create_local(comms, nranks, &made) == COLL_OK) {
    result = 0;
    for (int r = 0; r < nranks; r++) {
      ranks[r] = (thread_rank){
          .comm = comms[r], .rank = r, .nranks = nranks, .fn = fn, .arg = arg, .result = -1};
      if (pthread_create(&ranks[r].thread, NULL, thread_main, &ranks[r]) != 0)
        abort();
    }
    for (int r = 0; r < nranks; r++)
      pthread_join(ranks[r].thread, NULL);
    for (int r = 0; r < nranks && result == 0; r++)
      result = ranks[r].result;
  }
  free(comms);
  free(ranks);
  return result;
}

/* Memory that the forked ranks share, with their id. */
typedef struct shared_id {
  atomic_int ready;
  coll_id id;
} shared_id;

/* The rank that TEST_MAKER names makes the id, without it rank 0; the others wait for it. */
static int get_id(shared_id *shared, const coll_config *config, int rank, int nranks) {
  const char *maker = getenv("TEST_MAKER");
  if (rank == (maker ? atoi(maker) % nranks : 0)) {
    coll_status status = coll_unique_id(&shared->id, config);
    atomic_store(&shared->ready, status == COLL_OK ? 1 : -1);
  }
  (void)WAIT_UNTIL(atomic_load(&shared->ready), 60);
  return atomic_load(&shared->ready);
}

/* Lets a rank believe that it is on one of several hosts (TEST_HOSTS), two in a rack and two racks
 * at a site (TEST_LEVELS), or in five levels of unequal groups (TEST_LEVELS=5). */
static void pretend_host(int rank, int nranks) {
  const char *hosts = getenv("TEST_HOSTS");
  if (!hosts)
    return;
  char text[64];
  const char *levels = getenv("TEST_LEVELS");
  const int host = rank * atoi(hosts) / nranks;
  snprintf(text, sizeof(text), "host%d", host);
  setenv("COLL_HOST_ID", text, 1);
  if (levels && strcmp(levels, "5") == 0)
    snprintf(text, sizeof(text), "%d@1ms/%d/%d/%d/%d", host / 6, host / 4, host / 3, host / 2,
             host == 1);
  else
    snprintf(text, sizeof(text), "site%d@1ms/rack%d", host / 4, host / 2);
  if (levels)
    setenv("COLL_LEVELS", text, 1);
}

/* Runs one forked rank. */
static int process_main(shared_id *shared, const coll_config *config, int rank, int nranks,
                        rank_fn fn, void *arg) {
  coll_comm *comm = NULL;
  coll_error error = COLL_ERROR_INIT;
  coll_config with_error = configure(config);
  with_error.error = &error;
  pretend_host(rank, nranks);
  if (get_id(shared, config, rank, nranks) != 1 ||
      coll_comm_create(&comm, &shared->id, nranks, rank, &with_error) != COLL_OK) {
    fprintf(stderr, "rank %d: create: %s\n", rank, error.message);
    return 120;
  }
  int result = fn(comm, rank, nranks, arg);
  coll_comm_destroy(&comm);
  return result;
}

/* A rank's process. */
typedef struct child {
  pid_t pid;
  bool ended;
  int result; /* exit status, 128 + signal, or 124 */
} child;

/* Checks whether a child has ended or stopped. */
static void look_after(child *c) {
  int status = 0;
  pid_t got = waitpid(c->pid, &status, WNOHANG);
  if (got < 0 && errno != EINTR)
    *c = (child){c->pid, true, 126};
  if (got != c->pid)
    return;
  c->ended = true;
  c->result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Whether all children have ended but stopped ones. Stopped ones are looked for last: one that
 * another child has killed or woken up before its own end is not shown as stopped then. */
static bool are_done(child *children, int count) {
  for (int i = 0; i < count; i++)
    if (!children[i].ended)
      look_after(&children[i]);
  for (int i = 0; i < count; i++)
    if (!children[i].ended && task_state(children[i].pid) != 'T')
      return false;
  return true;
}

/* Waits at most `seconds` for all children, then kills those that are left. */
static void wait_children(child *children, int count, double seconds) {
  (void)WAIT_UNTIL(are_done(children, count), seconds);
  for (int i = 0; i < count; i++) {
    if (children[i].ended)
      continue;
    kill(children[i].pid, SIGKILL);
    waitpid(children[i].pid, NULL, 0);
    children[i].result = 124;
  }
}

int run_processes(int nranks, const coll_config *config, rank_fn fn, void *arg, int limit_s,
                  int *results) {
  shared_id *shared =
      mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  child *children = calloc((size_t)nranks, sizeof(*children));
  if (shared == MAP_FAILED || !children)
    abort();
  fflush(NULL);
  for (int r = 0; r < nranks; r++) {
    pid_t pid = fork();
    if (pid == 0) {
      free(children);
      exit(process_main(shared, config, r, nranks, fn, arg));
    }
    children[r] = (child){pid, pid < 0, 126};
  }
  wait_children(children, nranks, limit_s * slowness());
  int first = 0;
  for (int r = 0; r < nranks; r++) {
    if (results)
      results[r] = children[r].result;
    if (first == 0)
      first = children[r].result;
  }
  free(children);
  munmap(shared, sizeof(*shared));
  return first;
}

int run_in_all_ways(int most, int step, int processes, rank_fn fn, void *arg) {
  const char *transports[] = {"shm", "tcp"};
  int result = 0;
  for (int t = 0; t < transports_tried(); t++)
    for (int progress = COLL_PROGRESS_OFF; progress <= COLL_PROGRESS_ON; progress++) {
      coll_config config = COLL_CONFIG_INIT;
      config.transport = transports[t];
      config.progress = (coll_progress)progress;
      for (int nranks = 1; result == 0 && nranks <= most; nranks += step)
        result = run_threads(nranks, &config, fn, arg);
      if (result == 0)
        result = run_processes(processes, &config, fn, arg, 60, NULL);
    }
  return result;
}
