/*
 * test_agree.c: coll_comm_agree: all ranks that get a word get the same one, whoever dies
 * meanwhile.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/prng.h"
#include "tests/proc/support_ranks.h"
#include "tests/proc/support_shrink.h"
#include "waits.h"

/* A rank's word: all bits but its own, so that the common one tells who took part. */
static uint64_t word_of(int rank) {
  return ~(1ull << rank);
}

/* ---- nobody dies ----------------------------------------------------------------------------- */

static int agree_often(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  for (int i = 0; i < 20; i++) {
    uint64_t word = word_of(rank);
    int absent = -1;
    RANK_OK(coll_comm_agree(comm, &word, i % 2 ? &absent : NULL, NULL));
    RANK_CHECK(word == ~((1ull << nranks) - 1) && absent == (i % 2 ? 0 : -1));
  }
  /* The communicator is as it was, also for a shrink. */
  coll_comm *child;
  bool right;
  int mask;
  RANK_CHECK(go_on(comm, rank, &mask, &right) == COLL_OK && right && mask == (1 << nranks) - 1);
  RANK_OK(coll_comm_shrink(comm, NULL, &child));
  uint64_t word = 6;
  RANK_OK(coll_comm_agree(child, &word, NULL, NULL));
  RANK_CHECK(word == 6);
  coll_comm_destroy(&child);
  return 0;
}

Test(agree, nobody_dies, .timeout = 60) {
  for (int nranks = 1; nranks <= 5; nranks++) {
    cr_expect_eq(run_processes(nranks, NULL, agree_often, NULL, 30, NULL), 0);
    cr_expect_eq(run_threads(nranks, NULL, agree_often, NULL), 0);
  }
}

/* ---- ranks that are gone --------------------------------------------------------------------- */

/* A rank is gone, and the communicator revoked. */
static int agree_without(coll_comm *comm, int rank, int nranks, void *arg) {
  const int gone = *(int *)arg;
  uint64_t word = word_of(rank);
  int absent = -1;
  RANK_OK(coll_barrier(comm));
  if (rank == gone)
    return 0;
  RANK_CHECK(reduce_for(comm, 100, 1 << 30) == COLL_ERR_PEER_LOST);
  RANK_OK(coll_comm_agree(comm, &word, &absent, NULL));
  RANK_CHECK(word == ~(((1ull << nranks) - 1) & ~(1ull << gone)) && absent == 1);
  word = word_of(rank);
  RANK_OK(coll_comm_agree(comm, &word, &absent, NULL));
  RANK_CHECK(word == ~(((1ull << nranks) - 1) & ~(1ull << gone)) && absent == 1);
  return 0;
}

Test(agree, one_is_gone, .timeout = 60) {
  for (int gone = 0; gone < 4; gone++) {
    cr_expect_eq(run_processes(4, NULL, agree_without, &gone, 20, NULL), 0);
    cr_expect_eq(run_threads(4, NULL, agree_without, &gone), 0);
  }
}

/* ---- ranks that die meanwhile ---------------------------------------------------------------- */

enum { ROUNDS = 4000 };

/* What each rank got, of the dead ones too. */
typedef struct record {
  int mortal[2];
  int last[2];                 /* the round in which each of them dies, or the next one */
  atomic_int round[MOST];      /* in which a rank is */
  uint64_t word[MOST][ROUNDS]; /* 0: nothing */
  int absent[MOST][ROUNDS];
} record;

static record *shared;

/* Kills this process, in the middle of what its other thread does by then. */
static void *die_soon(void *arg) {
  const int i = *(int *)arg;
  (void)WAIT_UNTIL(atomic_load(&shared->round[shared->mortal[i]]) >= shared->last[i], 30);
  kill(getpid(), SIGKILL);
  return NULL;
}

/* Agrees again and again until both mortal ranks are dead, and a few times more. */
static int agree_and_die(coll_comm *comm, int rank, int nranks, void *arg) {
  record *r = shared = arg;
  static int which[] = {0, 1};
  pthread_t thread;
  (void)nranks;
  RANK_OK(coll_barrier(comm));
  for (int i = 0; i < 2; i++)
    if (rank == r->mortal[i]) {
      RANK_CHECK(pthread_create(&thread, NULL, die_soon, &which[i]) == 0);
      pthread_detach(thread);
    }
  for (int i = 0, more = 3; i < ROUNDS && more > 0; i++) {
    uint64_t word = word_of(rank);
    int absent = -1;
    atomic_store(&r->round[rank], i);
    RANK_OK(coll_comm_agree(comm, &word, &absent, NULL));
    r->absent[rank][i] = absent;
    r->word[rank][i] = word;
    more -= absent == 2;
  }
  return 0;
}

