/*
 * plain_shrink.c: ranks as threads that revoke, shrink and leave, in two groups at a time, and two
 * threads per rank that shrink communicators of one family. For ThreadSanitizer (Criterion does not
 * run under it). Exit status 0 if all went well.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "data.h"
#include "support_ranks.h"

enum { RANKS = 4, GENERATIONS = 3, COUNT = 3000 };

/* Sums over a communicator; whether the result is right. */
static coll_status sum(coll_comm *comm) {
  int rank, nranks;
  coll_comm_rank(comm, &rank);
  coll_comm_nranks(comm, &nranks);
  float *buf = malloc(COUNT * sizeof(*buf));
  data_fill(buf, COUNT, COLL_FLOAT32, COLL_SUM, rank, 3);
  coll_status status = coll_allreduce(buf, buf, COUNT, COLL_FLOAT32, COLL_SUM, comm);
  if (status == COLL_OK && data_wrong(buf, COUNT, COLL_FLOAT32, COLL_SUM, nranks, 3) > 0)
    status = COLL_ERR_INTERNAL;
  free(buf);
  return status;
}

/* In each generation one rank gives up and leaves; the others continue without it. */
static int work(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *mine = comm, *child;
  (void)arg;
  for (int left = 0; left < GENERATIONS; left++) {
    int left_ranks;
    RANK_CHECK(sum(mine) == COLL_OK);
    RANK_OK(coll_comm_shrink(mine, NULL, &child));
    if (mine != comm)
      coll_comm_destroy(&mine);
    mine = child;
    if (rank == nranks - 1 - left) {
      coll_comm_revoke(mine);
      coll_comm_destroy(&mine);
      return 0;
    }
    coll_status status;
    while ((status = sum(mine)) == COLL_OK)
      ;
    RANK_CHECK(status == COLL_ERR_ABORTED || status == COLL_ERR_PEER_LOST);
    RANK_OK(coll_comm_shrink(mine, NULL, &child));
    coll_comm_destroy(&mine);
    mine = child;
    coll_comm_nranks(mine, &left_ranks);
    RANK_CHECK(left_ranks == nranks - 1 - left);
  }
  if (mine != comm)
    coll_comm_destroy(&mine);
  return 0;
}

static void *shrink_other(void *arg) {
  coll_comm *child = NULL;
  coll_comm_shrink(arg, NULL, &child);
  return child;
}

/* Two threads a rank shrink two communicators of a family at the same time. */
static int shrink_twice_at_once(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *copy, *mine;
  pthread_t thread;
  void *other;
  (void)arg;
  (void)nranks;
  RANK_OK(coll_comm_dup(comm, NULL, &copy));
  RANK_CHECK(pthread_create(&thread, NULL, shrink_other, copy) == 0);
  RANK_OK(coll_comm_shrink(comm, NULL, &mine));
  pthread_join(thread, &other);
  coll_comm *theirs = other;
  RANK_CHECK(theirs && sum(mine) == COLL_OK && sum(theirs) == COLL_OK);
  coll_comm_destroy(&mine);
  coll_comm_destroy(&theirs);
  coll_comm_destroy(&copy);
  return 0;
}

/* One of two independent groups that run at the same time. */
static void *group(void *transport) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = transport;
  return run_threads(RANKS, &config, work, NULL) == 0 ? NULL : transport;
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
  return run_threads(RANKS, NULL, shrink_twice_at_once, NULL) != 0 ||
         run_processes(RANKS, NULL, shrink_twice_at_once, NULL, 30, NULL) != 0;
}
