/*
 * plain_user_ops.c: threads that are ranks of two communicators use one operation of the process on
 * both, make and free operations of their own all the time, and the shared one is freed while it
 * runs. For ThreadSanitizer.
 */
#include <coll/coll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

enum { RANKS = 4, ROUNDS = 100, COUNT = 100 };

/* A rank: a thread. */
typedef struct worker {
  pthread_t thread;
  int rank;
  coll_comm *comms[2];
  int in[COUNT], out[3][COUNT];
  int failed; /* line */
} worker;

static coll_op shared;     /* made by the main thread, and freed by rank 0 */
static atomic_int started; /* ranks that need no more of the handle, or have failed */

#define OK(call)                                                                                   \
  do {                                                                                             \
    if ((call) != COLL_OK)                                                                         \
      return __LINE__;                                                                             \
  } while (0)

static void add(const void *left, const void *right, void *result, size_t count, coll_type type,
                void *context) {
  (void)type, (void)context;
  for (size_t i = 0; i < count; i++)
    ((int *)result)[i] = ((const int *)left)[i] + ((const int *)right)[i];
}

/* Whether all results are the sum over the ranks. */
static int are_sums(const worker *w) {
  for (int k = 0; k < 3; k++)
    for (int i = 0; i < COUNT; i++)
      if (w->out[k][i] != RANKS * i + RANKS * (RANKS - 1) / 2)
        return 0;
  return 1;
}

/* Starts operations on both communicators, and completes them. In the last round, rank 0 frees the
 * shared operation meanwhile. */
static int run_round(worker *w, int last) {
  coll_op own;
  coll_request *requests[3];
  OK(coll_op_create("own", add, NULL, 0, &own));
  OK(coll_iallreduce(w->in, w->out[0], COUNT, COLL_INT32, shared, w->comms[0], &requests[0]));
  OK(coll_iallreduce(w->in, w->out[1], COUNT, COLL_INT32, shared, w->comms[1], &requests[1]));
  OK(coll_iallreduce(w->in, w->out[2], COUNT, COLL_INT32, own, w->comms[1], &requests[2]));
  OK(coll_op_free(&own));
  if (last) {
    atomic_fetch_add(&started, 1);
    while (atomic_load(&started) < RANKS)
      sched_yield();
    if (w->rank == 0)
      OK(coll_op_free(&shared));
  }
  for (int i = 0; i < 3; i++)
    OK(coll_wait(&requests[i], -1));
  return are_sums(w) ? 0 : __LINE__;
}

/* The thread of a rank. */
static void *work(void *arg) {
  worker *w = arg;
  for (int i = 0; i < COUNT; i++)
    w->in[i] = i + w->rank;
  for (int round = 1; round <= ROUNDS && w->failed == 0; round++)
    w->failed = run_round(w, round == ROUNDS);
  if (w->failed)
    atomic_fetch_add(&started, RANKS);
  return NULL;
}

int main(void) {
  static worker workers[RANKS];
  coll_comm *comms[RANKS];
  int failed = 0;
  OK(coll_op_create("shared", add, NULL, 1, &shared));
  for (int c = 0; c < 2; c++) {
    OK(coll_comm_create_local(comms, RANKS, NULL));
    for (int rank = 0; rank < RANKS; rank++)
      workers[rank].comms[c] = comms[rank];
  }
  for (int rank = 0; rank < RANKS; rank++) {
    workers[rank].rank = rank;
    pthread_create(&workers[rank].thread, NULL, work, &workers[rank]);
  }
  for (int rank = 0; rank < RANKS; rank++) {
    pthread_join(workers[rank].thread, NULL);
    if (workers[rank].failed)
      fprintf(stderr, "rank %d failed at line %d\n", rank, workers[rank].failed);
    failed |= workers[rank].failed;
  }
  for (int rank = 0; rank < RANKS; rank++)
    for (int c = 0; c < 2; c++)
      coll_comm_destroy(&workers[rank].comms[c]);
  return failed != 0;
}
