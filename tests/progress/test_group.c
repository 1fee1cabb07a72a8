/*
 * test_group.c: coll_group_iend(): one request for all operations of a group, of any kinds and
 * sizes, several groups in flight, and what becomes of it after a failure.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/proc/support_ranks.h"
#include "waits.h"

enum { GROUPS = 3, LONG = 30000, MOST_RANKS = 6, TAG = 5 };

/* What a rank has of one group. */
typedef struct traffic {
  int *out, *in; /* LONG elements for each rank */
  int one, sum;
  coll_request *request;
} traffic;

/* Each rank sends to all, receives from all, itself too, and adds up. */
static int start_group(coll_comm *comm, int rank, int nranks, traffic *t, size_t elems, int round) {
  for (int i = 0; i < nranks * LONG; i++)
    t->out[i] = rank * 100 + i / LONG + round;
  memset(t->in, 0, (size_t)nranks * LONG * sizeof(int));
  t->one = round + 1;
  RANK_OK(coll_group_start(comm));
  for (int peer = nranks - 1; peer >= 0; peer--) {
    RANK_OK(coll_recv(&t->in[peer * LONG], elems, COLL_INT32, peer, TAG + round, NULL, comm));
    RANK_OK(coll_send(&t->out[peer * LONG], elems, COLL_INT32, peer, TAG + round, comm));
  }
  RANK_OK(coll_allreduce(&t->one, &t->sum, 1, COLL_INT32, COLL_SUM, comm));
  RANK_OK(coll_group_iend(comm, &t->request));
  RANK_CHECK(t->request);
  return 0;
}

static int check_group(int rank, int nranks, const traffic *t, size_t elems, int round) {
  RANK_CHECK(t->sum == nranks * (round + 1));
  for (int peer = 0; peer < nranks; peer++)
    for (size_t i = 0; i < LONG; i++)
      RANK_CHECK(t->in[(size_t)peer * LONG + i] == (i < elems ? peer * 100 + rank + round : 0));
  return 0;
}

/* Ends all requests, each time by other calls. */
static coll_status end_all(coll_request **requests, int count, int way) {
  coll_status status = COLL_OK;
  int index;
  if (way == 0)
    return coll_wait_all(requests, count, NULL, -1);
  for (int i = 0; i < count && status == COLL_OK; i++)
    if (way == 1)
      status = coll_wait(&requests[count - 1 - i], -1);
    else if (way == 2)
      status = coll_wait_any(requests, count, &index, -1);
    else
      while ((status = coll_test(&requests[i])) == COLL_IN_PROGRESS) {
      }
  return status;
}

static int exchange(coll_comm *comm, int rank, int nranks, void *arg) {
  static const size_t sizes[] = {0, 1, 1001, LONG};
  traffic t[GROUPS];
  coll_request *requests[GROUPS];
  (void)arg;
  for (int g = 0; g < GROUPS; g++) {
    t[g].out = malloc((size_t)nranks * LONG * sizeof(int));
    t[g].in = malloc((size_t)nranks * LONG * sizeof(int));
  }
  for (int s = 0; s < 4; s++) {
    for (int g = 0; g < GROUPS; g++) {
      if (start_group(comm, rank, nranks, &t[g], sizes[s], g) != 0)
        return 1;
      requests[g] = t[g].request;
    }
    RANK_OK(end_all(requests, GROUPS, s));
    for (int g = 0; g < GROUPS; g++) {
      RANK_CHECK(!requests[g]);
      if (check_group(rank, nranks, &t[g], sizes[s], g) != 0)
        return 1;
    }
  }
  for (int g = 0; g < GROUPS; g++) {
    free(t[g].out);
    free(t[g].in);
  }
  return 0;
}

Test(group, one_request_for_all, .timeout = 300) {
  cr_expect_eq(run_in_all_ways(MOST_RANKS, 1, 4, exchange, NULL), 0);
}

/* Some ranks wait in the end of the group, others have a request; and groups without operations. */
static int mixed_ends(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_request *request = NULL;
  int sum[2] = {0, 0};
  (void)arg;
  RANK_OK(coll_group_start(comm));
  for (int i = 0; i < 2; i++)
    RANK_OK(coll_allreduce(&rank, &sum[i], 1, COLL_INT32, i ? COLL_MAX : COLL_SUM, comm));
  if (rank % 2)
    RANK_OK(coll_group_end(comm));
  else
    RANK_OK(coll_group_iend(comm, &request));
  if (request)
    RANK_OK(coll_wait(&request, -1));
  RANK_CHECK(sum[0] == nranks * (nranks - 1) / 2 && sum[1] == nranks - 1);
  RANK_OK(coll_group_start(comm));
  RANK_OK(coll_group_iend(comm, &request));
  RANK_OK(coll_wait(&request, 0));
  return 0;
}

