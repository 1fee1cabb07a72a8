/* test_isplit.c: communicators that nonblocking calls make. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "extent.h"
#include "number.h"
#include "tests/proc/support_family.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

enum { SPLITS = 5, MAX_RANKS = 12 };

/* One split under way. */
typedef struct pending {
  int color; /* of this rank; -2: a dup */
  coll_comm *child;
  coll_request *request;
  bool done;
} pending;

/* The color and the key of a rank in a split. */
static int color_of(unsigned seed, int split, int rank) {
  return (int)(number_hash(seed, (uint64_t)split, (uint64_t)rank, 1) % 4) - 1;
}

static int key_of(unsigned seed, int split, int rank) {
  return (int)(number_hash(seed, (uint64_t)split, (uint64_t)rank, 2) % 3) - 1;
}

/* Whether `a` comes before `b` in their child. */
static bool is_before(unsigned seed, int split, int a, int b) {
  int key_a = key_of(seed, split, a), key_b = key_of(seed, split, b);
  return key_a < key_b || (key_a == key_b && a < b);
}

/* Checks who is in the child of a split, and that it works. */
static int check_child(const pending *p, unsigned seed, int split, int rank, int nranks) {
  int own = -1, count = 0, want_rank = 0, want_count = 0;
  RANK_CHECK((p->child == NULL) == (p->color == COLL_NO_COLOR));
  if (!p->child)
    return 0;
  for (int r = 0; r < nranks; r++) {
    bool in = p->color == -2 || color_of(seed, split, r) == p->color;
    want_count += in;
    want_rank += in && r != rank && (p->color == -2 ? r < rank : is_before(seed, split, r, rank));
  }
  RANK_CHECK(coll_comm_rank(p->child, &own) == COLL_OK && own == want_rank);
  RANK_CHECK(coll_comm_nranks(p->child, &count) == COLL_OK && count == want_count);
  return family_exercise(p->child, number_hash(seed, 9, 9, (uint64_t)split) % 2000, seed);
}

/* Starts one split; some ranks make the blocking call instead. */
static int start_one(coll_comm *comm, pending *p, unsigned seed, int split, int rank) {
  bool dup = number_hash(seed, (uint64_t)split, 0, 3) % 3 == 0;
  int color = color_of(seed, split, rank), key = key_of(seed, split, rank);
  *p = (pending){.color = dup ? -2 : color, .child = comm};
  if (split == SPLITS - 1 && (seed + (unsigned)rank) % 3 == 0) {
    p->done = true;
    if (dup)
      RANK_OK(coll_comm_dup(comm, NULL, &p->child));
    else
      RANK_OK(coll_comm_split(comm, color, key, NULL, &p->child));
    return 0;
  }
  if (dup)
    RANK_OK(coll_comm_idup(comm, NULL, &p->child, &p->request));
  else
    RANK_OK(coll_comm_isplit(comm, color, key, NULL, &p->child, &p->request));
  RANK_CHECK(p->child == NULL && p->request);
  return 0;
}

/* Completes one split by one of the calls that do so; false: it failed. */
static bool complete_one(pending *splits, int which, unsigned how) {
  pending *p = &splits[which];
  int index = -1;
  coll_request *requests[SPLITS] = {NULL};
  coll_status status = COLL_IN_PROGRESS;
  requests[which] = p->request;
  if (how % 3 == 0)
    while (status == COLL_IN_PROGRESS)
      status = coll_test(&p->request);
  else if (how % 3 == 1)
    status = coll_wait(&p->request, -1);
  else
    status = coll_wait_any(requests, SPLITS, &index, -1);
  p->done = true;
  p->request = NULL;
  return status == COLL_OK && (how % 3 != 2 || index == which);
}

/* Several splits at the same time, between other collectives, completed in another order. */
static int several(coll_comm *comm, int rank, int nranks, unsigned seed) {
  pending splits[SPLITS];
  family_pending sums[SPLITS];
  int result = 0;
  for (int i = 0; i < SPLITS; i++) {
    if (start_one(comm, &splits[i], seed, i, rank) != 0 ||
        family_start(&sums[i], comm, 10 + (size_t)i, seed + (unsigned)i) != 0)
      return 1;
  }
  for (int i = 0; i < SPLITS; i++) {
    int which = (i * 3 + (int)seed) % SPLITS; /* the same order, for they are used at once */
    if (!splits[which].done)
      RANK_CHECK(complete_one(splits, which, seed + (unsigned)(rank + i)));
    result |= check_child(&splits[which], seed, which, rank, nranks);
    result |= family_finish(&sums[(which + rank) % SPLITS]);
  }
  for (int i = 0; i < SPLITS; i++)
    coll_comm_destroy(&splits[(i + rank) % SPLITS].child);
  return result;
}

static int random_splits(coll_comm *comm, int rank, int nranks, void *arg) {
  for (unsigned seed = 1; seed <= *(unsigned *)arg; seed++) {
    coll_comm *child = NULL; /* of a child, too */
    coll_request *request;
    if (several(comm, rank, nranks, seed * 13) != 0)
      return 1;
    RANK_OK(coll_comm_idup(comm, NULL, &child, &request));
    RANK_OK(coll_wait(&request, -1));
    int result = several(child, rank, nranks, seed * 17);
    coll_comm_destroy(&child);
    if (result != 0)
      return 1;
  }
  return family_exercise(comm, 100, 3);
}

Test(isplit, random, .timeout = 200) {
  unsigned seeds = (unsigned)extent(2, 4, 1);
  cr_assert_eq(run_in_all_ways(7, 1, 4, random_splits, &seeds), 0);
}

