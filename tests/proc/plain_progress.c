/*
 * plain_progress.c: progress threads and threads of the program at the same time: operations of all
 * forms on a base and its children, aborts, and destruction while operations are in flight. For
 * ThreadSanitizer (Criterion does not run under it). Exit status 0 if all went well.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "sanitized.h"
#include "support_family.h"
#include "support_ranks.h"
#include "waits.h"

enum { MOST = SANITIZED_THREAD ? 30000 : 300000 }; /* large enough to take time */
enum { RANKS = 3, THREADS = 2, ROUNDS = 8, PENDING = 3 };

/* What one thread of a rank works on. */
typedef struct worker {
  pthread_t thread;
  coll_comm *comm;
  unsigned seed;
  int result;
} worker;

/* Runs operations that are in flight while the thread is in no call, and others that it waits in.
 * */
static int use(coll_comm *comm, unsigned seed) {
  int rank = -1;
  coll_comm_rank(comm, &rank);
  for (unsigned round = 0; round < ROUNDS; round++) {
    family_pending pending[PENDING];
    coll_request *barrier = NULL;
    coll_status status = COLL_IN_PROGRESS;
    for (unsigned k = 0; k < PENDING; k++)
      RANK_CHECK(family_start(&pending[k], comm, round * k * 9177 % MOST, seed + k) == 0);
    RANK_OK(coll_ibarrier(comm, &barrier));
    be_late(round * 0.3);
    RANK_CHECK(family_exercise(comm, round * 137, seed + round) == 0);
    while (status == COLL_IN_PROGRESS)
      status = coll_test(&barrier);
    RANK_OK(status);
    for (int k = 0; k < PENDING; k++)
      RANK_CHECK(family_finish(&pending[k]) == 0);
  }
  return 0;
}

static void *work(void *arg) {
  worker *self = arg;
  self->result = use(self->comm, self->seed);
  return NULL;
}

/* Each thread of each rank has a child of its own, and rank's first thread the base. */
static int family(coll_comm *comm, int rank, int nranks, void *arg) {
  worker workers[THREADS];
  (void)nranks;
  (void)arg;
  RANK_CHECK(use(comm, 1) == 0); /* alone */
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

/* Each rank starts an operation that never ends; rank 0 aborts, and all ranks see it. */
static int aborted(coll_comm *comm, int rank, int nranks, void *arg) {
  int value = rank, sum = 0;
  coll_request *request = NULL;
  (void)arg;
  coll_status status =
      coll_irecv(&value, 1, COLL_INT32, (rank + 1) % nranks, 9, NULL, comm, &request);
  if (rank == 0)
    RANK_OK(coll_comm_abort(comm));
  /* no request: the notice had arrived before */
  RANK_CHECK(WAIT_UNTIL(!request || (status = coll_test(&request)) != COLL_IN_PROGRESS, 60));
  RANK_CHECK(status == COLL_ERR_ABORTED);
  RANK_CHECK(coll_allreduce(&value, &sum, 1, COLL_INT32, COLL_SUM, comm) == COLL_ERR_ABORTED);
  return 0;
}

/* Destroys a communicator at once, or with operations in flight that nobody completes. */
static int deserted(coll_comm *comm, int rank, int nranks, void *arg) {
  static int in[MOST], out[RANKS][MOST];
  coll_request *request = NULL;
  (void)nranks;
  (void)arg;
  if (rank > 0) {
    coll_status status = coll_iallreduce(in, out[rank], MOST, COLL_INT32, COLL_SUM, comm, &request);
    RANK_CHECK(status == COLL_OK || status == COLL_ERR_PEER_LOST);
    be_late(rank);
  }
  return 0;
}

int main(void) {
  const char *const transports[] = {"shm", "tcp"};
  rank_fn const functions[] = {family, aborted, deserted};
  int failed = 0;
  for (int t = 0; t < 2; t++)
    for (size_t f = 0; f < sizeof(functions) / sizeof(*functions); f++) {
      coll_config config = COLL_CONFIG_INIT;
      config.transport = transports[t];
      config.progress = COLL_PROGRESS_ON;
      failed |= run_threads(RANKS, &config, functions[f], NULL);
    }
  return failed != 0;
}
