/* test_create_group.c: communicators of some ranks, which the others do nothing for. */
#include <criterion/criterion.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "extent.h"
#include "number.h"
#include "tests/proc/support_family.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

#define MAX_RANKS  40
#define MANY_RANKS 220

/* A random list of ranks, and this rank's place in it, or -1. */
typedef struct group {
  int ranks[MAX_RANKS];
  int count;
  int at;
} group;

static group draw_group(uint64_t seed, int nranks, int rank) {
  group g = {.at = -1};
  for (int r = 0; r < nranks; r++) {
    if (number_hash(seed, (uint64_t)r, 1, 0) % 3 == 0)
      continue;
    int place = (int)(number_hash(seed, (uint64_t)r, 2, 0) % (uint64_t)(g.count + 1));
    memmove(&g.ranks[place + 1], &g.ranks[place], (size_t)(g.count - place) * sizeof(int));
    g.ranks[place] = r;
    g.count++;
  }
  for (int i = 0; i < g.count; i++)
    if (g.ranks[i] == rank)
      g.at = i;
  return g;
}

/* Checks that `child` has the ranks of the list, in that order, and works. */
static int check_group(coll_comm *comm, int rank, const group *g, coll_comm *child, unsigned seed) {
  int child_rank = -1, child_nranks = -1, origin, own;
  RANK_CHECK(coll_comm_rank(child, &child_rank) == COLL_OK && child_rank == g->at);
  RANK_CHECK(coll_comm_nranks(child, &child_nranks) == COLL_OK && child_nranks == g->count);
  for (int i = 0; i < g->count; i++) {
    RANK_CHECK(coll_comm_origin_rank(child, i, &origin) == COLL_OK);
    RANK_CHECK(coll_comm_origin_rank(comm, g->ranks[i], &own) == COLL_OK && own == origin);
  }
  return family_exercise(child, number_hash(seed, 3, 3, 0) % 3000, seed);
}

/* ---- random groups --------------------------------------------------------------------------- */

enum { GROUPS = 6 };

/* Makes overlapping groups, while a receive of any message is open that is for none of theirs; then
 * groups of the first one's. */
static int make_groups(coll_comm *comm, int rank, int nranks, unsigned seed, int depth) {
  coll_comm *child[GROUPS] = {NULL};
  coll_request *any;
  coll_message message = {0};
  int got = -1, result = 0;
  RANK_OK(coll_irecv(&got, 1, COLL_INT32, COLL_ANY_SOURCE, COLL_ANY_TAG, &message, comm, &any));
  for (int i = 0; i < GROUPS && result == 0; i++) {
    group g = draw_group(seed * 100 + (unsigned)i, nranks, rank);
    if (g.at < 0)
      continue;
    int tag = i % 3 == 2 ? INT_MAX - 2 : i; /* one of them twice */
    RANK_OK(coll_comm_create_group(comm, g.ranks, g.count, tag, NULL, &child[i]));
    result = check_group(comm, rank, &g, child[i], seed + (unsigned)i);
    if (result == 0 && depth > 0 && i == 0)
      result = make_groups(child[i], g.at, g.count, seed + 7, depth - 1);
  }
  RANK_OK(coll_send(&rank, 1, COLL_INT32, (rank + 1) % nranks, 3, comm));
  RANK_OK(coll_wait(&any, -1));
  RANK_CHECK(got == (rank + nranks - 1) % nranks && message.tag == 3);
  for (int i = 0; i < GROUPS; i++)
    coll_comm_destroy(&child[(i + rank) % GROUPS]);
  return result ? result : family_exercise(comm, 100, seed);
}

static int random_groups(coll_comm *comm, int rank, int nranks, void *arg) {
  for (unsigned seed = 1; seed <= *(unsigned *)arg; seed++)
    if (make_groups(comm, rank, nranks, seed * 31, 2) != 0)
      return 1;
  return 0;
}

Test(create_group, random, .timeout = 200) {
  const char *transports[] = {"shm", "tcp"};
  unsigned seeds = (unsigned)extent(2, 4, 1), one = 1;
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    for (int nranks = 1; nranks <= 9; nranks++)
      cr_assert_eq(run_threads(nranks, &config, random_groups, &seeds), 0);
    cr_assert_eq(run_processes(5, &config, random_groups, &seeds, 100, NULL), 0);
  }
  cr_assert_eq(run_threads(33, NULL, random_groups, &one), 0);
}

