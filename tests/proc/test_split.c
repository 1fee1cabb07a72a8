/* test_split.c: communicators made from others: who is in them, and that they all work. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "extent.h"
#include "number.h"
#include "sanitized.h"
#include "support_family.h"
#include "support_ranks.h"

#define MAX_RANKS 16

/* ---- who is in them -------------------------------------------------------------------------- */

/* The expected members, by origin, of a rank's child in a split with these colors and keys. */
static int expected(const int *colors, const int *keys, int nranks, int color, int *members) {
  int count = 0;
  for (int r = 0; r < nranks; r++)
    if (colors[r] == color)
      members[count++] = r;
  for (int i = 1; i < count; i++) /* by key; equal ones stay in order */
    for (int j = i; j > 0 && keys[members[j]] < keys[members[j - 1]]; j--) {
      int other = members[j];
      members[j] = members[j - 1];
      members[j - 1] = other;
    }
  return count;
}

/* Checks that `child` has these members of `parent`. */
static int check_members(coll_comm *parent, int rank, coll_comm *child, const int *members,
                         int count) {
  int child_rank = -1, child_nranks = 0, origin, own;
  RANK_CHECK(coll_comm_rank(child, &child_rank) == COLL_OK);
  RANK_CHECK(coll_comm_nranks(child, &child_nranks) == COLL_OK);
  RANK_CHECK(child_nranks == count);
  RANK_CHECK(members[child_rank] == rank);
  for (int r = 0; r < count; r++) {
    RANK_CHECK(coll_comm_origin_rank(child, r, &origin) == COLL_OK);
    RANK_CHECK(coll_comm_origin_rank(parent, members[r], &own) == COLL_OK);
    RANK_CHECK(origin == own);
  }
  RANK_CHECK(coll_comm_origin_rank(child, count, &origin) == COLL_ERR_INVALID_ARGUMENT);
  return 0;
}

/* Splits by random colors and keys, checks, and splits the children, `depth` levels deep. */
static int split_at_random(coll_comm *comm, unsigned seed, int depth) {
  int rank, nranks, colors[MAX_RANKS], keys[MAX_RANKS], members[MAX_RANKS];
  coll_comm_rank(comm, &rank);
  coll_comm_nranks(comm, &nranks);
  for (int r = 0; r < nranks; r++) {
    colors[r] = (int)(number_hash(seed, (uint64_t)r, 1, 0) % 4) - 1;
    keys[r] = (int)(number_hash(seed, (uint64_t)r, 2, 0) % 5) - 2;
  }
  coll_comm *child = (coll_comm *)&rank;
  RANK_OK(coll_comm_split(comm, colors[rank], keys[rank], NULL, &child));
  RANK_CHECK((child == NULL) == (colors[rank] == COLL_NO_COLOR));
  int result = 0;
  if (child) {
    int count = expected(colors, keys, nranks, colors[rank], members);
    result = check_members(comm, rank, child, members, count);
    if (result == 0)
      result = family_exercise(child, number_hash(seed, 3, 3, 0) % 3000, seed);
    if (result == 0 && depth > 1)
      result = split_at_random(child, seed * 7 + (unsigned)colors[rank], depth - 1);
    if (result == 0)
      result = family_exercise(child, 9, seed + 1);
  }
  if (result == 0)
    result = family_exercise(comm, 100, seed + 2);
  coll_comm_destroy(&child);
  return result;
}

static int random_splits(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)rank;
  (void)nranks;
  for (unsigned seed = 1; seed <= *(unsigned *)arg; seed++)
    if (split_at_random(comm, seed * 31, 3) != 0)
      return 1;
  return 0;
}

Test(split, random, .timeout = 100) {
  const char *transports[] = {"shm", "tcp"};
  unsigned seeds = (unsigned)extent(3, 6, 2);
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    for (int nranks = 1; nranks <= 7; nranks += 2)
      cr_assert_eq(run_threads(nranks, &config, random_splits, &seeds), 0);
    cr_assert_eq(run_processes(4, &config, random_splits, &seeds, 60, NULL), 0);
  }
}

