/* test_limit.c: limits of single operations (coll_request_set_timeout). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extent.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

enum { TAG = 3, LATE = 4, ANY = 5, SHORT_MS = 300, LONG_MS = 60000 };

/* Receives that nobody sends to end alone: of a rank, of any, a persistent one, twice. What comes
 * later is there for another receive. */
static int receive(coll_comm *comm, int rank, int nranks, void *arg) {
  const int peer = (rank + 1) % nranks, from = (rank + nranks - 1) % nranks;
  int word = 10 + rank, got = -1, kept = -1, other = -1;
  coll_request *late, *any, *again, *good;
  coll_error error = COLL_ERROR_INIT;
  (void)arg;
  RANK_OK(coll_irecv(&got, 1, COLL_INT32, from, LATE, NULL, comm, &late));
  RANK_OK(coll_irecv(&got, 1, COLL_INT32, COLL_ANY_SOURCE, ANY, NULL, comm, &any));
  RANK_OK(coll_irecv(&other, 1, COLL_INT32, from, TAG, NULL, comm, &good));
  RANK_OK(coll_recv_init(&kept, 1, COLL_INT32, from, LATE, NULL, comm, &again));
  RANK_CHECK(coll_request_set_timeout(again, SHORT_MS) == COLL_ERR_INVALID_USAGE);
  RANK_CHECK(coll_request_set_timeout(late, -1) == COLL_ERR_INVALID_ARGUMENT);
  RANK_OK(coll_start(again));
  const double start = now_s();
  RANK_OK(coll_request_set_timeout(late, SHORT_MS));
  RANK_OK(coll_request_set_timeout(any, SHORT_MS));
  RANK_OK(coll_request_set_timeout(again, SHORT_MS));
  RANK_OK(coll_request_set_timeout(good, LONG_MS));
  RANK_CHECK(coll_wait(&late, -1) == COLL_ERR_TIMEOUT && !late);
  RANK_CHECK(now_s() - start >= SHORT_MS / 1e3 - 0.01);
  coll_last_error(comm, &error);
  RANK_CHECK(error.status == COLL_ERR_TIMEOUT && strstr(error.message, "300 ms"));
  RANK_CHECK(coll_wait(&any, -1) == COLL_ERR_TIMEOUT && !any);
  RANK_CHECK(coll_wait(&again, -1) == COLL_ERR_TIMEOUT && again);
  RANK_CHECK(got == -1 && kept == -1);
  RANK_OK(coll_start(again)); /* without a limit */
  RANK_OK(coll_barrier(comm));
  RANK_OK(coll_send(&word, 1, COLL_INT32, peer, LATE, comm));
  RANK_OK(coll_send(&word, 1, COLL_INT32, peer, TAG, comm));
  RANK_OK(coll_wait(&again, -1));
  RANK_OK(coll_wait(&good, -1));
  RANK_CHECK(kept == 10 + from && other == 10 + from && got == -1);
  RANK_OK(coll_request_free(&again));
  RANK_OK(coll_barrier(comm));
  return 0;
}

Test(limit, receives_end_alone, .timeout = 300) {
  cr_expect_eq(run_in_all_ways(3, 1, extent(2, 3, 2), receive, NULL), 0);
}

/* What ranks share. */
typedef struct scene {
  bool grouped;
  atomic_int entered, failed; /* ranks */
  atomic_int blamed;          /* by the first */
} scene;

/* The last rank does not enter a collective until all others have failed. The first has a limit,
 * the others have none or a longer one. */
static int miss(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  const bool grouped = s->grouped;
  int one = 1, sum = 0;
  coll_request *request = NULL;
  coll_error error = COLL_ERROR_INIT;
  if (rank == nranks - 1) {
    RANK_CHECK(WAIT_UNTIL(atomic_load(&s->failed) == nranks - 1, slow_s(60)));
    RANK_CHECK(coll_allreduce(&one, &sum, 1, COLL_INT32, COLL_SUM, comm) == COLL_ERR_TIMEOUT);
    return 0;
  }
  if (grouped)
    RANK_OK(coll_group_start(comm));
  if (grouped)
    RANK_OK(coll_allreduce(&one, &sum, 1, COLL_INT32, COLL_SUM, comm));
  if (grouped)
    RANK_OK(coll_group_iend(comm, &request));
  else
    RANK_OK(coll_iallreduce(&one, &sum, 1, COLL_INT32, COLL_SUM, comm, &request));
  atomic_fetch_add(&s->entered, 1);
  RANK_CHECK(WAIT_UNTIL(atomic_load(&s->entered) == nranks - 1, slow_s(60)));
  if (rank != 1)
    RANK_OK(coll_request_set_timeout(request, rank == 0 ? SHORT_MS : LONG_MS));
  RANK_CHECK(coll_wait(&request, -1) == COLL_ERR_TIMEOUT);
  coll_last_error(comm, &error);
  RANK_CHECK(error.peer > 0 && strstr(error.message, "300 ms"));
  int none = 0; /* one that answers late on a busy machine may be blamed, but by all */
  RANK_CHECK(atomic_compare_exchange_strong(&s->blamed, &none, error.peer) || none == error.peer);
  RANK_CHECK(nranks > 2 || strstr(error.message, "has not entered"));
  RANK_CHECK(coll_barrier(comm) == COLL_ERR_TIMEOUT);
  atomic_fetch_add(&s->failed, 1);
  return 0;
}

