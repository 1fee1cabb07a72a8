/*
 * test_requests.c: sends and receives, operations in flight, test, wait and wait_any; receives that
 * do not fit, or that nobody answers.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data.h"
#include "support_ranks.h"
#include "waits.h"

#define MESSAGES 40

/* Every rank sends to every other, messages of growing size; all in flight at once. */
static int everybody_to_everybody(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  size_t total = 0;
  coll_request *requests[2 * 8 * MESSAGES];
  char *bufs[2 * 8 * MESSAGES];
  for (int m = 0; m < MESSAGES; m++) {
    size_t count = (size_t)m * (size_t)m * 37 % 50000;
    for (int peer = 0; peer < nranks; peer++) {
      if (peer == rank)
        continue;
      bufs[total] = malloc(count * 4 + 1);
      data_fill(bufs[total], count, COLL_INT32, COLL_SUM, rank, (uint64_t)(m + peer));
      RANK_OK(coll_isend(bufs[total], count, COLL_INT32, peer, 0, comm, &requests[total]));
      total++;
      bufs[total] = malloc(count * 4 + 1);
      RANK_OK(coll_irecv(bufs[total], count, COLL_INT32, peer, 0, NULL, comm, &requests[total]));
      total++;
    }
  }
  for (size_t left = total; left > 0; left--) {
    int index = -1;
    RANK_OK(coll_wait_any(requests, (int)total, &index, -1));
    RANK_CHECK(index >= 0 && requests[index] == NULL);
  }
  int index = 7;
  RANK_OK(coll_wait_any(requests, (int)total, &index, -1));
  RANK_CHECK(index == -1);
  size_t at = 0;
  for (int m = 0; m < MESSAGES; m++) {
    size_t count = (size_t)m * (size_t)m * 37 % 50000;
    for (int peer = 0; peer < nranks; peer++) {
      if (peer == rank)
        continue;
      RANK_CHECK(data_wrong_copy(bufs[at + 1], count, COLL_INT32, COLL_SUM, peer,
                                 (uint64_t)(m + rank)) == 0);
      free(bufs[at]);
      free(bufs[at + 1]);
      at += 2;
    }
  }
  return 0;
}

Test(requests, everybody_to_everybody, .timeout = 60) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    for (int nranks = 2; nranks <= 5; nranks++)
      cr_assert_eq(run_threads(nranks, &config, everybody_to_everybody, NULL), 0, "%d over %s",
                   nranks, transports[t]);
  }
}

/* Many different collectives in flight, completed in a different order than they were started. */
static int many_in_flight(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  enum { KINDS = 24 };
  coll_request *requests[KINDS];
  int *bufs[KINDS];
  for (int k = 0; k < KINDS; k++) {
    size_t count = (size_t)k * 4001;
    bufs[k] = malloc((count + 1) * sizeof(int) * (size_t)nranks);
    if (k % 3 == 0) {
      data_fill(bufs[k], count, COLL_INT32, COLL_SUM, rank, (uint64_t)k);
      RANK_OK(coll_iallreduce(bufs[k], bufs[k], count, COLL_INT32, COLL_SUM, comm, &requests[k]));
    } else if (k % 3 == 1) {
      data_fill(bufs[k] + (size_t)rank * count, count, COLL_INT32, COLL_SUM, rank, (uint64_t)k);
      RANK_OK(coll_iallgather(bufs[k] + (size_t)rank * count, bufs[k], count, COLL_INT32, comm,
                              &requests[k]));
    } else {
      int root = k % nranks;
      data_fill(bufs[k], count, COLL_INT32, COLL_SUM, rank, (uint64_t)k);
      RANK_OK(coll_ibroadcast(bufs[k], bufs[k], count, COLL_INT32, root, comm, &requests[k]));
    }
  }
  coll_request *barrier;
  RANK_OK(coll_ibarrier(comm, &barrier));
  for (int k = KINDS - 1; k >= 0; k--) {
    if (k % 2) {
      coll_status status;
      while ((status = coll_test(&requests[k])) == COLL_IN_PROGRESS)
        ;
      RANK_OK(status);
    } else {
      RANK_OK(coll_wait(&requests[k], -1));
    }
    RANK_CHECK(requests[k] == NULL);
  }
  RANK_OK(coll_wait(&barrier, -1));
  for (int k = 0; k < KINDS; k++) {
    size_t count = (size_t)k * 4001;
    if (k % 3 == 0)
      RANK_CHECK(data_wrong(bufs[k], count, COLL_INT32, COLL_SUM, nranks, (uint64_t)k) == 0);
    for (int r = 0; k % 3 == 1 && r < nranks; r++)
      RANK_CHECK(data_wrong_copy(bufs[k] + (size_t)r * count, count, COLL_INT32, COLL_SUM, r,
                                 (uint64_t)k) == 0);
    if (k % 3 == 2)
      RANK_CHECK(data_wrong_copy(bufs[k], count, COLL_INT32, COLL_SUM, k % nranks, (uint64_t)k) ==
                 0);
    free(bufs[k]);
  }
  return 0;
}