static int dups_and_subsets(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  int list[MAX_RANKS], all[MAX_RANKS];
  for (int r = 0; r < nranks; r++)
    all[r] = r;
  coll_comm *dup = NULL, *subset = NULL, *one = NULL, *none = comm;
  RANK_OK(coll_comm_dup(comm, NULL, &dup));
  RANK_CHECK(check_members(comm, rank, dup, all, nranks) == 0);
  for (int r = 0; r < nranks - 1; r++)
    list[r] = nranks - 1 - r; /* all but rank 0, backwards */
  RANK_OK(coll_comm_subset(dup, list, nranks - 1, NULL, &subset));
  RANK_CHECK((subset == NULL) == (rank == 0));
  if (subset) {
    RANK_CHECK(check_members(comm, rank, subset, list, nranks - 1) == 0);
    RANK_CHECK(family_exercise(subset, 500, 5) == 0);
  }
  RANK_OK(coll_comm_subset(comm, &rank, 0, NULL, &none));
  RANK_CHECK(none == NULL);
  RANK_OK(coll_comm_split(comm, rank, 0, NULL, &one)); /* each by itself */
  RANK_CHECK(check_members(comm, rank, one, &rank, 1) == 0);
  RANK_CHECK(family_exercise(one, 10, 6) == 0);
  RANK_CHECK(family_exercise(dup, 10000, 7) == 0);
  coll_comm_destroy(&dup);
  coll_comm_destroy(&one);
  coll_comm_destroy(&subset);
  return family_exercise(comm, 10, 8);
}

Test(split, dups_and_subsets, .timeout = 60) {
  cr_assert_eq(run_threads(5, NULL, dups_and_subsets, NULL), 0);
  cr_assert_eq(run_threads(2, NULL, dups_and_subsets, NULL), 0);
}

/* ---- in any order ---------------------------------------------------------------------------- */

enum { MANY = 9 };

/* Starts operations on parent and children, and waits for them, in a different order on each rank.
 * */
static int in_any_order(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  coll_comm *comms[MANY] = {comm};
  family_pending pending[MANY];
  for (int i = 1; i < MANY; i++)
    RANK_OK(coll_comm_split(comms[i / 2], 0, i % 2 ? -rank : rank, NULL, &comms[i]));
  for (unsigned round = 0; round < 12; round++) {
    unsigned turn = number_hash(round, (uint64_t)rank, 0, 0),
             step = round % 2 ? 2 : 4; /* coprime to 9 */
    for (unsigned i = 0; i < MANY; i++) {
      unsigned at = (turn + i * step) % MANY;
      size_t count = round % 3 == 2 ? 60000 : number_hash(round, at, 9, 0) % 2000;
      RANK_CHECK(family_start(&pending[at], comms[at], count, round * 100 + at) == 0);
    }
    turn = number_hash(round, (uint64_t)rank, 1, 0);
    for (unsigned i = 0; i < MANY; i++)
      RANK_CHECK(family_finish(&pending[(turn + i * step) % MANY]) == 0);
  }
  for (int i = 1; i < MANY; i++)
    coll_comm_destroy(&comms[(i * 5 + rank) % (MANY - 1) + 1]);
  return nranks > 0 ? family_exercise(comm, 10, 1) : 1;
}

/* Rank 0 sends to rank 1 on many communicators, more than the connection holds; rank 1 receives in
 * the opposite order. */
static int many_before_one(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  coll_comm *comms[40];
  int values[40];
  for (int i = 0; i < 40; i++)
    RANK_OK(coll_comm_dup(comm, NULL, &comms[i]));
  for (int round = 0; round < 20; round++)
    for (int i = 0; i < 40; i++) {
      int at = rank == 0 ? i : 39 - i;
      values[at] = rank == 0 ? 1000 * round + at : -1;
      if (rank == 0)
        RANK_OK(coll_send(&values[at], 1, COLL_INT32, 1, 0, comms[at]));
      else
        RANK_OK(coll_recv(&values[at], 1, COLL_INT32, 0, 0, NULL, comms[at]));
      RANK_CHECK(values[at] == 1000 * round + at);
    }
  for (int i = 0; i < 40; i++)
    coll_comm_destroy(&comms[i]);
  return 0;
}

Test(split, in_any_order, .timeout = 100) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    cr_assert_eq(run_threads(4, &config, in_any_order, NULL), 0);
    cr_assert_eq(run_processes(3, &config, in_any_order, NULL, 60, NULL), 0);
    cr_assert_eq(run_threads(2, &config, many_before_one, NULL), 0);
  }
}

