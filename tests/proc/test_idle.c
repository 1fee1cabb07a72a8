/*
 * test_idle.c: a waiting rank takes next to no processor time, whatever it waits in. This is
 * measured by the system's CPU time counters. They do not advance while other processes run, but
 * they do while a hypervisor runs something else; and on a busy machine a rank may come too late to
 * wait at all. So a scene with a bad wait is repeated.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sanitized.h"
#include "support_ranks.h"
#include "waits.h"

/* Here the length of a wait is what is tested: it has to be long beside what is used at its begin.
 */
enum { LATE_MS = 150, VERY_LATE_MS = 1000, SHORT_MS = 10, SHORT_WAITS = 40 };
/* The most of a core that a wait may take; instrumented code takes several times more. */
#define SHARE    (SANITIZED ? 0.15 : 0.05)
#define GREEDY   9 /* a rank's result: all went well except a bad wait */
#define ATTEMPTS 3

/* What is measured; ranks that are threads share it. */
typedef struct watch {
  clockid_t counter;   /* of the whole process where a rank is a process */
  atomic_int failures; /* bad waits */
} watch;

/* The clocks when a wait began. */
typedef struct meter {
  watch *of;
  double used_s, at_s;
} meter;

static double seconds_of(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static meter start_meter(watch *of) {
  return (meter){of, seconds_of(of->counter), now_s()};
}

/* Counts a wait that was too short or took too much processor time. */
static void end_meter(const meter *m, double least_ms, const char *what) {
  double used_s = seconds_of(m->of->counter) - m->used_s, waited_s = now_s() - m->at_s;
  if (waited_s >= least_ms / 2000 && used_s < SHARE * waited_s)
    return;
  fprintf(stderr, "%s: used %.2f ms of %.2f ms (at least %.0f ms were to be waited)\n", what,
          used_s * 1e3, waited_s * 1e3, least_ms);
  atomic_fetch_add(&m->of->failures, 1);
}

/* The result of a rank whose calls all succeeded. */
static int verdict(watch *of) {
  return atomic_load(&of->failures) ? GREEDY : 0;
}

/* The last rank makes its call late; the waits of the others are measured. */
#define LATE_BY(ms, call)                                                                          \
  do {                                                                                             \
    if (rank == nranks - 1)                                                                        \
      be_late(ms);                                                                                 \
    meter meter_ = start_meter(arg);                                                               \
    RANK_OK(call);                                                                                 \
    if (rank < nranks - 1)                                                                         \
      end_meter(&meter_, ms, #call);                                                               \
  } while (0)
#define LATE(call) LATE_BY(LATE_MS, call)

/* All ranks begin the next wait together. */
#define TOGETHER RANK_OK(coll_barrier(comm))

static int collectives(coll_comm *comm, int rank, int nranks, void *arg) {
  int value = rank, sum = 0;
  coll_comm *child = NULL;
  TOGETHER;
  LATE_BY(VERY_LATE_MS, coll_allreduce(&value, &sum, 1, COLL_INT32, COLL_SUM, comm));
  LATE(coll_broadcast(&value, &value, 1, COLL_INT32, nranks - 1, comm));
  LATE(coll_barrier(comm));
  LATE(coll_comm_split(comm, 0, rank, NULL, &child));
  RANK_OK(coll_barrier(child));
  LATE(coll_allreduce(&value, &sum, 1, COLL_INT32, COLL_SUM, child));
  coll_comm_destroy(&child);
  return verdict(arg);
}

/* Many waits that are just long enough to count, measured together. */
static int short_waits(coll_comm *comm, int rank, int nranks, void *arg) {
  int value = 1;
  TOGETHER;
  meter m = start_meter(arg);
  for (int i = 0; i < SHORT_WAITS; i++) {
    if (rank == nranks - 1)
      be_late(SHORT_MS);
    RANK_OK(coll_allreduce(&value, &value, 1, COLL_INT32, COLL_MAX, comm));
  }
  if (rank < nranks - 1)
    end_meter(&m, SHORT_WAITS * SHORT_MS, "short waits");
  return verdict(arg);
}

/* How a request is completed. */
typedef coll_status (*completion)(coll_request **request);

static coll_status by_wait(coll_request **request) {
  return coll_wait(request, -1);
}

static coll_status by_waits_in_parts(coll_request **request) {
  coll_status status;
  while ((status = coll_wait(request, 20)) == COLL_IN_PROGRESS)
    ;
  return status;
}

static coll_status by_wait_any(coll_request **request) {
  coll_request *list[2] = {NULL, *request};
  int index = -1;
  coll_status status = coll_wait_any(list, 2, &index, -1);
  return status == COLL_OK && index != 1 ? COLL_ERR_INTERNAL : status;
}

static coll_status reduce_and(completion complete, coll_comm *comm) {
  int value = 1, sum = 0;
  coll_request *request = NULL;
  coll_status status = coll_iallreduce(&value, &sum, 1, COLL_INT32, COLL_SUM, comm, &request);
  return status == COLL_OK ? complete(&request) : status;
}

static int requests(coll_comm *comm, int rank, int nranks, void *arg) {
  TOGETHER;
  LATE(reduce_and(by_wait, comm));
  LATE(reduce_and(by_waits_in_parts, comm));
  LATE(reduce_and(by_wait_any, comm));
  return verdict(arg);
}

/* The last rank sends to all others, who receive from `source`. */
static coll_status from_last(coll_comm *comm, int rank, int nranks, int source) {
  int value = rank;
  if (rank < nranks - 1)
    return coll_recv(&value, 1, COLL_INT32, source, 0, NULL, comm);
  coll_status status = COLL_OK;
  for (int peer = 0; peer < nranks - 1 && status == COLL_OK; peer++)
    status = coll_send(&value, 1, COLL_INT32, peer, 0, comm);
  return status;
}

/* The last rank signals to all others. */
static coll_status signals(coll_comm *comm, coll_window *window, int rank, int nranks) {
  if (rank < nranks - 1)
    return coll_wait_signal(nranks - 1, 1, window, comm);
  coll_status status = COLL_OK;
  for (int peer = 0; peer < nranks - 1 && status == COLL_OK; peer++)
    status = coll_signal(peer, window, comm);
  return status;
}

/* The same in a group. */
static coll_status grouped(coll_comm *comm, int rank, int nranks) {
  coll_status status = coll_group_start(comm);
  if (status == COLL_OK)
    status = from_last(comm, rank, nranks, nranks - 1);
  coll_status ended = coll_group_end(comm);
  return status == COLL_OK ? ended : status;
}

static int messages(coll_comm *comm, int rank, int nranks, void *arg) {
  char memory[8];
  coll_window *window = NULL;
  RANK_OK(coll_window_create(comm, memory, sizeof(memory), &window));
  TOGETHER;
  LATE(from_last(comm, rank, nranks, nranks - 1));
  LATE(from_last(comm, rank, nranks, COLL_ANY_SOURCE));
  LATE(signals(comm, window, rank, nranks));
  LATE(grouped(comm, rank, nranks));
  LATE(coll_window_destroy(&window));
  return verdict(arg);
}

/* Creation, a shrink, and a destroy that must still deliver a message. */
static int lives(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_id id;
  coll_comm *second = NULL, *third = NULL;
  int value = 1;
  if (rank == 0)
    RANK_OK(coll_unique_id(&id, NULL));
  RANK_OK(coll_broadcast(&id, &id, sizeof(id), COLL_UINT8, 0, comm));
  /* Creation has work to do besides, some 9 ms on a slow machine. */
  LATE_BY(VERY_LATE_MS, coll_comm_create(&second, &id, nranks, rank, NULL));
  RANK_OK(coll_comm_revoke(second));
  TOGETHER;
  LATE_BY(VERY_LATE_MS, coll_comm_shrink(second, NULL, &third)); /* which creates one, too */
  coll_comm_destroy(&second);
  TOGETHER;
  if (rank < nranks - 1) {
    coll_request *request = NULL;
    RANK_OK(coll_isend(&value, 1, COLL_INT32, nranks - 1, 0, third, &request));
    RANK_OK(coll_wait(&request, slow_ms(10000))); /* until it is copied */
    meter m = start_meter(arg);
    RANK_OK(coll_comm_destroy(&third)); /* the message cannot be sent yet */
    end_meter(&m, LATE_MS, "coll_comm_destroy");
    return verdict(arg);
  }
  be_late(LATE_MS);
  for (int i = 0; i < nranks - 1; i++)
    RANK_OK(coll_recv(&value, 1, COLL_INT32, i, 0, NULL, third));
  coll_comm_destroy(&third);
  return verdict(arg);
}

/* A thread that waits in a communicator of its own. */
typedef struct waiter {
  pthread_t thread;
  coll_comm *comm;
  int rank, nranks, result;
  watch mine;
} waiter;

static void *wait_late(void *arg) {
  waiter *self = arg;
  self->result = collectives(self->comm, self->rank, self->nranks, &self->mine);
  return NULL;
}

/* Two threads of each rank wait in two communicators of one family. */
static int two_threads(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  waiter two[2];
  for (int i = 0; i < 2; i++) {
    two[i] = (waiter){.rank = rank, .nranks = nranks, .mine = {.counter = CLOCK_THREAD_CPUTIME_ID}};
    RANK_OK(coll_comm_dup(comm, NULL, &two[i].comm));
  }
  for (int i = 0; i < 2; i++)
    RANK_CHECK(pthread_create(&two[i].thread, NULL, wait_late, &two[i]) == 0);
  for (int i = 0; i < 2; i++) {
    pthread_join(two[i].thread, NULL);
    coll_comm_destroy(&two[i].comm);
  }
  return two[0].result ? two[0].result : two[1].result;
}

/* Outside all calls, with a progress thread: with nothing in flight, and with an operation that
 * cannot end yet. */
static int computing(coll_comm *comm, int rank, int nranks, void *arg) {
  int value = rank, sum = 0;
  coll_request *request = NULL;
  TOGETHER;
  meter m = start_meter(arg);
  watch_for(LATE_MS);
  end_meter(&m, LATE_MS, "nothing in flight");
  TOGETHER;
  if (rank < nranks - 1) {
    m = start_meter(arg);
    RANK_OK(coll_iallreduce(&value, &sum, 1, COLL_INT32, COLL_SUM, comm, &request));
    watch_for(LATE_MS);
    end_meter(&m, LATE_MS, "an operation in flight");
    RANK_OK(coll_wait(&request, -1));
    return verdict(arg);
  }
  be_late(LATE_MS);
  RANK_OK(coll_allreduce(&value, &sum, 1, COLL_INT32, COLL_SUM, comm));
  return verdict(arg);
}

/* How ranks are run. */
typedef struct stage {
  const char *transport;
  int nranks;
  bool threads;
  coll_progress progress;
} stage;

/* Plays a scene, and again if it had a bad wait: at most ATTEMPTS times. */
static void play(stage on, rank_fn fn) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = on.transport;
  config.progress = on.progress;
  int result = GREEDY;
  for (int attempt = 0; attempt < ATTEMPTS && result == GREEDY; attempt++) {
    watch w = {.counter = on.threads ? CLOCK_THREAD_CPUTIME_ID : CLOCK_PROCESS_CPUTIME_ID};
    result = on.threads ? run_threads(on.nranks, &config, fn, &w)
                        : run_processes(on.nranks, &config, fn, &w, 30, NULL);
  }
  cr_assert_eq(result, 0, "%d", result);
}

/* Runs a rank function in processes over a transport. */
static void run(const char *transport, int nranks, rank_fn fn) {
  play((stage){.transport = transport, .nranks = nranks}, fn);
}

/* The same in two processes that have progress threads. */
static void run_with_thread(const char *transport, rank_fn fn) {
  play((stage){.transport = transport, .nranks = 2, .progress = COLL_PROGRESS_ON}, fn);
}

Test(idle, collectives_shm, .timeout = 40) {
  run("shm", 2, collectives);
}

Test(idle, collectives_tcp, .timeout = 40) {
  run("tcp", 2, collectives);
}

/* Ranks 0 and 1 on one host, 2 and 3 on another. */
Test(idle, collectives_mixed, .timeout = 40) {
  setenv("TEST_HOSTS", "2", 1);
  run("shm,tcp", 4, collectives);
}

Test(idle, more_ranks_than_cores, .timeout = 40) {
  run("shm", 7, collectives);
}

Test(idle, threads, .timeout = 40) {
  play((stage){.nranks = 3, .threads = true}, collectives);
}

Test(idle, two_threads_shm, .timeout = 40) {
  run("shm", 2, two_threads);
}

Test(idle, two_threads_tcp, .timeout = 40) {
  run("tcp", 2, two_threads);
}

Test(idle, short_shm, .timeout = 40) {
  run("shm", 2, short_waits);
}

Test(idle, short_tcp, .timeout = 40) {
  run("tcp", 2, short_waits);
}

Test(idle, requests_shm, .timeout = 40) {
  run("shm", 2, requests);
}

Test(idle, requests_tcp, .timeout = 40) {
  run("tcp", 2, requests);
}

Test(idle, messages_shm, .timeout = 40) {
  run("shm", 3, messages);
}

Test(idle, messages_tcp, .timeout = 40) {
  run("tcp", 3, messages);
}

Test(idle, lives_shm, .timeout = 40) {
  run("shm", 3, lives);
}

Test(idle, lives_tcp, .timeout = 40) {
  run("tcp", 3, lives);
}

Test(idle, computing_shm, .timeout = 40) {
  run_with_thread("shm", computing);
}

Test(idle, computing_tcp, .timeout = 40) {
  run_with_thread("tcp", computing);
}

Test(idle, with_thread_shm, .timeout = 40) {
  run_with_thread("shm", collectives);
}

Test(idle, with_thread_tcp, .timeout = 40) {
  run_with_thread("tcp", requests);
}