Test(requests, many_in_flight, .timeout = 60) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    for (int nranks = 1; nranks <= 7; nranks++)
      cr_assert_eq(run_threads(nranks, &config, many_in_flight, NULL), 0, "%d over %s", nranks,
                   transports[t]);
  }
}

/* A wait returns after the caller's timeout, and the operation continues. */
static int patience(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  int value = 5;
  if (rank == 0) {
    RANK_OK(coll_recv(&value, 1, COLL_INT32, 1, 1, NULL, comm));
    RANK_OK(coll_send(&value, 1, COLL_INT32, 1, 0, comm));
    return 0;
  }
  coll_request *request;
  int got = 0, index = 3;
  RANK_OK(coll_irecv(&got, 1, COLL_INT32, 0, 0, NULL, comm, &request));
  RANK_CHECK(coll_wait(&request, 20) == COLL_IN_PROGRESS && request);
  RANK_CHECK(coll_wait_any(&request, 1, &index, 20) == COLL_IN_PROGRESS && index == -1);
  RANK_CHECK(coll_wait(&request, 0) == COLL_IN_PROGRESS);
  RANK_OK(coll_send(&value, 1, COLL_INT32, 0, 1, comm));
  RANK_OK(coll_wait(&request, -1));
  RANK_CHECK(got == 5 && !request);
  return 0;
}

Test(requests, patience, .timeout = 60) {
  cr_assert_eq(run_threads(2, NULL, patience, NULL), 0);
}

/* There is no limit on requests in flight, messages and collectives alike. */
static int many(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  enum { MANY = 5000 };
  static coll_request *all[2][2 * MANY];
  static int sent[MANY], got[MANY], sums[2][MANY];
  coll_request **requests = all[rank];
  for (int i = 0; i < MANY; i++) {
    if (rank == 0)
      sent[i] = i;
    RANK_OK(rank == 0 ? coll_isend(&sent[i], 1, COLL_INT32, 1, 0, comm, &requests[2 * i])
                      : coll_irecv(&got[i], 1, COLL_INT32, 0, 0, NULL, comm, &requests[2 * i]));
    sums[rank][i] = i + rank;
    RANK_OK(coll_iallreduce(&sums[rank][i], &sums[rank][i], 1, COLL_INT32, COLL_SUM, comm,
                            &requests[2 * i + 1]));
  }
  for (int i = 0; i < 2 * MANY; i++)
    RANK_OK(coll_wait(&requests[i], -1));
  for (int i = 0; i < MANY; i++)
    RANK_CHECK(sums[rank][i] == 2 * i + 1 && (rank == 0 || got[i] == i));
  return 0;
}

Test(requests, many, .timeout = 60) {
  cr_assert_eq(run_threads(2, NULL, many, NULL), 0);
}

