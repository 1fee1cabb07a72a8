/*
 * test_wait_some.c: coll_wait_all() and coll_wait_some() over requests of several communicators, of
 * separate ones and of one that was split from another; and coll_wake(), which ends such waits.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extent.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

#define LIMIT_S 30 /* for an event; correct ranks take milliseconds */

enum { COMMS = 3, TAG = 3, ACK = 4, MOST_RANKS = 4 };

/* The communicator of the test, another one of the same ranks, and one split from that. */
static int make_comms(coll_comm *comm, int rank, int nranks, coll_comm **comms) {
  coll_id id;
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = config.create_timeout_ms = slow_ms(30000);
  comms[0] = comm;
  if (rank == 0)
    RANK_OK(coll_unique_id(&id, NULL));
  RANK_OK(coll_broadcast(&id, &id, sizeof(id), COLL_UINT8, 0, comm));
  RANK_OK(coll_comm_create(&comms[1], &id, nranks, rank, &config));
  RANK_OK(coll_comm_split(comms[1], 0, rank, NULL, &comms[2]));
  return 0;
}

static int destroy_comms(coll_comm *comm, int rank, coll_comm **comms) {
  RANK_OK(coll_comm_destroy(&comms[2]));
  RANK_OK(coll_comm_destroy(&comms[1]));
  return 0;
}

/* ---- wait_all -------------------------------------------------------------------------------- */

/* What a rank exchanges with every rank on every communicator, at several sizes. */
typedef struct traffic {
  coll_request *requests[COMMS * MOST_RANKS * 2 + COMMS];
  coll_status statuses[COMMS * MOST_RANKS * 2 + COMMS];
  int *in, *out;
  int sums[COMMS];
  int count; /* of requests */
} traffic;

/* Starts everything; entries in between stay NULL. */
static int start_traffic(traffic *t, coll_comm **comms, int rank, int nranks, size_t elems) {
  coll_comm *comm = comms[0];
  t->count = 0;
  for (int c = 0; c < COMMS; c++)
    for (int peer = 0; peer < nranks; peer++) {
      size_t at = (size_t)(c * MOST_RANKS + peer) * elems;
      for (size_t i = 0; i < elems; i++)
        t->out[at + i] = rank * 1000 + peer * 10 + c;
      memset(&t->in[at], 0, elems * sizeof(int));
      RANK_OK(coll_irecv(&t->in[at], elems, COLL_INT32, peer, TAG, NULL, comms[c],
                         &t->requests[t->count++]));
      RANK_OK(coll_isend(&t->out[at], elems, COLL_INT32, peer, TAG, comms[c],
                         &t->requests[t->count++]));
    }
  for (int c = COMMS - 1; c >= 0; c--) {
    static const int one = 1;
    RANK_OK(coll_iallreduce(&one, &t->sums[c], 1, COLL_INT32, COLL_SUM, comms[c],
                            &t->requests[t->count++]));
  }
  return 0;
}

/* Whether all of it arrived, and no request is left. */
static int check_traffic(const traffic *t, int rank, int nranks, size_t elems) {
  for (int i = 0; i < t->count; i++)
    RANK_CHECK(!t->requests[i] && t->statuses[i] == COLL_OK);
  for (int c = 0; c < COMMS; c++) {
    RANK_CHECK(t->sums[c] == nranks);
    for (int peer = 0; peer < nranks; peer++)
      for (size_t i = 0; i < elems; i++)
        RANK_CHECK(t->in[(size_t)(c * MOST_RANKS + peer) * elems + i] ==
                   peer * 1000 + rank * 10 + c);
  }
  return 0;
}