/* ---- descriptors ----------------------------------------------------------------------------- */

enum { SPLITS = SANITIZED ? 30 : 100, PER_CONNECTION = 2 }; /* shm: a socket and the peer's bell */

/* Every rank sends a number to every other: all connections of a communicator are made. */
static int meet_all(coll_comm *comm, int rank, int nranks) {
  coll_request *requests[2 * MAX_RANKS] = {0};
  int got[MAX_RANKS];
  for (int peer = 0; peer < nranks; peer++) {
    if (peer == rank)
      continue;
    RANK_OK(coll_isend(&rank, 1, COLL_INT32, peer, 0, comm, &requests[peer]));
    RANK_OK(coll_irecv(&got[peer], 1, COLL_INT32, peer, 0, NULL, comm, &requests[nranks + peer]));
  }
  for (int i = 0; i < 2 * nranks; i++)
    if (requests[i])
      RANK_OK(coll_wait(&requests[i], -1));
  for (int peer = 0; peer < nranks; peer++)
    RANK_CHECK(peer == rank || got[peer] == peer);
  return 0;
}

/* Many communicators need no more descriptors than the first. */
static int hundred(coll_comm *comm, int rank, int nranks, void *arg) {
  bool alone = arg != NULL;         /* in a process of its own */
  bool counts = alone || rank == 0; /* counting opens a descriptor, so do it in one thread */
  coll_comm *comms[SPLITS] = {0};
  RANK_OK(coll_barrier(comm));
  RANK_OK(coll_comm_dup(comm, NULL, &comms[0]));
  RANK_OK(coll_barrier(comm)); /* the parent has all its connections */
  int before = counts ? count_fds() : 0;
  RANK_OK(coll_barrier(comm));
  RANK_CHECK(meet_all(comms[0], rank, nranks) == 0);
  RANK_OK(coll_barrier(comm));
  int after = counts ? count_fds() : 0, connections = alone ? nranks - 1 : nranks * (nranks - 1);
  RANK_CHECK(after <= before + PER_CONNECTION * connections);
  RANK_OK(coll_barrier(comm));
  for (int i = 1; i < SPLITS; i++) {
    RANK_OK(coll_comm_split(comm, 0, i % 2 ? rank : -rank, NULL, &comms[i]));
    RANK_CHECK(family_exercise(comms[i], 50, (unsigned)i) == 0);
  }
  RANK_OK(coll_barrier(comm));
  RANK_CHECK(!counts || count_fds() == after);
  RANK_OK(coll_barrier(comm));
  for (int i = 0; i < SPLITS; i++)
    coll_comm_destroy(&comms[(i * 7 + rank) % SPLITS]);
  return 0;
}

Test(split, hundred_add_no_descriptors, .timeout = 200) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    cr_assert_eq(run_threads(8, &config, hundred, NULL), 0);
    cr_assert_eq(run_processes(8, &config, hundred, "alone", 90, NULL), 0);
  }
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Runs one thread's rank. */
typedef struct part {
  coll_comm *comm;
  int rank;
  int result;
} part;

/* The parent is destroyed first; the children still work, and are destroyed in different orders on
 * different ranks. */
static int parent_first(coll_comm *comm, int rank) {
  coll_comm *a = NULL, *b = NULL, *c = NULL;
  RANK_OK(coll_comm_dup(comm, NULL, &a));
  RANK_OK(coll_comm_split(a, rank % 2, 0, NULL, &b));
  coll_comm_destroy(&comm);
  comm = a;
  RANK_CHECK(family_exercise(a, 300, 1) == 0);
  RANK_OK(coll_comm_dup(b, NULL, &c));
  if (rank % 3 == 0)
    coll_comm_destroy(&b);
  RANK_CHECK(family_exercise(c, 300, 2) == 0);
  RANK_CHECK(family_exercise(a, 5, 3) == 0);
  coll_comm_destroy(&b);
  coll_comm_destroy(rank % 2 ? &a : &c);
  coll_comm_destroy(&c);
  coll_comm_destroy(&a);
  return 0;
}

