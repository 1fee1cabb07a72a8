/*
 * test_event_loop.c: programs that are told of the ends of operations: by callbacks of requests,
 * and by the descriptors of communicators, for which an epoll loop waits.
 */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "extent.h"
#include "tests/proc/support_ranks.h"

#define LIMIT_S 60 /* for an event; correct ranks take milliseconds */

enum { COMMS = 2, TAG = 3, ACK = 4 };

static const char *const transports[] = {"shm", "tcp"};

/* Runs a scene of two ranks as processes and as threads over each transport. */
static void play(rank_fn scene, coll_progress first) {
  for (int t = 0; t < transports_tried(); t++)
    for (int progress = (int)first; progress <= COLL_PROGRESS_ON; progress++) {
      coll_config config = COLL_CONFIG_INIT;
      config.transport = transports[t];
      config.progress = (coll_progress)progress;
      config.timeout_ms = config.create_timeout_ms = slow_ms(60000);
      cr_expect_eq(run_processes(2, &config, scene, NULL, 100, NULL), 0, "%s, progress %d",
                   transports[t], progress);
      cr_expect_eq(run_threads(2, &config, scene, NULL), 0, "%s, threads", transports[t]);
    }
}

/* ---- an event loop --------------------------------------------------------------------------- */

/* A loop that serves two communicators. */
typedef struct loop {
  coll_comm *comms[COMMS];
  coll_request *requests[COMMS]; /* a receive on each */
  int got[COMMS];
  int fds[COMMS];
  int epoll_fd;
  int wakeups; /* returns of epoll_wait() */
} loop;

static int open_loop(loop *l, int rank) {
  l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  RANK_CHECK(l->epoll_fd >= 0);
  for (int c = 0; c < COMMS; c++) {
    coll_comm *comm = l->comms[c];
    int again = -1;
    RANK_OK(coll_comm_fd(comm, &l->fds[c]));
    RANK_OK(coll_comm_fd(comm, &again));
    RANK_CHECK(l->fds[c] == again);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)c};
    RANK_CHECK(epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, l->fds[c], &event) == 0);
    RANK_OK(coll_irecv(&l->got[c], 1, COLL_INT32, 1, TAG, NULL, comm, &l->requests[c]));
  }
  return 0;
}

/* Sleeps until a communicator has something to say; which, or -1. */
static int next_event(loop *l) {
  struct epoll_event event;
  uint64_t rings;
  l->wakeups++;
  if (epoll_wait(l->epoll_fd, &event, 1, slow_ms(LIMIT_S * 1000)) != 1)
    return -1;
  const int c = (int)event.data.u32;
  return read(l->fds[c], &rings, sizeof(rings)) == sizeof(rings) ? c : -1;
}

/* Answers what has come on a communicator; *served counts it. */
static int serve(loop *l, int c, int rank, int *served) {
  coll_comm *comm = l->comms[c];
  int index, completed;
  for (;;) {
    coll_status status = coll_wait_some(&l->requests[c], 1, &index, NULL, &completed, 0);
    if (status == COLL_IN_PROGRESS)
      return 0;
    RANK_OK(status);
    RANK_CHECK(completed == 1);
    const int number = l->got[c];
    ++*served;
    RANK_OK(coll_irecv(&l->got[c], 1, COLL_INT32, 1, TAG, NULL, comm, &l->requests[c]));
    RANK_OK(coll_send(&number, 1, COLL_INT32, 1, ACK, comm));
  }
}

static int run_loop(loop *l, int rank, int messages) {
  int served = 0, failed = open_loop(l, rank);
  while (!failed && served < messages) {
    const int c = next_event(l);
    RANK_CHECK(c >= 0);
    failed = serve(l, c, rank, &served);
  }
  /* One for each message, some for nothing: answers end too, and so do polls of the other one. */
  if (l->wakeups > 4 * messages + 20)
    fprintf(stderr, "%d wake-ups for %d messages\n", l->wakeups, messages);
  return failed ? failed : l->wakeups > 4 * messages + 20;
}