/* All ranks but the first, backwards. */
static int all_but_first(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  int list[MANY_RANKS], in = rank, sum = -1;
  coll_comm *child = NULL;
  for (int i = 0; i < nranks - 1; i++)
    list[i] = nranks - 1 - i;
  if (rank == 0)
    return 0;
  RANK_OK(coll_comm_create_group(comm, list, nranks - 1, 8, NULL, &child));
  RANK_OK(coll_allreduce(&in, &sum, 1, COLL_INT32, COLL_SUM, child));
  RANK_CHECK(sum == nranks * (nranks - 1) / 2);
  coll_comm_destroy(&child);
  return 0;
}

/* A table of many members is longer than a slot. */
Test(create_group, long_tables, .timeout = 100) {
  setenv("COLL_SLOT_BYTES", "4096", 1);
  cr_assert_eq(run_threads(MANY_RANKS, NULL, all_but_first, NULL), 0);
  unsetenv("COLL_SLOT_BYTES");
}

/* ---- the others, and other threads ----------------------------------------------------------- */

/* The last rank is in no libcoll call until the others have used their group. */
static int others_do_nothing(coll_comm *comm, int rank, int nranks, void *arg) {
  atomic_int *done = arg;
  coll_comm *child = NULL;
  group g = {.count = nranks - 1, .at = nranks - 2 - rank};
  for (int i = 0; i < g.count; i++)
    g.ranks[i] = nranks - 2 - i;
  if (rank == nranks - 1) {
    WAIT_UNTIL(atomic_load(done) == nranks - 1, 40);
    return 0;
  }
  RANK_OK(coll_comm_create_group(comm, g.ranks, g.count, 0, NULL, &child));
  int result = check_group(comm, rank, &g, child, 5);
  atomic_fetch_add(done, 1);
  coll_comm_destroy(&child);
  return result;
}

Test(create_group, others_do_nothing, .timeout = 100) {
  cr_assert_eq(run_threads(4, NULL, others_do_nothing, shared_memory(sizeof(atomic_int))), 0);
  cr_assert_eq(
      run_processes(4, NULL, others_do_nothing, shared_memory(sizeof(atomic_int)), 60, NULL), 0);
}

enum { THREADS = 3 };

typedef struct maker {
  coll_comm *comm;
  int rank, nranks, number, result;
} maker;

static void *make_in_thread(void *arg) {
  maker *m = arg;
  m->result = 0;
  for (unsigned i = 0; i < 4 && m->result == 0; i++)
    m->result = make_groups(m->comm, m->rank, m->nranks, 1000 * (unsigned)m->number + i, 0);
  return NULL;
}

/* Several threads of each rank make groups at the same time. */
static int threads(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  maker makers[THREADS];
  pthread_t ids[THREADS];
  int result = 0;
  for (int i = 0; i < THREADS; i++) {
    makers[i] = (maker){.rank = rank, .nranks = nranks, .number = i};
    RANK_OK(coll_comm_dup(comm, NULL, &makers[i].comm));
  }
  for (int i = 0; i < THREADS; i++)
    RANK_CHECK(pthread_create(&ids[i], NULL, make_in_thread, &makers[i]) == 0);
  for (int i = 0; i < THREADS; i++) {
    pthread_join(ids[i], NULL);
    result |= makers[i].result;
    coll_comm_destroy(&makers[i].comm);
  }
  return result;
}

Test(create_group, threads, .timeout = 100) {
  cr_assert_eq(run_threads(4, NULL, threads, NULL), 0);
  cr_assert_eq(run_processes(3, NULL, threads, NULL, 60, NULL), 0);
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* All ranks but one make a group of all. */
typedef struct absence {
  int absent;
  bool killed;
  atomic_int ended;
  callers in_call;
} absence;

static int wait_for_absent(coll_comm *comm, int rank, int nranks, void *arg) {
  absence *a = arg;
  coll_comm *child = comm;
  coll_error error = COLL_ERROR_INIT, told = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  config.error = &told;
  int list[MAX_RANKS];
  for (int i = 0; i < nranks; i++)
    list[i] = i;
  if (rank == a->absent) {
    WAIT_UNTIL(all_wait_in_call(&a->in_call, nranks, rank), 20);
    if (a->killed)
      raise(SIGKILL);
    WAIT_UNTIL(atomic_load(&a->ended) == nranks - 1, 40); /* in no call */
    return 0;
  }
  enters_call(&a->in_call, rank);
  coll_status status = coll_comm_create_group(comm, list, nranks, 5, &config, &child);
  RANK_CHECK(status == (a->killed ? COLL_ERR_PEER_LOST : COLL_ERR_TIMEOUT) && !child);
  RANK_CHECK(coll_last_error(comm, &error) == COLL_OK && error.peer == a->absent);
  RANK_CHECK(told.status == status && told.peer == a->absent);
  atomic_fetch_add(&a->ended, 1);
  return 0;
}

Test(create_group, absent, .timeout = 200) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++)
    for (int absent = 0; absent < 5; absent += 2)
      for (int killed = 0; killed <= 1; killed++) {
        coll_config config = COLL_CONFIG_INIT;
        int results[5];
        absence *a = shared_memory(sizeof(*a));
        config.transport = transports[t];
        config.timeout_ms = slow_ms(killed ? 60000 : 1500);
        a->absent = absent;
        a->killed = killed;
        run_processes(5, &config, wait_for_absent, a, 60, results);
        for (int r = 0; r < 5; r++)
          cr_assert_eq(results[r], r == absent && killed ? 128 + SIGKILL : 0,
                       "%s, %d absent: rank %d: %d", transports[t], absent, r, results[r]);
      }
}

