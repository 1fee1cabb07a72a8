/*
 * plain_threads.c: ranks as threads, several communicators at once, an abort from outside: for
 * ThreadSanitizer (Criterion does not run under it). Exit status 0 if all went well.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "data.h"
#include "support_ranks.h"
#include "waits.h"

enum { RANKS = 4, ROUNDS = 30, COUNT = 5000, SHARED_ROUNDS = 6, SHARED_COUNT = 100000 };

/* Messages, all-reduces and broadcasts of changing sizes between two buffers. */
static int use(coll_comm *comm, int rank, int nranks, float *buf, float *out, int rounds,
               size_t most) {
  for (int round = 0; round < rounds; round++) {
    size_t count = most - (size_t)(round * 173) % most;
    coll_request *requests[2];
    int next = (rank + 1) % nranks, before = (rank + nranks - 1) % nranks;
    data_fill(buf, count, COLL_FLOAT32, COLL_SUM, rank, (uint64_t)round);
    RANK_OK(coll_irecv(out, count, COLL_FLOAT32, before, 0, NULL, comm, &requests[0]));
    RANK_OK(coll_isend(buf, count, COLL_FLOAT32, next, 0, comm, &requests[1]));
    RANK_OK(coll_wait(&requests[0], -1));
    RANK_OK(coll_wait(&requests[1], -1));
    RANK_CHECK(data_wrong_copy(out, count, COLL_FLOAT32, COLL_SUM, before, (uint64_t)round) == 0);
    RANK_OK(coll_allreduce(buf, out, count, COLL_FLOAT32, COLL_SUM, comm));
    RANK_CHECK(data_wrong(out, count, COLL_FLOAT32, COLL_SUM, nranks, (uint64_t)round) == 0);
    RANK_OK(coll_broadcast(buf, buf, count, COLL_FLOAT32, round % nranks, comm));
    RANK_OK(coll_barrier(comm));
  }
  return 0;
}

static int work(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  float *buf = malloc(COUNT * sizeof(*buf)), *out = malloc(COUNT * sizeof(*out));
  int result = use(comm, rank, nranks, buf, out, ROUNDS, COUNT);
  free(buf);
  free(out);
  for (int i = 0; i < 2 && result == 0; i++) { /* memory that the others read in place */
    RANK_OK(coll_mem_alloc(comm, SHARED_COUNT * sizeof(*buf), (void **)&buf));
    RANK_OK(coll_mem_alloc(comm, SHARED_COUNT * sizeof(*out), (void **)&out));
    result = use(comm, rank, nranks, buf, out, SHARED_ROUNDS, SHARED_COUNT);
    RANK_OK(coll_mem_free(comm, buf));
    RANK_OK(coll_mem_free(comm, out));
  }
  return result;
}

/* One of two independent groups that run at the same time. */
static void *group(void *transport) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = transport;
  return run_threads(RANKS, &config, work, NULL) == 0 ? NULL : transport;
}

/* What the ranks of aborted() share. */
typedef struct scene {
  coll_comm *comm; /* rank 0's */
  callers in_call;
  atomic_int failed;
} scene;

static void *abort_waiting(void *arg) {
  scene *s = arg;
  WAIT_UNTIL(all_wait_in_call(&s->in_call, RANKS, RANKS - 1), 60);
  coll_comm_abort(s->comm);
  return NULL;
}

/* All ranks wait for one that makes no call, until another thread aborts rank 0. */
static int aborted(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  pthread_t thread;
  int value = 0;
  if (rank == 0)
    s->comm = comm;
  if (rank == 0 && pthread_create(&thread, NULL, abort_waiting, s) != 0)
    return 2;
  if (rank == nranks - 1) {
    RANK_CHECK(WAIT_UNTIL(atomic_load(&s->failed) == nranks - 1, 60));
    return 0;
  }
  enters_call(&s->in_call, rank);
  coll_status status = coll_allreduce(&value, &value, 1, COLL_INT32, COLL_SUM, comm);
  atomic_fetch_add(&s->failed, 1);
  if (rank == 0)
    pthread_join(thread, NULL);
  RANK_CHECK(status == COLL_ERR_ABORTED);
  return 0;
}

int main(void) {
  char shm[] = "shm", tcp[] = "tcp";
  pthread_t threads[2];
  void *failed[2];
  if (pthread_create(&threads[0], NULL, group, shm) != 0 ||
      pthread_create(&threads[1], NULL, group, tcp) != 0)
    return 2;
  for (int i = 0; i < 2; i++)
    pthread_join(threads[i], &failed[i]);
  if (failed[0] || failed[1])
    return 1;
  scene s = {0};
  return run_threads(RANKS, NULL, aborted, &s) != 0;
}
