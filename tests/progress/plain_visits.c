/*
 * plain_visits.c: threads of one process, each a rank of two communicators that were created
 * separately. A thread that waits in one of them moves those of the others, which come and go
 * meanwhile, split theirs, and fork. For ThreadSanitizer.
 */
#include <coll/coll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, ROUNDS = 150, TAG = 1 };

typedef struct rank_thread {
  pthread_t thread;
  int rank;
  coll_comm *comms[2];
  int failed; /* line */
} rank_thread;

#define OK(call)                                                                                   \
  do {                                                                                             \
    if ((call) != COLL_OK)                                                                         \
      return __LINE__;                                                                             \
  } while (0)

/* Each rank sends to the next one of one communicator, and all meet in the other. */
static int exchange(rank_thread *self, int round) {
  coll_comm *one = self->comms[round % 2], *other = self->comms[1 - round % 2];
  int next = (self->rank + 1) % RANKS, before = (self->rank + RANKS - 1) % RANKS;
  int value = round, got = -1, sum = 0, one_more = 1;
  coll_request *request = NULL;
  OK(coll_isend(&value, 1, COLL_INT32, next, TAG, one, &request));
  OK(coll_allreduce(&one_more, &sum, 1, COLL_INT32, COLL_SUM, other));
  OK(coll_recv(&got, 1, COLL_INT32, before, TAG, NULL, one));
  OK(coll_wait(&request, -1));
  return sum == RANKS && got == round ? 0 : __LINE__;
}

/* A child that is forked meanwhile has no part in it, and ends. */
static int fork_child(rank_thread *self) {
  pid_t child = fork();
  if (child == 0)
    _exit(coll_barrier(self->comms[0]) == COLL_ERR_INVALID_USAGE ? 0 : 1);
  int status = -1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0 ? 0 : __LINE__;
}

static int run_rank(rank_thread *self) {
  coll_comm *child = NULL;
  for (int round = 0; round < ROUNDS; round++) {
    int failed = exchange(self, round);
    if (failed)
      return failed;
    if (round == ROUNDS / 2)
      OK(coll_comm_split(self->comms[0], self->rank % 2, 0, NULL, &child));
    if (round % 50 == 10 && self->rank == 1 && fork_child(self) != 0)
      return __LINE__;
  }
  OK(coll_barrier(child));
  OK(coll_comm_destroy(&child));
  return 0;
}

static void *thread_main(void *arg) {
  rank_thread *self = arg;
  self->failed = run_rank(self);
  for (int i = 0; i < 2; i++)
    if (coll_comm_destroy(&self->comms[i]) != COLL_OK && !self->failed)
      self->failed = __LINE__;
  return NULL;
}

int main(void) {
  rank_thread ranks[RANKS] = {0};
  int result = 0;
  for (int i = 0; i < 2; i++) {
    coll_comm *comms[RANKS];
    if (coll_comm_create_local(comms, RANKS, NULL) != COLL_OK)
      return 2;
    for (int r = 0; r < RANKS; r++)
      ranks[r].comms[i] = comms[r];
  }
  for (int r = 0; r < RANKS; r++) {
    ranks[r].rank = r;
    if (pthread_create(&ranks[r].thread, NULL, thread_main, &ranks[r]) != 0)
      return 2;
  }
  for (int r = 0; r < RANKS; r++) {
    pthread_join(ranks[r].thread, NULL);
    if (ranks[r].failed) {
      fprintf(stderr, "rank %d failed in line %d\n", r, ranks[r].failed);
      result = 1;
    }
  }
  return result;
}
