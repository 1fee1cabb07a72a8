/*
 * plain_comm_threads.c: several threads of a rank use communicators of one family and of several
 * families at the same time, and destroy the last two of a family. Two threads in one communicator
 * are refused. For ThreadSanitizer (Criterion does not run under it). Exit status 0 if all went
 * well.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sanitized.h"
#include "support_family.h"
#include "support_ranks.h"
#include "waits.h"

enum { MOST = SANITIZED_THREAD ? 30000 : 300000 }; /* large enough to take time */
enum { RANKS = 3, THREADS = 5, ROUNDS = 16, PARTINGS = 20 };

/* What one thread of a rank works on. */
typedef struct worker {
  pthread_t thread;
  coll_comm *comm;
  unsigned seed;
  int result;
} worker;

/* Uses a communicator, and splits, uses and destroys children of it. */
static int use(coll_comm *comm, unsigned seed) {
  int rank = -1;
  coll_comm_rank(comm, &rank);
  for (unsigned round = 0; round < ROUNDS; round++) {
    coll_comm *child = NULL;
    size_t count = round * 19177 % MOST; /* up to many messages */
    RANK_CHECK(family_exercise(comm, count, seed + round) == 0);
    RANK_OK(coll_comm_split(comm, (int)(round + (unsigned)rank) % 2, -rank, NULL, &child));
    RANK_CHECK(family_exercise(child, round * 53, seed - round) == 0);
    coll_comm_destroy(&child);
  }
  return 0;
}

static void *work(void *arg) {
  worker *self = arg;
  self->result = use(self->comm, self->seed);
  return NULL;
}

/* Each thread of each rank has a child of its own, and rank's first thread the parent. */
static int family(coll_comm *comm, int rank, int nranks, void *arg) {
  worker workers[THREADS];
  (void)nranks;
  (void)arg;
  for (unsigned t = 0; t < THREADS; t++) {
    workers[t] = (worker){.seed = 100 * t + 1000, .result = -1};
    RANK_OK(coll_comm_dup(comm, NULL, &workers[t].comm));
  }
  for (int t = 0; t < THREADS; t++)
    if (pthread_create(&workers[t].thread, NULL, work, &workers[t]) != 0)
      return 2;
  int result = use(comm, 77);
  for (int t = 0; t < THREADS; t++) {
    pthread_join(workers[t].thread, NULL);
    result = result ? result : workers[t].result;
    coll_comm_destroy(&workers[t].comm);
  }
  return result;
}

/* One of the families. */
static void *families(void *transport) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = transport;
  return run_threads(RANKS, &config, family, NULL) == 0 ? NULL : transport;
}

/* A thread that waits inside a communicator until it is aborted. */
typedef struct waiter {
  coll_comm *comm;
  atomic_int begun;
  coll_status status;
} waiter;

static void *wait_inside(void *arg) {
  waiter *self = arg;
  coll_request *request = NULL;
  self->status = coll_ibarrier(self->comm, &request);
  atomic_store(&self->begun, 1);
  if (self->status == COLL_OK)
    self->status = coll_wait(&request, -1);
  return NULL;
}

/* Calls into a communicator that another thread is in: refused with a reason. */
static int intrude(coll_comm *comm, int rank) {
  waiter other = {.comm = comm};
  pthread_t thread;
  coll_error error = COLL_ERROR_INIT;
  coll_status status;
  void *value;
  if (pthread_create(&thread, NULL, wait_inside, &other) != 0)
    return 2;
  RANK_CHECK(WAIT_UNTIL(atomic_load(&other.begun), 60));
  do /* between its two calls the other thread is outside */
    status = coll_comm_get_attr(comm, &other, &value);
  while (status == COLL_OK);
  RANK_CHECK(status == COLL_ERR_INVALID_USAGE);
  RANK_CHECK(coll_last_error(comm, &error) == COLL_OK);
  RANK_CHECK(error.status == COLL_ERR_INVALID_USAGE && strstr(error.message, "two threads"));
  RANK_CHECK(coll_barrier(comm) == COLL_ERR_INVALID_USAGE);
  coll_comm *same = comm;
  RANK_CHECK(coll_comm_destroy(&same) == COLL_ERR_INVALID_USAGE && same == comm);
  RANK_CHECK(coll_comm_abort(comm) == COLL_OK);
  pthread_join(thread, NULL);
  RANK_CHECK(other.status == COLL_ERR_ABORTED);
  RANK_CHECK(coll_last_error(comm, &error) == COLL_OK && error.status == COLL_ERR_ABORTED);
  return 0;
}

/* The communicator, and whether rank 0 is done with it. */
typedef struct scene {
  int on_child;
  atomic_int over;
} scene;

/* Rank 0 runs the test; the other rank makes no call meanwhile, and then gets the abort. */
static int misuse(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_comm *child = NULL;
  int result = 0;
  (void)nranks;
  if (s->on_child)
    RANK_OK(coll_comm_dup(comm, NULL, &child));
  if (rank == 0) {
    result = intrude(child ? child : comm, rank);
    atomic_store(&s->over, 1);
  } else {
    RANK_CHECK(WAIT_UNTIL(atomic_load(&s->over), 60));
    RANK_CHECK(coll_barrier(child ? child : comm) == COLL_ERR_ABORTED);
  }
  coll_comm_destroy(&child);
  return result;
}

/* ---- the end of a family ---- */

typedef struct parting {
  pthread_t thread;
  coll_comm *child;
} parting;

static void *destroy_child(void *arg) {
  parting *self = arg;
  return coll_comm_destroy(&self->child) == COLL_OK ? NULL : self;
}

/* A thread destroys the child, while the rank's own destroys the base. */
static int part(coll_comm *comm, int rank, int nranks, void *arg) {
  parting *self = (parting *)arg + rank;
  (void)nranks;
  RANK_OK(coll_comm_dup(comm, NULL, &self->child));
  RANK_CHECK(pthread_create(&self->thread, NULL, destroy_child, self) == 0);
  return 0;
}

static int part_often(void) {
  for (int round = 0; round < PARTINGS; round++) {
    parting ranks[2];
    if (run_threads(2, NULL, part, ranks) != 0)
      return 1;
    for (int r = 0; r < 2; r++) {
      void *failed;
      pthread_join(ranks[r].thread, &failed);
      if (failed)
        return 1;
    }
  }
  return 0;
}

int main(void) {
  char shm[] = "shm", tcp[] = "tcp";
  pthread_t threads[2];
  void *failed[2];
  if (pthread_create(&threads[0], NULL, families, shm) != 0 ||
      pthread_create(&threads[1], NULL, families, tcp) != 0)
    return 2;
  for (int i = 0; i < 2; i++)
    pthread_join(threads[i], &failed[i]);
  if (failed[0] || failed[1])
    return 1;
  scene on_base = {.on_child = 0}, on_child = {.on_child = 1};
  return run_threads(2, NULL, misuse, &on_base) || run_threads(2, NULL, misuse, &on_child) ||
         part_often();
}