static void *parent_first_thread(void *arg) {
  part *self = arg;
  self->result = parent_first(self->comm, self->rank);
  return NULL;
}

Test(split, parent_first, .timeout = 30) {
  coll_comm *comms[4];
  pthread_t threads[4];
  part parts[4];
  cr_assert_eq(coll_comm_create_local(comms, 4, NULL), COLL_OK);
  for (int r = 0; r < 4; r++) {
    parts[r] = (part){comms[r], r, -1};
    cr_assert_eq(pthread_create(&threads[r], NULL, parent_first_thread, &parts[r]), 0);
  }
  for (int r = 0; r < 4; r++) {
    pthread_join(threads[r], NULL);
    cr_assert_eq(parts[r].result, 0);
  }
}

/* ---- settings and bad calls ------------------------------------------------------------------ */

static int bad_calls(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  coll_comm *child = comm;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  int twice[2] = {0, 0}, outside[1] = {nranks};
  config.error = &error;
  RANK_CHECK(coll_comm_split(NULL, 0, 0, NULL, &child) == COLL_ERR_INVALID_ARGUMENT && !child);
  RANK_CHECK(coll_comm_split(comm, 0, 0, NULL, NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_comm_split(comm, -2, 0, &config, &child) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(strstr(error.message, "-2") && strcmp(error.operation, "split") == 0);
  RANK_CHECK(coll_comm_subset(comm, twice, 2, &config, &child) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(strstr(error.message, "named before"));
  RANK_CHECK(coll_comm_subset(comm, outside, 1, NULL, &child) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_comm_subset(comm, NULL, 1, NULL, &child) == COLL_ERR_INVALID_ARGUMENT);
  config.transport = "tcp";
  RANK_CHECK(coll_comm_dup(comm, &config, &child) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(strstr(error.message, "shared"));
  config.transport = NULL;
  config.algo = "allreduce:nonsense";
  RANK_CHECK(coll_comm_dup(comm, &config, &child) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(strstr(error.message, "nonsense") && child == NULL);
  config.algo = NULL;
  config.timeout_ms = -1;
  RANK_CHECK(coll_comm_dup(comm, &config, &child) == COLL_ERR_INVALID_ARGUMENT);
  return family_exercise(comm, 100, 1);
}

/* A child has its own timeout or its parent's; when it fails, the others still work. Only what is
   meant to reach its deadline has a short one. */
static int own_timeout(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  coll_config config = COLL_CONFIG_INIT;
  coll_comm *child = NULL, *hasty = NULL, *heir = NULL, *other = NULL;
  coll_error error = COLL_ERROR_INIT;
  RANK_OK(coll_comm_split(comm, 0, -rank, NULL, &child));
  config.timeout_ms = 1000;
  RANK_OK(coll_comm_dup(child, &config, &hasty));
  RANK_OK(coll_comm_dup(comm, NULL, &other));
  RANK_OK(coll_comm_dup(hasty, NULL, &heir));
  coll_status status = rank ? coll_barrier(heir) : COLL_ERR_TIMEOUT;
  RANK_CHECK(status == COLL_ERR_TIMEOUT);
  RANK_OK(coll_barrier(comm));
  /* The others entered this barrier before they gave it up, so rank 0 may finish it before it hears
   * of that. */
  status = coll_barrier(heir);
  if (rank == 0 && status == COLL_OK)
    status = coll_barrier(heir);
  RANK_CHECK(status == COLL_ERR_TIMEOUT);
  RANK_CHECK(coll_last_error(heir, &error) == COLL_OK);
  RANK_CHECK(error.peer == nranks - 1); /* rank 0 of comm, in the child's ranks */
  RANK_CHECK(family_exercise(child, 100, 1) == 0);
  RANK_CHECK(family_exercise(other, 100, 2) == 0);
  coll_comm_destroy(&child);
  coll_comm_destroy(&hasty);
  coll_comm_destroy(&heir);
  coll_comm_destroy(&other);
  return 0;
}

Test(split, bad_calls_and_settings, .timeout = 60) {
  cr_assert_eq(run_threads(3, NULL, bad_calls, NULL), 0);
  cr_assert_eq(run_threads(3, NULL, own_timeout, NULL), 0);
  cr_assert_eq(run_processes(3, NULL, own_timeout, NULL, 30, NULL), 0);
}