Test(limit, earliest_of_a_collective, .timeout = 300) {
  static const char *const transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++)
    for (int way = 0; way < 4; way++) {
      coll_config config = COLL_CONFIG_INIT;
      scene *s = shared_memory(sizeof(*s));
      s->grouped = way / 2;
      config.transport = transports[t];
      config.progress = way % 2 ? COLL_PROGRESS_ON : COLL_PROGRESS_OFF;
      config.timeout_ms = config.create_timeout_ms = slow_ms(60000);
      cr_expect_eq(run_processes(way % 3 ? 4 : 2, &config, miss, s, 100, NULL), 0, "%s, way %d",
                   transports[t], way);
    }
}

/* A limit above the communicator's timeout keeps an operation; and bad arguments. */
static int outlast(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_request *request;
  int one = 1, sum = 0, got = 0;
  (void)arg;
  RANK_CHECK(coll_request_set_timeout(NULL, 1) == COLL_ERR_INVALID_ARGUMENT);
  RANK_OK(coll_iallreduce(&one, &sum, 1, COLL_INT32, COLL_SUM, comm, &request));
  RANK_OK(coll_request_set_timeout(request, 30000));
  RANK_OK(coll_wait(&request, -1));
  RANK_CHECK(sum == nranks);
  RANK_OK(coll_irecv(&got, 1, COLL_INT32, rank, TAG, NULL, comm, &request));
  RANK_OK(coll_request_set_timeout(request, 30000));
  RANK_CHECK(coll_wait(&request, 2500) == COLL_IN_PROGRESS); /* longer than timeout_ms */
  RANK_OK(coll_send(&one, 1, COLL_INT32, rank, TAG, comm));
  RANK_OK(coll_wait(&request, -1));
  RANK_CHECK(got == 1);
  return 0;
}

Test(limit, above_the_communicators, .timeout = 300) {
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = 1000; /* is meant to pass */
  cr_expect_eq(run_threads(1, &config, outlast, NULL), 0);
}

/* A dup that cannot be complete takes no limit. */
static int refuse(coll_comm *comm, int rank, int nranks, void *arg) {
  atomic_int *tried = arg;
  coll_request *dup;
  coll_comm *child;
  if (rank > 0)
    RANK_CHECK(WAIT_UNTIL(atomic_load(tried) == 1, slow_s(60)));
  RANK_OK(coll_comm_idup(comm, NULL, &child, &dup));
  if (rank == 0) {
    RANK_CHECK(nranks == 2 && coll_request_set_timeout(dup, 1) == COLL_ERR_INVALID_USAGE);
    atomic_store(tried, 1);
  }
  RANK_OK(coll_wait(&dup, -1));
  RANK_OK(coll_barrier(child));
  coll_comm_destroy(&child);
  return 0;
}

Test(limit, not_of_a_dup, .timeout = 300) {
  atomic_int tried = 0;
  cr_expect_eq(run_threads(2, NULL, refuse, &tried), 0);
}

/* A long message that its receiver does not take: the sender's limit ends the communicator, for
 * the receiver too. */
static int never_taken(coll_comm *comm, int rank, int nranks, void *arg) {
  atomic_int *failed = arg;
  enum { COUNT = 1 << 22 };
  int *data = calloc(COUNT, sizeof(*data));
  coll_request *request;
  coll_error error = COLL_ERROR_INIT;
  RANK_CHECK(nranks == 2 && data);
  if (rank == 0) {
    RANK_OK(coll_isend(data, COUNT, COLL_INT32, 1, TAG, comm, &request));
    RANK_OK(coll_request_set_timeout(request, SHORT_MS));
    RANK_CHECK(coll_wait(&request, -1) == COLL_ERR_TIMEOUT);
    coll_last_error(comm, &error);
    RANK_CHECK(error.peer == 1 && strstr(error.message, "300 ms"));
    atomic_store(failed, 1);
  } else {
    RANK_CHECK(WAIT_UNTIL(atomic_load(failed) == 1, slow_s(60)));
    RANK_CHECK(coll_recv(data, COUNT, COLL_INT32, 0, TAG, NULL, comm) == COLL_ERR_TIMEOUT);
  }
  free(data);
  return 0;
}

Test(limit, of_a_send, .timeout = 300) {
  static const char *const transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    atomic_int *failed = shared_memory(sizeof(*failed));
    config.transport = transports[t];
    config.timeout_ms = slow_ms(60000);
    cr_expect_eq(run_processes(2, &config, never_taken, failed, 100, NULL), 0, "%s", transports[t]);
  }
}