static int exchange_all(coll_comm *comm, int rank, int nranks, void *arg) {
  static const size_t sizes[] = {0, 1, 7, 50000};
  coll_comm *comms[COMMS];
  traffic t = {.in = calloc((size_t)COMMS * MOST_RANKS * 50000, sizeof(int)),
               .out = calloc((size_t)COMMS * MOST_RANKS * 50000, sizeof(int))};
  (void)arg;
  int failed = make_comms(comm, rank, nranks, comms);
  for (int s = 0; s < 4 && !failed; s++) {
    memset(t.statuses, 0x55, sizeof(t.statuses));
    failed = start_traffic(&t, comms, rank, nranks, sizes[s]);
    if (!failed)
      RANK_OK(coll_wait_all(t.requests, t.count, s == 3 ? NULL : t.statuses, -1));
    if (s == 3)
      memset(t.statuses, 0, sizeof(t.statuses));
    failed = failed ? failed : check_traffic(&t, rank, nranks, sizes[s]);
    if (!failed) /* nothing is left */
      RANK_OK(coll_wait_all(t.requests, t.count, t.statuses, 0));
  }
  free(t.in);
  free(t.out);
  return failed ? failed : destroy_comms(comm, rank, comms);
}

Test(wait_some, all_of_several_communicators, .timeout = 300) {
  cr_expect_eq(run_in_all_ways(3, 1, extent(2, MOST_RANKS, 2), exchange_all, NULL), 0);
}

/* A wait that times out releases nothing and loses no result. */
static int time_out(coll_comm *comm, int rank, int nranks, void *arg) {
  enum { EACH = 700 };
  coll_comm *comms[COMMS];
  coll_request *requests[COMMS * EACH] = {NULL};
  coll_status statuses[COMMS * EACH];
  static int got[COMMS * EACH], words[COMMS * EACH];
  int word = 1, go = 0;
  (void)arg;
  if (make_comms(comm, rank, nranks, comms) != 0)
    return 1;
  for (int i = 0; i < COMMS * EACH; i++) { /* all but the last arrive before the answer */
    words[i] = i;
    if (rank == 0)
      RANK_OK(coll_irecv(&got[i], 1, COLL_INT32, 1, TAG, NULL, comms[i % COMMS], &requests[i]));
    else if (i + 1 < COMMS * EACH)
      RANK_OK(coll_isend(&words[i], 1, COLL_INT32, 0, TAG, comms[i % COMMS], &requests[i]));
  }
  if (rank == 1) {
    RANK_OK(coll_wait_all(requests, COMMS * EACH, NULL, -1));
    RANK_OK(coll_recv(&go, 1, COLL_INT32, 0, ACK, NULL, comm));
    word = COMMS * EACH - 1;
    RANK_OK(coll_send(&word, 1, COLL_INT32, 0, TAG, comms[(COMMS * EACH - 1) % COMMS]));
    return destroy_comms(comm, rank, comms);
  }
  RANK_CHECK(coll_wait_all(requests, COMMS * EACH, statuses, 5) == COLL_IN_PROGRESS);
  for (int i = 0; i < COMMS * EACH; i++)
    RANK_CHECK(requests[i] && statuses[i] == COLL_IN_PROGRESS);
  RANK_OK(coll_send(&word, 1, COLL_INT32, 1, ACK, comm));
  RANK_OK(coll_wait_all(requests, COMMS * EACH, statuses, -1));
  for (int i = 0; i < COMMS * EACH; i++)
    RANK_CHECK(!requests[i] && statuses[i] == COLL_OK && got[i] == i);
  return destroy_comms(comm, rank, comms);
}

static const char *const transports[] = {"shm", "tcp"};

/* Runs a scene of two ranks as processes over each transport, with and without progress thread. */
static void play(rank_fn scene) {
  for (int t = 0; t < transports_tried(); t++)
    for (int progress = COLL_PROGRESS_OFF; progress <= COLL_PROGRESS_ON; progress++) {
      coll_config config = COLL_CONFIG_INIT;
      config.transport = transports[t];
      config.progress = (coll_progress)progress;
      config.timeout_ms = config.create_timeout_ms = slow_ms(30000);
      cr_expect_eq(run_processes(2, &config, scene, NULL, 100, NULL), 0, "%s, progress %d",
                   transports[t], progress);
    }
}

Test(wait_some, all_within_a_time, .timeout = 300) {
  play(time_out);
}

/* ---- wait_some ------------------------------------------------------------------------------- */