/* Memory of coll_mem_alloc works as a buffer and is returned in any order. */
static int memory(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  void *a = NULL, *b = NULL, *none = &a;
  RANK_OK(coll_mem_alloc(comm, 400000, &a));
  RANK_OK(coll_mem_alloc(comm, 1, &b));
  RANK_OK(coll_mem_alloc(comm, 0, &none));
  RANK_CHECK(a && b && !none && (uintptr_t)a % 64 == 0);
  data_fill(a, 100000, COLL_FLOAT32, COLL_SUM, rank, 1);
  RANK_OK(coll_allreduce(a, a, 100000, COLL_FLOAT32, COLL_SUM, comm));
  RANK_CHECK(data_wrong(a, 100000, COLL_FLOAT32, COLL_SUM, nranks, 1) == 0);
  RANK_CHECK(coll_mem_free(comm, (char *)a + 64) == COLL_ERR_INVALID_ARGUMENT);
  RANK_OK(coll_mem_free(comm, a));
  RANK_CHECK(coll_mem_free(comm, a) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_mem_alloc(comm, SIZE_MAX, &a) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_mem_alloc(comm, (size_t)1 << 62, &a) != COLL_OK && !a);
  RANK_OK(coll_mem_free(comm, NULL));
  return 0; /* b goes with the communicator */
}

Test(requests, memory, .timeout = 20) {
  cr_assert_eq(run_threads(2, NULL, memory, NULL), 0);
}

/* What a receive of rank 1 says to a send of rank 0. */
typedef struct misfit {
  size_t sent, capacity;
  coll_type sent_type, type;
  bool takes_fewer, before; /* the receive is called first */
  const char *says;
} misfit;

typedef struct misfit_scene {
  const misfit *m;
  callers in_call;
} misfit_scene;

/* The communicator is as good as new, messages included. */
static int talk(coll_comm *comm, int rank) {
  int mine = rank + 1, theirs = 0, sum = 0;
  RANK_OK(coll_sendrecv(&mine, 1, 1 - rank, 8, &theirs, 1, 1 - rank, 8, COLL_INT32, NULL, comm));
  RANK_OK(coll_allreduce(&mine, &sum, 1, COLL_INT32, COLL_SUM, comm));
  RANK_CHECK(theirs == 2 - rank && sum == 3);
  return 0;
}

static int mismatch_receive(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  misfit_scene *s = arg;
  const misfit *m = s->m;
  static char bufs[2][400000];
  char *buf = memset(bufs[rank], rank == 0, sizeof(*bufs));
  const size_t room = m->capacity * coll_type_bytes(m->type);
  coll_message message;
  coll_error error = COLL_ERROR_INIT;
  if ((rank == 0) == m->before)
    RANK_CHECK(WAIT_UNTIL(waits_in_call(&s->in_call, 1 - rank), 5));
  enters_call(&s->in_call, rank);
  if (rank == 0) {
    RANK_OK(coll_send(buf, m->sent, m->sent_type, 1, 7, comm));
    return talk(comm, rank);
  }
  RANK_CHECK(coll_recv(buf, m->capacity, m->type, 0, 7, m->takes_fewer ? &message : NULL, comm) ==
             COLL_ERR_MISMATCH);
  for (size_t i = 0; i < sizeof(*bufs); i++)
    RANK_CHECK(buf[i] == 0 || i < room);
  coll_last_error(comm, &error);
  if (!strstr(error.message, m->says) || !strstr(error.message, "called send(count") ||
      !strstr(error.message, "called recv(count"))
    fprintf(stderr, "says: %s\n", error.message);
  RANK_CHECK(strstr(error.message, m->says) && strstr(error.message, "called send(count"));
  RANK_CHECK(strstr(error.message, "called recv(count") && strstr(error.message, "tag 7"));
  RANK_CHECK(error.rank == 1 && error.peer == 0);
  return talk(comm, rank);
}