/* Bad calls, each of which leaves the communicator as it was. */
static int bad_calls(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_request *request = (coll_request *)comm;
  int value = 1, sum = 0;
  (void)arg;
  RANK_CHECK(coll_group_iend(NULL, &request) == COLL_ERR_INVALID_ARGUMENT && !request);
  RANK_CHECK(coll_group_iend(comm, NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_group_iend(comm, &request) == COLL_ERR_INVALID_USAGE && !request);
  RANK_OK(coll_group_start(comm));
  RANK_OK(coll_group_start(comm));
  RANK_CHECK(coll_group_iend(comm, &request) == COLL_ERR_INVALID_USAGE && !request);
  RANK_OK(coll_group_end(comm));
  RANK_CHECK(coll_allreduce(NULL, &sum, 1, COLL_INT32, COLL_SUM, comm) ==
             COLL_ERR_INVALID_ARGUMENT);
  RANK_OK(coll_allreduce(&value, &sum, 1, COLL_INT32, COLL_SUM, comm)); /* kept, but not run */
  RANK_CHECK(coll_group_iend(comm, &request) == COLL_ERR_INVALID_ARGUMENT && !request && !sum);
  return mixed_ends(comm, rank, nranks, NULL);
}

Test(group, ends_and_bad_calls, .timeout = 120) {
  cr_expect_eq(run_threads(1, NULL, bad_calls, NULL), 0);
  cr_expect_eq(run_threads(4, NULL, bad_calls, NULL), 0);
  cr_expect_eq(run_processes(3, NULL, bad_calls, NULL, 30, NULL), 0);
}

/* ---- failures -------------------------------------------------------------------------------- */

typedef struct scene {
  atomic_int called;
  _Atomic coll_status told;
} scene;

static void note_end(void *context, coll_status status) {
  scene *s = context;
  atomic_store(&s->told, status);
  atomic_fetch_add(&s->called, 1);
}

/* Rank 1 leaves after one of the operations; the others' requests fail, and a callback comes once.
 */
static int left_alone(coll_comm *comm, int rank, int nranks, void *arg) {
  scene s = {.told = COLL_OK};
  coll_comm *own = NULL;
  coll_request *requests[2] = {NULL, NULL};
  coll_error error = COLL_ERROR_INIT;
  int value = 1, sums[4] = {0};
  (void)nranks, (void)arg;
  RANK_OK(coll_comm_dup(comm, NULL, &own));
  for (int g = 0; g < 2; g++) {
    if (rank == 1 && g == 1) {
      coll_comm_destroy(&own);
      return 0;
    }
    RANK_OK(coll_group_start(own));
    for (int i = 0; i < (rank == 1 ? 1 : 2); i++)
      RANK_OK(coll_allreduce(&value, &sums[2 * g + i], 1, COLL_INT32, COLL_SUM, own));
    coll_status status = coll_group_iend(own, &requests[g]);
    RANK_CHECK(status == COLL_OK || (rank != 1 && status == COLL_ERR_PEER_LOST));
    if (rank == 1)
      RANK_OK(coll_wait(&requests[0], -1));
  }
  if (requests[1])
    RANK_OK(coll_request_set_callback(&requests[1], note_end, &s));
  else
    note_end(&s, COLL_ERR_PEER_LOST);
  if (requests[0])
    RANK_CHECK(coll_wait(&requests[0], -1) == COLL_ERR_PEER_LOST && !requests[0]);
  RANK_CHECK(coll_last_error(own, &error) == COLL_OK && error.peer == 1);
  RANK_OK(coll_comm_destroy(&own));
  RANK_CHECK(atomic_load(&s.called) == 1 && atomic_load(&s.told) == COLL_ERR_PEER_LOST);
  return 0;
}

/* A group that nobody completes ends with its communicator; one that was revoked fails. */
static int given_up(coll_comm *comm, int rank, int nranks, void *arg) {
  scene s = {.told = COLL_OK};
  coll_comm *other = NULL;
  coll_request *request = NULL, *revoked = NULL;
  int value = 1;
  (void)nranks, (void)arg;
  RANK_OK(coll_comm_dup(comm, NULL, &other));
  for (int i = 0; i < 2; i++) {
    coll_comm *on = i ? comm : other;
    RANK_OK(coll_group_start(on));
    RANK_OK(coll_recv(&value, 1, COLL_INT32, rank, TAG, NULL, on));
    RANK_OK(coll_group_iend(on, i ? &revoked : &request));
  }
  RANK_OK(coll_request_set_callback(&request, note_end, &s));
  coll_status status = coll_barrier(comm); /* who has left it revokes */
  RANK_CHECK(status == COLL_OK || status == COLL_ERR_ABORTED);
  RANK_OK(coll_comm_destroy(&other));
  RANK_CHECK(atomic_load(&s.called) == 1 && atomic_load(&s.told) == COLL_ERR_ABORTED);
  RANK_OK(coll_comm_revoke(comm));
  RANK_CHECK(coll_wait(&revoked, -1) == COLL_ERR_ABORTED && !revoked);
  return 0;
}

Test(group, failures, .timeout = 120) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    cr_expect_eq(run_processes(3, &config, left_alone, NULL, 40, NULL), 0, "%s", transports[t]);
    cr_expect_eq(run_processes(3, &config, given_up, NULL, 40, NULL), 0, "%s", transports[t]);
    config.progress = COLL_PROGRESS_ON;
    cr_expect_eq(run_processes(3, &config, given_up, NULL, 40, NULL), 0, "%s", transports[t]);
  }
}