/* Rank 1 answers each of rank 0's messages with what that asks for. */
static int answer(coll_comm *comm, int rank, coll_comm **comms) {
  static const short odd[3] = {1, 2, 3};
  int word = 5, go = 0;
  RANK_OK(coll_send(&word, 1, COLL_INT32, 0, TAG + 10, comms[1]));
  RANK_OK(coll_send(odd, 3, COLL_INT16, 0, TAG + 11, comms[2])); /* not what is expected */
  RANK_OK(coll_send(&word, 1, COLL_INT32, 0, TAG + 12, comms[0]));
  RANK_OK(coll_send(&word, 1, COLL_INT32, 0, ACK, comm));
  RANK_OK(coll_recv(&go, 1, COLL_INT32, 0, ACK, NULL, comm));
  RANK_OK(coll_send(&word, 1, COLL_INT32, 0, TAG + 13, comms[2]));
  return 0;
}

/* Where an index is in a list, or -1. */
static int find(const int *list, int count, int index) {
  for (int i = 0; i < count; i++)
    if (list[i] == index)
      return i;
  return -1;
}

/* Rank 0 gets good and bad results of three communicators, and one that is not there yet. */
static int take_mixed(coll_comm *comm, int rank, coll_comm **comms) {
  enum { N = 7 };
  coll_request *requests[N] = {NULL};
  coll_status statuses[N];
  int got[4] = {0}, word = 0, indices[N], completed = 77, total = 0, seen[N] = {0};
  static const int of[4] = {1, 2, 0, 2}, place[4] = {1, 2, 4, 5};
  for (int i = 0; i < 4; i++)
    RANK_OK(coll_irecv(&got[i], 1, COLL_INT32, 1, TAG + 10 + i, NULL, comms[of[i]],
                       &requests[place[i]]));
  RANK_OK(coll_recv_init(&word, 1, COLL_INT32, 1, 99, NULL, comm, &requests[6])); /* not started */
  RANK_OK(coll_recv(&word, 1, COLL_INT32, 1, ACK, NULL, comm));
  while (total < 3) {
    coll_status status = coll_wait_some(requests, N, indices, statuses, &completed, -1);
    const int bad = find(indices, completed, 2);
    RANK_CHECK(completed > 0 && status == (bad < 0 ? COLL_OK : COLL_ERR_MISMATCH));
    for (int i = 0; i < completed; i++) {
      const bool mismatch = indices[i] == 2;
      RANK_CHECK(statuses[i] == (mismatch ? COLL_ERR_MISMATCH : COLL_OK));
      RANK_CHECK(!requests[indices[i]] && !seen[indices[i]]++);
    }
    total += completed;
  }
  RANK_CHECK(seen[1] && seen[2] && seen[4] && got[0] == 5 && got[2] == 5);
  RANK_CHECK(coll_wait_some(requests, N, indices, statuses, &completed, 3) == COLL_IN_PROGRESS &&
             completed == 0);
  RANK_OK(coll_send(&word, 1, COLL_INT32, 1, ACK, comm));
  RANK_OK(coll_wait_some(requests, N, indices, NULL, &completed, -1));
  RANK_CHECK(completed == 1 && indices[0] == 5 && got[3] == 5 && requests[6]);
  RANK_CHECK(coll_wait_some(requests, N, indices, NULL, &completed, -1) == COLL_OK &&
             completed == 0);
  RANK_OK(coll_wait_all(requests, N, statuses, -1));
  RANK_CHECK(statuses[6] == COLL_OK && requests[6]);
  RANK_OK(coll_request_free(&requests[6]));
  return 0;
}

static int mix(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *comms[COMMS];
  (void)arg;
  if (make_comms(comm, rank, nranks, comms) != 0)
    return 1;
  int failed = rank == 0 ? take_mixed(comm, rank, comms) : answer(comm, rank, comms);
  return failed ? failed : destroy_comms(comm, rank, comms);
}

Test(wait_some, mixed_results, .timeout = 300) {
  play(mix);
}

