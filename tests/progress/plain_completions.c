/*
 * plain_completions.c: two ranks, each a thread that owns a communicator and sleeps in
 * coll_wait_some() until work comes or ends. Another thread hands it work and wakes it; operations
 * end in callbacks on whichever thread notices. For ThreadSanitizer.
 */
#include <coll/coll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { RANKS = 2, JOBS = 400, TAG = 1 };

typedef struct worker {
  pthread_t thread, feeder;
  int rank;
  coll_comm *comm;
  pthread_mutex_t mutex; /* of the queue */
  int queued, taken;
  int in[JOBS], out[JOBS];
  atomic_int ended; /* callbacks with COLL_OK */
  int failed;       /* line */
} worker;

#define OK(call)                                                                                   \
  do {                                                                                             \
    if ((call) != COLL_OK)                                                                         \
      return __LINE__;                                                                             \
  } while (0)

/* Whichever thread this is, it wakes the worker. */
static void job_ended(void *context, coll_status status) {
  worker *w = context;
  if (status == COLL_OK)
    atomic_fetch_add(&w->ended, 1);
  (void)coll_wake(w->comm);
}

/* Hands over jobs. */
static void *feed(void *arg) {
  worker *w = arg;
  for (int i = 0; i < JOBS; i++) {
    pthread_mutex_lock(&w->mutex);
    w->queued++;
    pthread_mutex_unlock(&w->mutex);
    (void)coll_wake(w->comm);
  }
  return NULL;
}

/* How many jobs there are now. */
static int look(worker *w) {
  pthread_mutex_lock(&w->mutex);
  const int queued = w->queued;
  pthread_mutex_unlock(&w->mutex);
  return queued;
}

/* Starts job i: every third one is a message to the other rank, whose answer is the same job. */
static int start(worker *w, int i) {
  coll_request *send = NULL, *request = NULL;
  w->in[i] = w->rank + i;
  if (i % 3 != 0) {
    OK(coll_iallreduce(&w->in[i], &w->out[i], 1, COLL_INT32, COLL_SUM, w->comm, &request));
  } else {
    OK(coll_irecv(&w->out[i], 1, COLL_INT32, 1 - w->rank, TAG, NULL, w->comm, &request));
    OK(coll_isend(&w->in[i], 1, COLL_INT32, 1 - w->rank, TAG, w->comm, &send));
    OK(coll_request_set_callback(&send, job_ended, w));
  }
  OK(coll_request_set_callback(&request, job_ended, w));
  return 0;
}

/* Works until all jobs have ended. `never` keeps the waits busy: its message comes last. */
static int work(worker *w) {
  enum { ENDS = JOBS + (JOBS + 2) / 3 };
  coll_request *never = NULL;
  int nothing = 0, index, completed;
  OK(coll_irecv(&nothing, 1, COLL_INT32, 1 - w->rank, TAG + 1, NULL, w->comm, &never));
  while (atomic_load(&w->ended) < ENDS) {
    if (w->taken < look(w)) {
      const int failed = start(w, w->taken++);
      if (failed)
        return failed;
    } else if (coll_wait_some(&never, 1, &index, NULL, &completed, -1) != COLL_IN_PROGRESS) {
      return __LINE__;
    }
  }
  for (int i = 0; i < JOBS; i++)
    if (w->out[i] != (i % 3 ? 2 * i + 1 : 1 - w->rank + i))
      return __LINE__;
  OK(coll_barrier(w->comm)); /* before, the other one still sleeps on its own */
  OK(coll_send(&nothing, 1, COLL_INT32, 1 - w->rank, TAG + 1, w->comm));
  coll_status status = COLL_IN_PROGRESS;
  while (status == COLL_IN_PROGRESS) /* a wake may be left */
    status = coll_wait_all(&never, 1, NULL, -1);
  OK(status);
  return 0;
}

static void *thread_main(void *arg) {
  worker *w = arg;
  if (pthread_create(&w->feeder, NULL, feed, w) != 0)
    return NULL;
  w->failed = work(w);
  pthread_join(w->feeder, NULL);
  if (coll_comm_destroy(&w->comm) != COLL_OK && !w->failed)
    w->failed = __LINE__;
  return NULL;
}

/* All of it, with or without a progress thread. */
static int run(coll_progress progress) {
  static worker workers[RANKS];
  coll_comm *comms[RANKS];
  coll_config config = COLL_CONFIG_INIT;
  int result = 0, fd;
  config.progress = progress;
  if (coll_comm_create_local(comms, RANKS, &config) != COLL_OK)
    return 2;
  for (int r = 0; r < RANKS; r++) {
    workers[r] =
        (worker){.rank = r, .comm = comms[r], .mutex = PTHREAD_MUTEX_INITIALIZER, .failed = -1};
    if (progress == COLL_PROGRESS_ON && coll_comm_fd(comms[r], &fd) != COLL_OK)
      return 2;
    if (pthread_create(&workers[r].thread, NULL, thread_main, &workers[r]) != 0)
      return 2;
  }
  for (int r = 0; r < RANKS; r++) {
    pthread_join(workers[r].thread, NULL);
    if (workers[r].failed) {
      fprintf(stderr, "rank %d failed in line %d, progress %d\n", r, workers[r].failed, progress);
      result = 1;
    }
  }
  return result;
}

int main(void) {
  const int without = run(COLL_PROGRESS_OFF);
  return without ? without : run(COLL_PROGRESS_ON);
}