/* Every two ranks that got a word in a round got the same. */
static void check_rounds(const record *r, int nranks, int *agreed) {
  for (int i = 0; i < ROUNDS; i++) {
    int first = -1;
    for (int rank = 0; rank < nranks; rank++) {
      if (!r->word[rank][i])
        continue;
      first = first < 0 ? rank : first;
      *agreed += rank != first;
      cr_assert_eq(r->word[rank][i], r->word[first][i], "round %d: rank %d has %lx, rank %d %lx", i,
                   rank, r->word[rank][i], first, r->word[first][i]);
      cr_assert_eq(r->absent[rank][i], r->absent[first][i]);
    }
  }
}

Test(agree, ranks_die_meanwhile, .timeout = 200) {
  coll_config config = COLL_CONFIG_INIT;
  colli_prng prng = {31};
  config.create_timeout_ms = slow_ms(10000);
  int agreed = 0;
  for (int i = 0; i < 12; i++) {
    record *r = shared_memory(sizeof(*r));
    int results[MOST];
    for (int k = 0; k < 2; k++) {
      r->mortal[k] = k == 0 ? i % 3 : 3 + i % 2;
      r->last[k] = 1 + (int)colli_prng_below(&prng, 30);
    }
    run_processes(5, &config, agree_and_die, r, 60, results);
    for (int rank = 0; rank < 5; rank++) {
      bool mortal = rank == r->mortal[0] || rank == r->mortal[1];
      cr_assert_eq(results[rank], mortal ? 128 + SIGKILL : 0, "rank %d ended with %d", rank,
                   results[rank]);
    }
    check_rounds(r, 5, &agreed);
  }
  cr_assert_gt(agreed, 100);
}

/* ---- calls that do not fit ------------------------------------------------------------------- */

static int mix_calls(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *child = NULL;
  coll_error error = COLL_ERROR_INIT;
  uint64_t word = 7;
  bool shrinks = rank == *(int *)arg;
  (void)nranks;
  coll_status status =
      shrinks ? coll_comm_shrink(comm, NULL, &child) : coll_comm_agree(comm, &word, NULL, NULL);
  RANK_CHECK(status == COLL_ERR_MISMATCH && !child && word == 7);
  coll_last_error(comm, &error);
  RANK_CHECK(strstr(error.message, "coll_comm_shrink()"));
  RANK_CHECK(strstr(error.message, "coll_comm_agree()"));
  RANK_OK(coll_comm_agree(comm, &word, NULL, NULL));
  return 0;
}

Test(agree, mixed_with_a_shrink, .timeout = 60) {
  for (int other = 0; other < 3; other++) {
    cr_expect_eq(run_processes(3, NULL, mix_calls, &other, 20, NULL), 0);
    cr_expect_eq(run_threads(3, NULL, mix_calls, &other), 0);
  }
}

/* A rank comes when the others have agreed without it. */
static int come_late(coll_comm *comm, int rank, int nranks, void *arg) {
  atomic_int *done = arg;
  uint64_t word = word_of(rank);
  int absent = -1;
  RANK_OK(coll_barrier(comm));
  if (rank == 1)
    RANK_CHECK(WAIT_UNTIL(atomic_load(done) == nranks - 1, 20));
  coll_status status = coll_comm_agree(comm, &word, &absent, NULL);
  if (rank == 1) {
    RANK_CHECK(status == COLL_ERR_TIMEOUT && word == word_of(rank) && absent == -1);
    atomic_fetch_add(done, 1);
    return 0;
  }
  RANK_CHECK(status == COLL_OK && absent == 1 && word == (word_of(0) & word_of(2)));
  atomic_fetch_add(done, 1);
  /* Stays, so that its process is not taken for dead. */
  RANK_CHECK(WAIT_UNTIL(atomic_load(done) == nranks, 30));
  return 0;
}

Test(agree, late_rank_is_left_out, .timeout = 60) {
  coll_config config = COLL_CONFIG_INIT;
  config.create_timeout_ms = slow_ms(500);
  cr_expect_eq(run_processes(3, &config, come_late, shared_memory(sizeof(atomic_int)), 40, NULL),
               0);
  cr_expect_eq(run_threads(3, &config, come_late, shared_memory(sizeof(atomic_int))), 0);
}

Test(agree, bad_arguments) {
  coll_comm *comm;
  uint64_t word = 5;
  coll_config config = COLL_CONFIG_INIT;
  config.create_timeout_ms = -1;
  cr_assert_eq(coll_comm_create_local(&comm, 1, NULL), COLL_OK);
  cr_expect_eq(coll_comm_agree(NULL, &word, NULL, NULL), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(coll_comm_agree(comm, NULL, NULL, NULL), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(coll_comm_agree(comm, &word, NULL, &config), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(coll_comm_agree(comm, &word, NULL, NULL), COLL_OK);
  cr_expect_eq(word, 5);
  coll_comm_destroy(&comm);
}