/* Rank 1 sends on either communicator, now and then late, and waits for each answer. */
static int send_to_loop(loop *l, int rank, int messages) {
  for (int i = 0; i < messages; i++) {
    coll_comm *comm = l->comms[(i / 3) % COMMS];
    coll_message none;
    int answer = -1;
    if (i % 50 == 7)
      RANK_CHECK(coll_probe(comm, 0, 98, &none, NULL, 60) == COLL_IN_PROGRESS); /* a pause */
    RANK_OK(coll_send(&i, 1, COLL_INT32, 0, TAG, comm));
    RANK_OK(coll_recv(&answer, 1, COLL_INT32, 0, ACK, NULL, comm));
    RANK_CHECK(answer == i);
  }
  return 0;
}

static int serve_two(coll_comm *comm, int rank, int nranks, void *arg) {
  loop l = {.comms = {comm, NULL}, .epoll_fd = -1};
  coll_config config = COLL_CONFIG_INIT;
  coll_id id;
  const int messages = extent(100, 600, 60);
  (void)arg;
  config.progress = COLL_PROGRESS_ON;
  if (rank == 0)
    RANK_OK(coll_unique_id(&id, NULL));
  RANK_OK(coll_broadcast(&id, &id, sizeof(id), COLL_UINT8, 0, comm));
  RANK_OK(coll_comm_create(&l.comms[1], &id, nranks, rank, &config));
  int failed = rank == 0 ? run_loop(&l, rank, messages) : send_to_loop(&l, rank, messages);
  if (rank == 0)
    close(l.epoll_fd);
  RANK_OK(coll_comm_destroy(&l.comms[1]));
  return failed;
}

Test(event_loop, serves_two_communicators, .timeout = 300) {
  play(serve_two, COLL_PROGRESS_ON);
}

/* Whether a descriptor is readable within the limit; empties it. */
static bool rings(int fd) {
  struct pollfd at = {.fd = fd, .events = POLLIN};
  uint64_t count;
  return poll(&at, 1, slow_ms(LIMIT_S * 1000)) == 1 && read(fd, &count, sizeof(count)) > 0;
}