/* A communicator is revoked: its requests fail, those of others do not. */
static int revoke_one(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *comms[COMMS];
  coll_request *requests[3] = {NULL};
  coll_status statuses[3];
  int got[3] = {0}, word = 9;
  (void)arg;
  if (make_comms(comm, rank, nranks, comms) != 0)
    return 1;
  for (int c = 0; rank == 0 && c < COMMS; c++)
    RANK_OK(coll_irecv(&got[c], 1, COLL_INT32, 1, TAG, NULL, comms[c], &requests[c]));
  RANK_OK(coll_barrier(comm));
  if (rank == 1) {
    RANK_OK(coll_comm_revoke(comms[2]));
    RANK_OK(coll_send(&word, 1, COLL_INT32, 0, TAG, comms[0]));
    RANK_OK(coll_send(&word, 1, COLL_INT32, 0, TAG, comms[1]));
  } else {
    RANK_CHECK(coll_wait_all(requests, 3, statuses, -1) == COLL_ERR_ABORTED);
    RANK_CHECK(statuses[0] == COLL_OK && statuses[1] == COLL_OK && got[0] == 9 && got[1] == 9);
    RANK_CHECK(statuses[2] == COLL_ERR_ABORTED && !requests[0] && !requests[1] && !requests[2]);
  }
  RANK_OK(coll_barrier(comm));
  return destroy_comms(comm, rank, comms);
}

Test(wait_some, one_communicator_fails, .timeout = 300) {
  play(revoke_one);
}

/* ---- wake ------------------------------------------------------------------------------------ */

/* A thread that wakes a communicator's waiter when that sleeps. */
typedef struct waker {
  pthread_t thread;
  coll_comm *comm;
  callers callers;
} waker;

static void *wake_sleeper(void *arg) {
  waker *w = arg;
  if (!WAIT_UNTIL(waits_in_call(&w->callers, 0), slow_s(LIMIT_S)))
    return w;
  return coll_wake(w->comm) == COLL_OK ? NULL : w;
}

/* Starts the thread; the caller waits next. */
static int expect_wake(waker *w, coll_comm *comm) {
  *w = (waker){.comm = comm};
  enters_call(&w->callers, 0);
  return pthread_create(&w->thread, NULL, wake_sleeper, w);
}

/* Whether it did what it should. */
static bool was_sent(const waker *w) {
  void *failed = NULL;
  return pthread_join(w->thread, &failed) == 0 && !failed;
}