/* It does not wait for the others: the last rank calls after the first has seen that. */
static int not_waiting(coll_comm *comm, int rank, int nranks, void *arg) {
  atomic_int *seen = arg;
  coll_comm *child = NULL;
  coll_request *request = NULL;
  if (rank == nranks - 1)
    WAIT_UNTIL(atomic_load(seen) == nranks - 1, 40);
  RANK_OK(coll_comm_idup(comm, NULL, &child, &request));
  if (rank < nranks - 1) {
    RANK_CHECK(coll_test(&request) == COLL_IN_PROGRESS && !child);
    RANK_CHECK(coll_wait(&request, 1) == COLL_IN_PROGRESS && !child);
    atomic_fetch_add(seen, 1);
  }
  RANK_OK(coll_wait(&request, -1));
  int result = family_exercise(child, 100, 1);
  coll_comm_destroy(&child);
  return result;
}

Test(isplit, not_waiting, .timeout = 100) {
  cr_assert_eq(run_threads(3, NULL, not_waiting, shared_memory(sizeof(atomic_int))), 0);
  cr_assert_eq(run_processes(3, NULL, not_waiting, shared_memory(sizeof(atomic_int)), 60, NULL), 0);
}

/* The parent may be destroyed before, and then there is no child; or right after. */
static int parent_first(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *parent = NULL, *early = NULL, *child = NULL;
  coll_request *requests[3] = {NULL};
  (void)arg;
  (void)nranks;
  RANK_OK(coll_comm_dup(comm, NULL, &parent));
  RANK_OK(coll_comm_idup(parent, NULL, &child, &requests[0]));
  RANK_OK(coll_wait(&requests[0], -1));
  RANK_OK(coll_comm_isplit(parent, 0, -rank, NULL, &early, &requests[1]));
  RANK_OK(coll_comm_isplit(parent, COLL_NO_COLOR, 0, NULL, &early, &requests[2]));
  coll_comm_destroy(&parent);
  RANK_CHECK(early == NULL);
  int result = family_exercise(child, 1000, 2);
  coll_comm_destroy(&child);
  return result ? result : family_exercise(comm, 1000, 2);
}

Test(isplit, parent_first, .timeout = 60) {
  cr_assert_eq(run_threads(3, NULL, parent_first, NULL), 0);
  cr_assert_eq(run_processes(3, NULL, parent_first, NULL, 30, NULL), 0);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static int bad_arguments(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *child = comm;
  coll_request *request = (coll_request *)&child;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  (void)nranks;
  (void)arg;
  config.error = &error;
  RANK_CHECK(coll_comm_isplit(comm, -7, 0, &config, &child, &request) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(!child && !request && strstr(error.message, "color"));
  RANK_CHECK(coll_comm_isplit(comm, 0, 0, NULL, NULL, &request) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_comm_isplit(comm, 0, 0, NULL, &child, NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_comm_idup(comm, NULL, NULL, &request) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_comm_idup(comm, NULL, &child, NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_comm_idup(NULL, NULL, &child, &request) == COLL_ERR_INVALID_ARGUMENT);
  config.transport = "tcp,shm";
  RANK_CHECK(coll_comm_idup(comm, &config, &child, &request) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(!child && !request && strstr(error.message, "transport"));
  RANK_OK(coll_comm_idup(comm, NULL, &child, &request));
  RANK_CHECK(coll_start(request) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_request_free(&request) == COLL_ERR_INVALID_USAGE);
  RANK_OK(coll_wait(&request, -1));
  int result = family_exercise(child, 10, 1);
  coll_comm_destroy(&child);
  return result;
}

Test(isplit, bad_arguments, .timeout = 60) {
  cr_assert_eq(run_threads(2, NULL, bad_arguments, NULL), 0);
}

/* Ranks that make different calls, and one that is killed: the request ends with the error. */
static int disagree(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *parent = NULL, *child = NULL;
  coll_request *request = NULL;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  (void)arg;
  config.error = &error;
  RANK_OK(coll_comm_dup(comm, NULL, &parent));
  if (rank == nranks - 1)
    RANK_OK(coll_comm_idup(parent, &config, &child, &request));
  else
    RANK_OK(coll_comm_isplit(parent, 0, 0, &config, &child, &request));
  RANK_CHECK(coll_wait(&request, -1) == COLL_ERR_MISMATCH && !child && !request);
  RANK_CHECK(error.status == COLL_ERR_MISMATCH && strstr(error.message, "coll_comm_dup"));
  RANK_CHECK(coll_comm_idup(parent, NULL, &child, &request) == COLL_ERR_MISMATCH && !request);
  coll_comm_destroy(&parent);
  return family_exercise(comm, 100, 1);
}

static int killed(coll_comm *comm, int rank, int nranks, void *arg) {
  callers *in_call = arg;
  coll_comm *child = NULL;
  coll_request *request = NULL;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  config.error = &error;
  if (rank == 1) {
    WAIT_UNTIL(all_wait_in_call(in_call, nranks, 1), 40);
    raise(SIGKILL);
  }
  RANK_OK(coll_comm_isplit(comm, 0, 0, &config, &child, &request));
  enters_call(in_call, rank);
  RANK_CHECK(coll_wait(&request, -1) == COLL_ERR_PEER_LOST && !child);
  RANK_CHECK(error.status == COLL_ERR_PEER_LOST && error.peer == 1);
  return 0;
}

Test(isplit, errors, .timeout = 100) {
  int results[4];
  cr_assert_eq(run_threads(3, NULL, disagree, NULL), 0);
  cr_assert_eq(run_processes(4, NULL, disagree, NULL, 30, NULL), 0);
  run_processes(4, NULL, killed, shared_memory(sizeof(callers)), 60, results);
  for (int r = 0; r < 4; r++)
    cr_assert_eq(results[r], r == 1 ? 128 + SIGKILL : 0, "rank %d: %d", r, results[r]);
}
