/*
 * test_verbs_killed.c: processes over a fake InfiniBand device. Results are right. If one is killed
 * or stopped in the middle of all-reduces, all others name it, and continue over new queue pairs
 * after a shrink.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "case.h"
#include "libcoll/comm/inspect.h"
#include "support_ranks.h"
#include "support_shrink.h"
#include "support_verbs.h"
#include "waits.h"

#define RANKS  3
#define VICTIM 2

static void load(void) {
  fake_verbs *fake = fake_load();
  cr_assert_not_null(fake);
  fake_add(fake, "mlx5_0", 2);
}

static coll_config config_of(int timeout_ms) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = "verbs";
  config.timeout_ms = timeout_ms;
  return config;
}

static int run_cases(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  for (int coll = 0; coll < CASE_BARRIER; coll++) {
    test_case c = {.coll = (case_coll)coll,
                   .form = (case_form)(coll % CASE_FORMS),
                   .type = COLL_INT32,
                   .op = COLL_SUM,
                   .in_place = coll % 2,
                   .count = coll % 3 ? 30 : 200000,
                   .seed = (uint64_t)coll + 1};
    if (case_run(comm, rank, nranks, &c, 1) != 0)
      return 1;
  }
  return 0;
}

Test(verbs_killed, nobody, .init = load, .timeout = 60) {
  coll_config config = config_of(20000);
  cr_assert_eq(run_processes(RANKS, &config, run_cases, NULL, 40, NULL), 0);
}

/* What happens to the victim. */
typedef struct scene {
  int signal;
  size_t count;
  coll_status expected;
  volatile pid_t victim;
  atomic_int rounds[RANKS]; /* that went well, by rank */
} scene;

/* Whether all are in the middle of their all-reduces. */
static bool all_reduce(scene *s) {
  for (int r = 0; r < RANKS; r++)
    if (atomic_load(&s->rounds[r]) < 2)
      return false;
  return true;
}

static void *strike(void *arg) {
  scene *s = arg;
  WAIT_UNTIL(all_reduce(s), 20);
  kill(getpid(), s->signal);
  return NULL;
}

static int lose_one(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_comm *child;
  coll_error error = COLL_ERROR_INIT;
  const char *transport;
  char reason[COLLI_LINK_REASON];
  pthread_t thread;
  int mask;
  bool right;
  (void)nranks;
  RANK_OK(colli_comm_link(comm, (rank + 1) % RANKS, &transport, reason, sizeof(reason)));
  RANK_CHECK(strcmp(transport, "verbs") == 0);
  RANK_CHECK(reduce_for(comm, s->count, 2) == COLL_OK);
  if (rank == VICTIM) {
    s->victim = getpid();
    RANK_CHECK(pthread_create(&thread, NULL, strike, s) == 0);
  }
  coll_status status;
  while ((status = reduce_for(comm, s->count, 10)) == COLL_OK)
    atomic_fetch_add(&s->rounds[rank], 1);
  RANK_CHECK(status == s->expected);
  coll_last_error(comm, &error);
  if (error.peer != VICTIM)
    fprintf(stderr, "rank %d: %s\n", rank, error.message);
  RANK_CHECK(error.peer == VICTIM);
  RANK_OK(coll_comm_shrink(comm, NULL, &child));
  RANK_CHECK(go_on(child, rank, &mask, &right) == COLL_OK && right && mask == 3);
  RANK_CHECK(run_cases(child, rank, 2, NULL) == 0);
  RANK_OK(coll_barrier(child));
  if (rank == 0)
    kill(s->victim, SIGKILL);
  coll_comm_destroy(&child);
  return 0;
}

/* Loses a rank in the middle of short and of long all-reduces. */
static void play(int signal, coll_status expected, int timeout_ms) {
  for (int size = 0; size < 2; size++) {
    scene *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *s = (scene){.signal = signal, .count = size ? 400000 : 10, .expected = expected};
    coll_config config = config_of(timeout_ms);
    config.create_timeout_ms = 5000;
    int results[RANKS];
    run_processes(RANKS, &config, lose_one, s, 40, results);
    for (int r = 0; r < RANKS; r++)
      cr_expect_eq(results[r], r == VICTIM ? 128 + SIGKILL : 0, "rank %d ended with %d", r,
                   results[r]);
    munmap(s, sizeof(*s));
  }
}

Test(verbs_killed, killed, .init = load, .timeout = 100) {
  play(SIGKILL, COLL_ERR_PEER_LOST, 20000);
}

Test(verbs_killed, stopped, .init = load, .timeout = 100) {
  play(SIGSTOP, COLL_ERR_TIMEOUT, 2000);
}