/* A wake, an operation that ends at once, a collective, and a failure ring; nothing else does. */
static int what_rings(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_request *request = NULL;
  int fd = -1, one = 1, sum = 0;
  uint64_t count;
  (void)arg;
  RANK_CHECK(coll_comm_fd(comm, NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_OK(coll_comm_fd(comm, &fd));
  RANK_CHECK(rings(fd));
  RANK_CHECK(read(fd, &count, sizeof(count)) < 0);
  RANK_OK(coll_wake(comm));
  RANK_CHECK(rings(fd));
  RANK_OK(coll_iallreduce(&one, &sum, 1, COLL_INT32, COLL_SUM, comm, &request));
  while (coll_test(&request) == COLL_IN_PROGRESS)
    RANK_CHECK(rings(fd));
  RANK_CHECK(sum == nranks && !request);
  RANK_OK(coll_isend(&one, 1, COLL_INT32, rank, TAG, comm, &request));
  RANK_CHECK(rings(fd));
  RANK_OK(coll_wait(&request, -1));
  RANK_OK(coll_recv(&sum, 1, COLL_INT32, rank, TAG, NULL, comm));
  if (rank == 1) /* it may learn of the abort before the call returns */
    (void)coll_send(&one, 1, COLL_INT32, 0, ACK, comm);
  if (rank == 0) {
    RANK_OK(coll_recv(&sum, 1, COLL_INT32, 1, ACK, NULL, comm));
    if (read(fd, &count, sizeof(count)) < 0) /* what the blocking operations have left */
      count = 0;
    RANK_OK(coll_comm_abort(comm));
    RANK_CHECK(rings(fd));
  }
  RANK_CHECK(coll_barrier(comm) == COLL_ERR_ABORTED);
  return 0;
}

Test(event_loop, what_rings, .timeout = 300) {
  play(what_rings, COLL_PROGRESS_ON);
}

/* Without a progress thread there is no descriptor, but with a single rank. */
static int refuse_fd(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_error error = COLL_ERROR_INIT;
  int fd = 7;
  (void)arg;
  (void)nranks;
  RANK_CHECK(coll_comm_fd(comm, &fd) == COLL_ERR_INVALID_USAGE && fd == -1);
  RANK_OK(coll_last_error(comm, &error));
  RANK_CHECK(strstr(error.message, "COLL_PROGRESS=on"));
  RANK_OK(coll_barrier(comm));
  return 0;
}

Test(event_loop, needs_the_progress_thread, .timeout = 60) {
  coll_config config = COLL_CONFIG_INIT;
  coll_comm *comm = NULL;
  coll_request *requests[2] = {NULL};
  int fd = -1, word = 4, got = 0;
  config.progress = COLL_PROGRESS_OFF;
  cr_expect_eq(run_threads(2, &config, refuse_fd, NULL), 0);
  cr_expect_eq(coll_comm_fd(NULL, &fd), COLL_ERR_INVALID_ARGUMENT);
  cr_assert_eq(coll_comm_create_local(&comm, 1, &config), COLL_OK);
  cr_expect_eq(coll_comm_fd(comm, &fd), COLL_OK);
  cr_expect(rings(fd));
  cr_expect_eq(coll_irecv(&got, 1, COLL_INT32, 0, TAG, NULL, comm, &requests[0]), COLL_OK);
  cr_expect_eq(coll_isend(&word, 1, COLL_INT32, 0, TAG, comm, &requests[1]), COLL_OK);
  cr_expect(rings(fd));
  cr_expect_eq(coll_wait_all(requests, 2, NULL, -1), COLL_OK);
  cr_expect_eq(got, 4);
  cr_expect_eq(coll_comm_destroy(&comm), COLL_OK);
}

/* ---- callbacks ------------------------------------------------------------------------------- */

/* What a callback has seen. */
typedef struct told {
  sem_t *semaphore;
  const int *buffer; /* NULL, or the result */
  int result;        /* in it when the callback came */
  int calls;
  coll_status status;
} told;

static void note(void *context, coll_status status) {
  told *t = context;
  t->calls++;
  t->status = status;
  t->result = t->buffer ? *t->buffer : 0;
  sem_post(t->semaphore);
}

/* Receives that are open when their communicators are revoked and destroyed. */
static int lose_two(coll_comm *comm, int rank, coll_comm *revoked, coll_comm *destroyed) {
  coll_comm *comms[2] = {revoked, destroyed};
  coll_request *request = NULL;
  int got[2];
  sem_t semaphore;
  told lost[2];
  sem_init(&semaphore, 0, 0);
  for (int i = 0; i < 2; i++) {
    lost[i] = (told){.semaphore = &semaphore};
    RANK_OK(coll_irecv(&got[i], 1, COLL_INT32, 1 - rank, TAG, NULL, comms[i], &request));
    RANK_OK(coll_request_set_callback(&request, note, &lost[i]));
  }
  RANK_OK(coll_barrier(comm));
  RANK_OK(coll_comm_revoke(revoked));
  RANK_CHECK(lost[0].calls == 1 && lost[0].status == COLL_ERR_ABORTED);
  RANK_OK(coll_comm_destroy(&comms[0]));
  RANK_OK(coll_barrier(comm));
  RANK_OK(coll_comm_destroy(&comms[1]));
  RANK_CHECK(lost[1].calls == 1 && lost[1].status != COLL_OK); /* the peer may have left before */
  sem_destroy(&semaphore);
  return 0;
}

/* Good and bad ones, then those that end with their communicators. */
static int call_back(coll_comm *base, int rank, int nranks, void *arg) {
  enum { EACH = 300 };
  static const short odd[3] = {1, 2, 3};
  coll_comm *comm = base, *child = NULL, *open = NULL;
  coll_request *request = NULL, *last = NULL;
  sem_t semaphore;
  int got[EACH + 1] = {0}, words[EACH], word = 5, sum = 0;
  told good[EACH], bad, reduced, made;
  (void)arg;
  sem_init(&semaphore, 0, 0);
  RANK_OK(coll_comm_dup(comm, NULL, &open));
  RANK_OK(coll_comm_idup(comm, NULL, &child, &request));
  made = (told){.semaphore = &semaphore};
  RANK_OK(coll_request_set_callback(&request, note, &made));
  RANK_CHECK(!request);
  reduced = (told){.semaphore = &semaphore, .buffer = &sum};
  RANK_OK(coll_iallreduce(&word, &sum, 1, COLL_INT32, COLL_SUM, comm, &request));
  RANK_OK(coll_request_set_callback(&request, note, &reduced));
  for (int i = 0; i < EACH; i++) {
    good[i] = (told){.semaphore = &semaphore, .buffer = &got[i]};
    words[i] = i;
    if (rank == 0)
      RANK_OK(coll_irecv(&got[i], 1, COLL_INT32, 1, TAG, NULL, comm, &request));
    else
      RANK_OK(coll_isend(&words[i], 1, COLL_INT32, 0, TAG, comm, &request));
    RANK_OK(coll_request_set_callback(&request, note, &good[i]));
  }
  bad = (told){.semaphore = &semaphore};
  if (rank == 0)
    RANK_OK(coll_irecv(&got[EACH], 1, COLL_INT32, 1, ACK, NULL, comm, &request));
  else
    RANK_OK(coll_isend(odd, 3, COLL_INT16, 0, ACK, comm, &request));
  RANK_OK(coll_request_set_callback(&request, note, &bad));
  RANK_OK(coll_irecv(&word, 1, COLL_INT32, 1 - rank, 99, NULL, comm, &last)); /* comes at the end */
  for (int left = EACH + 3; left > 0;) /* with a progress thread they come anyway */
    if (sem_trywait(&semaphore) == 0)
      left--;
    else
      RANK_CHECK(coll_wait(&last, 1) == COLL_IN_PROGRESS);
  for (int i = 0; i < EACH; i++)
    RANK_CHECK(good[i].calls == 1 && good[i].status == COLL_OK && (rank || good[i].result == i));
  RANK_CHECK(bad.calls == 1 && bad.status == (rank == 0 ? COLL_ERR_MISMATCH : COLL_OK));
  RANK_CHECK(reduced.calls == 1 && reduced.result == 5 * nranks && reduced.status == COLL_OK);
  RANK_CHECK(made.calls == 1 && made.status == COLL_OK && child);
  RANK_OK(coll_barrier(comm)); /* before, the other one still waits for callbacks */
  RANK_OK(coll_send(&sum, 1, COLL_INT32, 1 - rank, 99, comm));
  RANK_OK(coll_wait(&last, -1));
  sem_destroy(&semaphore);
  return lose_two(comm, rank, child, open);
}

Test(event_loop, callbacks, .timeout = 300) {
  play(call_back, COLL_PROGRESS_OFF);
}

/* A request that is complete calls back at once, and then the callback may call the library. */
static void call_library(void *context, coll_status status) {
  told *t = context;
  int rank = -1;
  coll_comm *comm = NULL;
  if (coll_comm_create_local(&comm, 1, NULL) == COLL_OK && coll_comm_rank(comm, &rank) == COLL_OK)
    (void)coll_comm_destroy(&comm);
  t->calls += rank == 0;
  t->status = status;
}

Test(event_loop, callback_at_once, .timeout = 60) {
  coll_comm *comm = NULL;
  coll_request *request = NULL;
  told t = {0};
  int word = 3, got = 0;
  cr_assert_eq(coll_comm_create_local(&comm, 1, NULL), COLL_OK);
  cr_expect_eq(coll_iallreduce(&word, &got, 1, COLL_INT32, COLL_SUM, comm, &request), COLL_OK);
  cr_expect_eq(coll_request_set_callback(&request, call_library, &t), COLL_OK);
  cr_expect(t.calls == 1 && t.status == COLL_OK && !request && got == 3);
  cr_expect_eq(coll_isend(&word, 1, COLL_INT32, 0, TAG, comm, &request), COLL_OK);
  cr_expect_eq(coll_request_set_callback(&request, call_library, &t), COLL_OK);
  cr_expect(t.calls == 2 && !request);
  cr_expect_eq(coll_request_set_callback(&request, call_library, &t), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(coll_request_set_callback(NULL, call_library, &t), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(coll_recv_init(&got, 1, COLL_INT32, 0, TAG, NULL, comm, &request), COLL_OK);
  cr_expect_eq(coll_request_set_callback(&request, NULL, &t), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(coll_request_set_callback(&request, call_library, &t), COLL_ERR_INVALID_USAGE);
  cr_expect(request != NULL && t.calls == 2);
  cr_expect_eq(coll_comm_destroy(&comm), COLL_OK);
}
