/*
 * plain_p2p_threads.c: messages and puts on two communicators of one family from two threads of
 * each rank at once. For ThreadSanitizer. Exit status 0 if all went well.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_ranks.h"

enum { RANKS = 3, ROUNDS = 12, MAX_COUNT = 30000 };

/* What one thread works on. */
typedef struct worker {
  pthread_t thread;
  coll_comm *comm;
  int salt;
  int result;
} worker;

/* Everybody sends to everybody, and receives from any source. */
static int exchange(coll_comm *comm, int rank, int nranks, int round, int salt, int *buf) {
  int count = round % 3 ? round * 7 + 1 : MAX_COUNT, sum = 0, wanted = 0;
  coll_request *sends[RANKS];
  int *out = buf, *in = buf + MAX_COUNT;
  for (int i = 0; i < count; i++)
    out[i] = rank + salt + i;
  for (int peer = 0; peer < nranks; peer++)
    RANK_OK(coll_isend(out, (size_t)count, COLL_INT32, peer, round, comm, &sends[peer]));
  for (int i = 0; i < nranks; i++) {
    coll_message message;
    RANK_OK(coll_recv(in, MAX_COUNT, COLL_INT32, COLL_ANY_SOURCE, round, &message, comm));
    RANK_CHECK(message.count == (size_t)count);
    for (int at = 0; at < count; at++)
      RANK_CHECK(in[at] == message.source + salt + at);
    sum += message.source;
    wanted += i;
  }
  for (int peer = 0; peer < nranks; peer++)
    RANK_OK(coll_wait(&sends[peer], -1));
  RANK_CHECK(sum == wanted);
  return 0;
}

/* A ring of puts. */
static int put_around(coll_comm *comm, coll_window *window, int rank, int nranks, int round,
                      int salt, const int *memory) {
  int value = round + salt, next = (rank + 1) % nranks, before = (rank + nranks - 1) % nranks;
  RANK_OK(coll_put(&value, 1, COLL_INT32, next, sizeof(int) * (size_t)round, window, comm));
  RANK_OK(coll_signal(next, window, comm));
  RANK_OK(coll_wait_signal(before, 1, window, comm));
  RANK_CHECK(memory[round] == round + salt);
  return 0;
}

/* All rounds of a rank on one communicator. */
static int run_rounds(coll_comm *comm, int salt) {
  int rank = -1, nranks = 0, memory[ROUNDS];
  coll_comm_rank(comm, &rank);
  coll_comm_nranks(comm, &nranks);
  int *buf = malloc(sizeof(int) * 2 * MAX_COUNT);
  coll_window *window;
  RANK_OK(coll_window_create(comm, memory, sizeof(memory), &window));
  for (int round = 0; round < ROUNDS; round++) {
    RANK_CHECK(exchange(comm, rank, nranks, round, salt, buf) == 0);
    RANK_CHECK(put_around(comm, window, rank, nranks, round, salt, memory) == 0);
    RANK_OK(coll_barrier(comm));
  }
  RANK_OK(coll_window_destroy(&window));
  free(buf);
  return 0;
}

static void *run_worker(void *arg) {
  worker *self = arg;
  self->result = run_rounds(self->comm, self->salt);
  return NULL;
}

static int two_threads(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  worker workers[2] = {{.salt = 1000, .result = -1}, {.salt = 2000, .result = -1}};
  for (int t = 0; t < 2; t++)
    RANK_OK(coll_comm_dup(comm, NULL, &workers[t].comm));
  for (int t = 0; t < 2; t++)
    RANK_CHECK(pthread_create(&workers[t].thread, NULL, run_worker, &workers[t]) == 0);
  int failed = run_rounds(comm, 3000);
  for (int t = 0; t < 2; t++) {
    pthread_join(workers[t].thread, NULL);
    failed |= workers[t].result;
    coll_comm_destroy(&workers[t].comm);
  }
  return failed != 0;
}

int main(void) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < 2; t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    if (run_threads(RANKS, &config, two_threads, NULL) != 0)
      return 1;
  }
  return 0;
}