/* Each of the waits returns when it is woken, while it sleeps or before, and can go on. */
static int be_woken(coll_comm *comm, int rank, coll_comm **comms) {
  coll_request *requests[COMMS] = {NULL};
  coll_message message;
  int got[COMMS] = {0}, index = 0, indices[COMMS], completed = 1, word = 1;
  for (int c = 0; c < COMMS; c++)
    RANK_OK(coll_irecv(&got[c], 1, COLL_INT32, 1, TAG, NULL, comms[c], &requests[c]));
  for (int i = 0; i < 2 * COMMS; i++) {
    waker w;
    coll_comm *woken = comms[i % COMMS];
    if (i >= COMMS) {
      RANK_OK(coll_wake(woken));
      RANK_OK(coll_wake(woken)); /* counts as one */
    }
    RANK_CHECK(i >= COMMS || expect_wake(&w, woken) == 0);
    RANK_CHECK(coll_wait(&requests[i % COMMS], -1) == COLL_IN_PROGRESS);
    RANK_CHECK(i >= COMMS || (was_sent(&w) && expect_wake(&w, woken) == 0));
    RANK_OK(i >= COMMS ? coll_wake(woken) : COLL_OK);
    RANK_CHECK(coll_wait_any(requests, COMMS, &index, -1) == COLL_IN_PROGRESS && index == -1);
    RANK_CHECK(i >= COMMS || (was_sent(&w) && expect_wake(&w, woken) == 0));
    RANK_OK(i >= COMMS ? coll_wake(woken) : COLL_OK);
    RANK_CHECK(coll_wait_some(requests, COMMS, indices, NULL, &completed, -1) == COLL_IN_PROGRESS &&
               completed == 0);
    RANK_CHECK(i >= COMMS || (was_sent(&w) && expect_wake(&w, woken) == 0));
    RANK_OK(i >= COMMS ? coll_wake(woken) : COLL_OK);
    RANK_CHECK(coll_wait_all(requests, COMMS, NULL, -1) == COLL_IN_PROGRESS);
    RANK_CHECK(i >= COMMS || (was_sent(&w) && expect_wake(&w, woken) == 0));
    RANK_OK(i >= COMMS ? coll_wake(woken) : COLL_OK);
    RANK_CHECK(coll_probe(woken, 1, 99, &message, NULL, -1) == COLL_IN_PROGRESS);
    RANK_CHECK(i >= COMMS || was_sent(&w));
    RANK_CHECK(coll_wait(&requests[i % COMMS], 1) == COLL_IN_PROGRESS); /* time passed */
  }
  /* A wake ends no blocking operation, and a result comes before a wake, which stays. */
  RANK_OK(coll_wake(comm));
  RANK_OK(coll_barrier(comm));
  RANK_CHECK(coll_wait(&requests[0], 0) == COLL_IN_PROGRESS);
  RANK_CHECK(coll_test(&requests[0]) == COLL_IN_PROGRESS);
  RANK_CHECK(coll_wait(&requests[0], -1) == COLL_IN_PROGRESS);
  RANK_OK(coll_send(&word, 1, COLL_INT32, 1, ACK, comm));
  RANK_OK(coll_wait_all(requests, COMMS, NULL, -1));
  RANK_CHECK(got[0] == 1 && got[1] == 1 && got[2] == 1);
  return 0;
}

static int wake(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *comms[COMMS];
  int word = 0;
  (void)arg;
  if (make_comms(comm, rank, nranks, comms) != 0)
    return 1;
  if (rank == 0) {
    int failed = be_woken(comm, rank, comms);
    return failed ? failed : destroy_comms(comm, rank, comms);
  }
  RANK_OK(coll_barrier(comm));
  RANK_OK(coll_recv(&word, 1, COLL_INT32, 0, ACK, NULL, comm));
  for (int c = 0; c < COMMS; c++)
    RANK_OK(coll_send(&word, 1, COLL_INT32, 0, TAG, comms[c]));
  return destroy_comms(comm, rank, comms);
}

Test(wait_some, wake, .timeout = 300) {
  play(wake);
}

/* A communicator of one rank has nothing with which to wake it, and is woken nevertheless. */
Test(wait_some, wake_one_rank, .timeout = 60) {
  coll_comm *comm = NULL;
  coll_request *request = NULL;
  waker w;
  int got = 0;
  cr_assert_eq(coll_comm_create_local(&comm, 1, NULL), COLL_OK);
  cr_assert_eq(coll_irecv(&got, 1, COLL_INT32, 0, TAG, NULL, comm, &request), COLL_OK);
  cr_assert_eq(expect_wake(&w, comm), 0);
  cr_expect_eq(coll_wait(&request, -1), COLL_IN_PROGRESS);
  cr_expect(was_sent(&w));
  cr_expect_eq(coll_comm_destroy(&comm), COLL_OK);
}

Test(wait_some, bad_arguments) {
  coll_request *none = NULL;
  int index = 0, completed = 0;
  cr_expect_eq(coll_wait_all(NULL, 1, NULL, 0), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(coll_wait_all(&none, -1, NULL, 0), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(coll_wait_all(NULL, 0, NULL, 0), COLL_OK);
  cr_expect_eq(coll_wait_some(&none, 1, NULL, NULL, &completed, 0), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(coll_wait_some(&none, 1, &index, NULL, NULL, 0), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(coll_wait_some(NULL, 1, &index, NULL, &completed, 0), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(coll_wait_some(&none, 1, &index, NULL, &completed, -1), COLL_OK);
  cr_expect_eq(completed, 0);
  cr_expect_eq(coll_wake(NULL), COLL_ERR_INVALID_ARGUMENT);
}