/* Members that give different lists. */
static int different_lists(coll_comm *comm, int rank, int nranks, void *arg) {
  const int *kind = arg;
  coll_comm *parent = NULL, *child = NULL;
  coll_error error = COLL_ERROR_INIT;
  int list[4] = {0, 1, 2, 3}, count = nranks;
  RANK_OK(coll_comm_dup(comm, NULL, &parent));
  if (rank == 1 && *kind == 0) /* another order */
    list[2] = 3, list[3] = 2;
  if (rank == 1 && *kind == 1) /* fewer */
    count = 2;
  if (rank == 0 && *kind == 2)
    count = 2;
  RANK_CHECK(coll_comm_create_group(parent, list, count, 1, NULL, &child) == COLL_ERR_MISMATCH);
  RANK_CHECK(coll_last_error(parent, &error) == COLL_OK && error.status == COLL_ERR_MISMATCH);
  RANK_CHECK(strstr(error.message, "lists") && strstr(error.message, "coll_comm_create_group"));
  coll_comm_destroy(&parent);
  return family_exercise(comm, 100, 1);
}

Test(create_group, different_lists, .timeout = 100) {
  for (int kind = 0; kind < 3; kind++) {
    cr_assert_eq(run_threads(4, NULL, different_lists, &kind), 0, "kind %d", kind);
    cr_assert_eq(run_processes(4, NULL, different_lists, &kind, 30, NULL), 0, "kind %d", kind);
  }
}

/* Bad arguments are refused, and leave the communicator as it was. */
static int bad_arguments(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  const int all[2] = {0, 1}, other = (rank + 1) % 2, twice[2] = {rank, rank},
            outside[2] = {rank, 2};
  coll_comm *child = comm;
  coll_config config = COLL_CONFIG_INIT;
  RANK_CHECK(nranks == 2);
  config.transport = "tcp,shm";
#define REFUSED(call) RANK_CHECK((call) == COLL_ERR_INVALID_ARGUMENT && child == NULL)
  REFUSED(coll_comm_create_group(comm, all, 2, -1, NULL, &child));
  REFUSED(coll_comm_create_group(comm, all, 2, INT_MAX - 1, NULL, &child));
  REFUSED(coll_comm_create_group(comm, all, 3, 1, NULL, &child));
  REFUSED(coll_comm_create_group(comm, all, -1, 1, NULL, &child));
  REFUSED(coll_comm_create_group(comm, all, 0, 1, NULL, &child));
  REFUSED(coll_comm_create_group(comm, NULL, 2, 1, NULL, &child));
  REFUSED(coll_comm_create_group(comm, &other, 1, 1, NULL, &child));
  REFUSED(coll_comm_create_group(comm, twice, 2, 1, NULL, &child));
  REFUSED(coll_comm_create_group(comm, outside, 2, 1, NULL, &child));
  REFUSED(coll_comm_create_group(comm, all, 2, 1, &config, &child));
  RANK_CHECK(coll_comm_create_group(comm, all, 2, 1, NULL, NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_comm_create_group(NULL, all, 2, 1, NULL, &child) == COLL_ERR_INVALID_ARGUMENT);
  RANK_OK(coll_comm_create_group(comm, all, 2, 1, NULL, &child));
  int result = family_exercise(child, 100, 1);
  coll_comm_destroy(&child);
  return result ? result : family_exercise(comm, 100, 1);
}

Test(create_group, bad_arguments, .timeout = 60) {
  cr_assert_eq(run_threads(2, NULL, bad_arguments, NULL), 0);
}
