/*
 * plain_streams.c: stream-ordered and staged calls of ranks that are threads, on (fake) GPUs, on
 * several communicators at once, with an abort from outside: for ThreadSanitizer (Criterion does
 * not run under it). Exit status 0 if all went well.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/comm/comm.h"
#include "support_device.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

enum { RANKS = 3, ROUNDS = 40, DIRECT_ROUNDS = 15, LIMIT_S = 300 };

/* Collectives of changing kinds and sizes, in all forms. */
static int use(coll_comm *comm, int rank, int nranks, colli_cu_stream stream) {
  for (unsigned k = 0; k < (comm->direct ? DIRECT_ROUNDS : ROUNDS); k++) {
    test_case cases[4];
    for (unsigned i = 0; i < 4; i++)
      cases[i] =
          (test_case){.coll = (case_coll)((3 * k + i) % CASE_COLLS),
                      .form = k % 3 ? CASE_STREAMED + k % 2 : (case_form)(k / 3 % CASE_FORMS),
                      .type = COLL_FLOAT32,
                      .op = COLL_SUM,
                      .root = (int)k % nranks,
                      .count = 1 + 400 * i * k,
                      .seed = 10 * k + i,
                      .device = &device_memory,
                      .stream = stream,
                      .in_device = {i != 1, i != 2}};
    RANK_CHECK(case_run(comm, rank, nranks, cases, 4) == 0);
  }
  return 0;
}

/* A second communicator of a rank, with a thread of its own. */
typedef struct second {
  coll_comm *comm;
  int rank, nranks, result;
} second;

static void *use_second(void *arg) {
  second *s = arg;
  device_use(device_of_rank(s->rank));
  s->result = use(s->comm, s->rank, s->nranks, device_stream());
  return NULL;
}

/* Two threads of each rank, with communicators of one family. */
static int work(coll_comm *comm, int rank, int nranks, void *arg) {
  pthread_t thread;
  second s = {.rank = rank, .nranks = nranks};
  (void)arg;
  device_use(device_of_rank(rank));
  RANK_OK(coll_comm_dup(comm, NULL, &s.comm));
  RANK_OK(device_share(comm));
  RANK_OK(device_share(s.comm));
  RANK_CHECK(pthread_create(&thread, NULL, use_second, &s) == 0);
  const int result = use(comm, rank, nranks, device_stream());
  pthread_join(thread, NULL);
  RANK_OK(coll_comm_destroy(&s.comm));
  return result || s.result;
}

/* What the ranks of abort_streams() share. */
typedef struct scene {
  coll_comm *comm; /* rank 0's */
  bool meets;      /* not streams, but calls wait for the others' */
  atomic_int waiting, released;
} scene;

static void *abort_waiting(void *arg) {
  scene *s = arg;
  (void)WAIT_UNTIL(atomic_load(&s->waiting) == RANKS - 1, 60);
  coll_comm_abort(s->comm);
  return NULL;
}

/* Streams wait for a rank that makes no call, until another thread aborts rank 0. */
static int abort_streams(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  pthread_t thread;
  device_use(device_of_rank(rank));
  RANK_OK(device_share(comm));
  if (rank == nranks - 1) {
    RANK_CHECK(WAIT_UNTIL(atomic_load(&s->released) == nranks - 1, 60));
    return 0;
  }
  colli_cu_stream stream = device_stream();
  void *memory = device_memory.take(4000);
  if (rank == 0) {
    s->comm = comm;
    RANK_CHECK(pthread_create(&thread, NULL, abort_waiting, s) == 0);
  }
  for (int i = 0; i < 3; i++) {
    if (s->meets && i == 0)
      atomic_fetch_add(&s->waiting, 1);
    const coll_status status =
        coll_allreduce_on_stream(memory, memory, 1000, COLL_FLOAT32, COLL_SUM, comm, stream);
    RANK_CHECK(status == (s->meets ? COLL_ERR_ABORTED : COLL_OK));
  }
  if (!s->meets)
    atomic_fetch_add(&s->waiting, 1);
  device_await(stream);
  atomic_fetch_add(&s->released, 1);
  if (rank == 0)
    pthread_join(thread, NULL);
  RANK_CHECK(coll_comm_async_error(comm) == COLL_ERR_ABORTED);
  return 0;
}

int main(void) {
  alarm(LIMIT_S);
  device_use(0);
  EACH_MODE(i, 0, MODE_MEET) {
    scene s = {.meets = i == MODE_MEET};
    if (i == MODE_STAGED) /* so that calls have several parts */
      setenv("COLL_GPU_SLOT_BYTES", "16384", 1);
    else
      unsetenv("COLL_GPU_SLOT_BYTES");
    if (run_threads(RANKS, NULL, work, NULL) != 0 ||
        run_threads(RANKS, NULL, abort_streams, &s) != 0) {
      fprintf(stderr, "in mode %d\n", i);
      return 1;
    }
  }
  return 0;
}