Test(requests, misfits, .timeout = 60) {
  static const misfit cases[] = {
      {5, 4, COLL_INT32, COLL_INT32, false, false, "make room"},
      {5, 4, COLL_INT32, COLL_INT32, true, true, "make room"},
      {3, 4, COLL_INT32, COLL_INT32, false, true, "give the receive a coll_message"},
      {4, 4, COLL_INT32, COLL_FLOAT32, true, false, "float32"},
      {4, 4, COLL_TYPE_USER(5), COLL_TYPE_USER(6), true, true, "elements of 5 bytes"},
      {0, 0, COLL_INT8, COLL_INT64, false, false, "int64"},
      {100000, 99999, COLL_INT32, COLL_INT32, true, false, "count 100000"},
      {99999, 100000, COLL_INT32, COLL_INT32, false, true, "count 99999"},
  };
  const char *transports[] = {"shm", "tcp"};
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[i % 2];
    misfit_scene s = {.m = &cases[i]};
    cr_assert_eq(run_threads(2, &config, mismatch_receive, &s), 0, "case %zu", i);
  }
}

/* A receive that times out names the rank that it waits for, or says that any would do. */
typedef struct vain {
  int source;
  atomic_bool over;
} vain;

static int receive_in_vain(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  vain *v = arg;
  int source = v->source, value = 0;
  coll_error error = COLL_ERROR_INIT;
  if (rank != 0) {
    RANK_CHECK(WAIT_UNTIL(atomic_load(&v->over), 10));
    return 0;
  }
  RANK_CHECK(coll_recv(&value, 1, COLL_INT32, source, 12, NULL, comm) == COLL_ERR_TIMEOUT);
  coll_last_error(comm, &error);
  RANK_CHECK(strcmp(error.operation, "recv") == 0 && error.peer == source);
  if (source == COLL_ANY_SOURCE)
    RANK_CHECK(strstr(error.message, "anybody") && strstr(error.message, "from any rank, tag 12"));
  else
    RANK_CHECK(strstr(error.message, "rank 2 (host") == error.message &&
               strstr(error.message, "recv(count 1, int32) from rank 2, tag 12"));
  atomic_store(&v->over, true);
  return 0;
}

Test(requests, unanswered, .timeout = 60) {
  const int sources[] = {COLL_ANY_SOURCE, 2};
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = 300;
  for (int i = 0; i < 2; i++) {
    vain v = {.source = sources[i]};
    cr_assert_eq(run_threads(3, &config, receive_in_vain, &v), 0);
  }
}

/* Rank 1 leaves, and its process ends; what rank 0 sends to it breaks each time that it is tried.
 */
static int left_alone(coll_comm *comm, int rank, int nranks, void *arg) {
  static char data[3000];
  coll_request *requests[2] = {NULL, NULL};
  int index = -1, mine = getpid(), theirs = -1;
  (void)nranks;
  (void)arg;
  RANK_OK(coll_sendrecv(&mine, 1, 1 - rank, 0, &theirs, 1, 1 - rank, 0, COLL_INT32, NULL, comm));
  if (rank == 1)
    return 0;
  RANK_CHECK(WAIT_UNTIL(has_ended(theirs), 5));
  coll_status status = coll_irecv(&theirs, 1, COLL_INT32, 1, 1, NULL, comm, &requests[0]);
  if (status == COLL_OK)
    status = coll_isend(data, sizeof(data), COLL_UINT8, 1, 2, comm, &requests[1]);
  while (status == COLL_OK && (requests[0] || requests[1]))
    status = coll_wait_any(requests, 2, &index, -1);
  RANK_CHECK(status == COLL_ERR_PEER_LOST);
  return 0;
}

Test(requests, wait_any_ends_when_the_peer_has_left, .timeout = 60) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    cr_assert_eq(run_processes(2, &config, left_alone, NULL, 10, NULL), 0, "%s", transports[t]);
  }
}
