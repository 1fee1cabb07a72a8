/*
 * test_shrink_use.c: shrinks in different situations: after a revocation, without the host's
 * address, after a split, several in a row or at once, by threads; settings, arguments,
 * descriptors.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/comm/comm.h"
#include "support_ranks.h"
#include "support_shrink.h"
#include "waits.h"

/* One run. */
typedef struct scene {
  int leaves;    /* a rank that dies or leaves */
  int late;      /* a rank that comes late */
  bool too_late; /* after the others have shrunk, not while they wait for it */
  callers in_call;
  atomic_int shrunk;
} scene;

/* ---- several shrinks, settings --------------------------------------------------------------- */

/* Shrinks twice the same communicator and then the child; settings and operations stay. */
static int shrink_again(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  coll_comm *a, *b, *c;
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = 12345;
  int mask, all = (1 << nranks) - 1;
  bool right;
  RANK_OK(coll_comm_shrink(comm, NULL, &a));
  RANK_OK(coll_comm_shrink(comm, &config, &b));
  RANK_CHECK(a->params.number[COLLI_PARAM_TIMEOUT_MS] == 7000);
  RANK_CHECK(b->params.number[COLLI_PARAM_TIMEOUT_MS] == 12345);
  RANK_CHECK(b->params.number[COLLI_PARAM_CREATE_TIMEOUT_MS] == 9000);
  RANK_CHECK(go_on(a, rank, &mask, &right) == COLL_OK && right && mask == all);
  RANK_CHECK(go_on(b, rank, &mask, &right) == COLL_OK && right && mask == all);
  RANK_OK(coll_comm_shrink(a, NULL, &c));
  coll_comm_destroy(&a);
  RANK_CHECK(go_on(c, rank, &mask, &right) == COLL_OK && right && mask == all);
  RANK_CHECK(go_on(b, rank, &mask, &right) == COLL_OK && right && mask == all);
  RANK_CHECK(go_on(comm, rank, &mask, &right) == COLL_OK && right && mask == all);
  coll_comm_destroy(&b);
  coll_comm_destroy(&c);
  return 0;
}

Test(shrink_use, several_in_a_row, .timeout = 60) {
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = 7000;
  config.create_timeout_ms = 9000;
  for (int nranks = 1; nranks <= 4; nranks++) {
    cr_expect_eq(run_processes(nranks, &config, shrink_again, NULL, 30, NULL), 0);
    cr_expect_eq(run_threads(nranks, &config, shrink_again, NULL), 0);
  }
}

/* ---- revoke ---------------------------------------------------------------------------------- */

/* One rank gives up while the others wait for it; all continue together. */
static int give_up(coll_comm *comm, int rank, int nranks, void *arg) {
  callers *in_call = arg;
  coll_error error = COLL_ERROR_INIT;
  coll_comm *child;
  bool right;
  int mask, value = 0;
  if (rank == 1) {
    RANK_CHECK(WAIT_UNTIL(all_wait_in_call(in_call, nranks, rank), slow_s(5)));
    RANK_OK(coll_comm_revoke(comm));
    RANK_OK(coll_comm_revoke(comm));
  }
  double start = now_s();
  enters_call(in_call, rank);
  coll_status status = coll_allreduce(&value, &value, 1, COLL_INT32, COLL_SUM, comm);
  RANK_CHECK(status == COLL_ERR_ABORTED && now_s() - start < slow_s(5));
  coll_last_error(comm, &error);
  RANK_CHECK(error.peer == 1 && strstr(error.message, "coll_comm_revoke()"));
  RANK_OK(coll_comm_shrink(comm, NULL, &child));
  RANK_CHECK(go_on(child, rank, &mask, &right) == COLL_OK && right && mask == (1 << nranks) - 1);
  coll_comm_destroy(&child);
  return 0;
}

Test(shrink_use, revoke_wakes_everybody, .timeout = 60) {
  for (int nranks = 2; nranks <= 6; nranks += 2) {
    cr_expect_eq(run_processes(nranks, NULL, give_up, shared_memory(sizeof(callers)), 20, NULL), 0);
    cr_expect_eq(run_threads(nranks, NULL, give_up, shared_memory(sizeof(callers))), 0);
  }
}

/* The host has lost its address by then; ranks on one host do not need it. */
static int give_up_without_address(coll_comm *comm, int rank, int nranks, void *arg) {
  if (rank == 0)
    RANK_CHECK(system("ip link del v0") == 0);
  RANK_OK(coll_barrier(comm));
  return give_up(comm, rank, nranks, arg);
}

Test(shrink_use, address_lost, .timeout = 90) {
  const char *set_up = "ip link set lo up && ip link add v0 type veth peer name v1 && "
                       "ip addr add 10.79.0.1/24 dev v0 && ip link set v1 up && ip link set v0 up";
  for (int nranks = 2; nranks <= 6; nranks += 2) {
    if (unshare(CLONE_NEWNET) != 0 || system(set_up) != 0)
      cr_skip_test("needs root and ip (iproute2), to make network interfaces");
    cr_expect_eq(run_processes(nranks, NULL, give_up_without_address,
                               shared_memory(sizeof(callers)), 20, NULL),
                 0);
  }
}

/* ---- communicators that were split ----------------------------------------------------------- */

/* Odd and even ranks split; an odd rank dies; the odd ranks shrink, then all. */
static int split_and_shrink(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_comm *half, *child, *all;
  int mask, origin, mine;
  bool right;
  RANK_OK(coll_comm_split(comm, rank % 2, 0, NULL, &half));
  RANK_CHECK(go_on(half, rank, &mask, &right) == COLL_OK && right);
  /* A rank that has left the barrier knows that all have done the above; others may still be in the
   * barrier. */
  coll_barrier(comm);
  if (rank == s->leaves)
    kill(getpid(), SIGKILL);
  child = half;
  if (rank % 2) {
    RANK_CHECK(reduce_for(half, 100, 1 << 30) == COLL_ERR_PEER_LOST);
    RANK_OK(coll_comm_shrink(half, NULL, &child));
    coll_comm_destroy(&half);
  }
  RANK_CHECK(go_on(child, rank, &mask, &right) == COLL_OK && right);
  coll_comm_rank(child, &mine);
  RANK_OK(coll_comm_origin_rank(child, mine, &origin));
  RANK_CHECK(origin == rank);
  RANK_OK(coll_comm_shrink(comm, NULL, &all));
  coll_comm_destroy(&child);
  RANK_CHECK(go_on(all, rank, &mask, &right) == COLL_OK && right);
  RANK_CHECK(mask == (((1 << nranks) - 1) & ~(1 << s->leaves)));
  coll_comm_rank(all, &mine);
  RANK_OK(coll_comm_origin_rank(all, mine, &origin));
  RANK_CHECK(origin == rank);
  coll_comm_destroy(&all);
  return 0;
}

Test(shrink_use, after_a_split, .timeout = 60) {
  for (int victim = 1; victim < 6; victim += 2) {
    scene s = {.leaves = victim, .late = NOBODY};
    int results[MOST];
    run_processes(6, NULL, split_and_shrink, &s, 20, results);
    for (int r = 0; r < 6; r++)
      cr_expect_eq(results[r], r == victim ? 128 + SIGKILL : 0, "victim %d: rank %d ended with %d",
                   victim, r, results[r]);
  }
}

/* Two threads of each process shrink two communicators of a family at the same time. */
static void *shrink_other(void *arg) {
  coll_comm *comm = arg, *child = NULL;
  coll_comm_shrink(comm, NULL, &child);
  return child;
}

static int shrink_at_once(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *copy, *mine;
  void *other;
  pthread_t thread;
  int mask;
  bool right;
  (void)arg;
  RANK_OK(coll_comm_dup(comm, NULL, &copy));
  RANK_CHECK(pthread_create(&thread, NULL, shrink_other, copy) == 0);
  RANK_OK(coll_comm_shrink(comm, NULL, &mine));
  pthread_join(thread, &other);
  RANK_CHECK(other != NULL);
  coll_comm *theirs = other;
  RANK_CHECK(go_on(mine, rank, &mask, &right) == COLL_OK && right && mask == (1 << nranks) - 1);
  RANK_CHECK(go_on(theirs, rank, &mask, &right) == COLL_OK && right && mask == (1 << nranks) - 1);
  coll_comm_destroy(&mine);
  coll_comm_destroy(&theirs);
  coll_comm_destroy(&copy);
  return 0;
}

Test(shrink_use, two_at_once, .timeout = 60) {
  cr_expect_eq(run_processes(4, NULL, shrink_at_once, NULL, 20, NULL), 0);
  cr_expect_eq(run_threads(4, NULL, shrink_at_once, NULL), 0);
}

Test(shrink_use, bad_arguments) {
  coll_comm *comm, *child;
  cr_assert_eq(coll_comm_create_local(&comm, 1, NULL), COLL_OK);
  cr_expect_eq(coll_comm_revoke(NULL), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(coll_comm_shrink(NULL, NULL, &child), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(coll_comm_shrink(comm, NULL, NULL), COLL_ERR_INVALID_ARGUMENT);
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = -1;
  cr_expect_eq(coll_comm_shrink(comm, &config, &child), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_null(child);
  cr_expect_eq(coll_comm_revoke(comm), COLL_OK);
  cr_expect_eq(coll_barrier(comm), COLL_ERR_ABORTED);
  cr_expect_eq(coll_comm_shrink(comm, NULL, &child), COLL_OK);
  cr_expect_eq(coll_barrier(child), COLL_OK);
  coll_comm_destroy(&child);
  coll_comm_destroy(&comm);
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Whether it is time for the late rank to come. */
static bool is_late(scene *s, int nranks) {
  if (s->too_late)
    return atomic_load(&s->shrunk) == nranks - 2;
  for (int r = 0; r < nranks; r++)
    if (r != s->leaves && r != s->late && !waits_in_call(&s->in_call, r))
      return false;
  return true;
}

/* One rank leaves, one comes late or too late; the others go on. */
static int threads_shrink(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_comm *child;
  bool right;
  int mask;
  RANK_OK(coll_barrier(comm));
  if (rank == s->leaves)
    return 0;
  RANK_CHECK(reduce_for(comm, 100, 1 << 30) == COLL_ERR_PEER_LOST);
  if (rank == s->late)
    RANK_CHECK(WAIT_UNTIL(is_late(s, nranks), 10));
  enters_call(&s->in_call, rank);
  coll_status status = coll_comm_shrink(comm, NULL, &child);
  if (rank == s->late && s->too_late) {
    RANK_CHECK(status == COLL_ERR_TIMEOUT && !child);
    return 0;
  }
  RANK_CHECK(status == COLL_OK);
  atomic_fetch_add(&s->shrunk, 1);
  RANK_CHECK(go_on(child, rank, &mask, &right) == COLL_OK && right);
  int all = ((1 << nranks) - 1) & ~(1 << s->leaves);
  if (s->too_late)
    all &= ~(1 << s->late);
  RANK_CHECK(mask == all);
  coll_comm_destroy(&child);
  return 0;
}

Test(shrink_use, threads, .timeout = 60) {
  coll_config config = COLL_CONFIG_INIT;
  int before = count_fds();
  for (int i = 0; i < 6; i++) {
    scene s = {.leaves = i % 4, .late = (i + 1) % 4, .too_late = i % 2};
    config.create_timeout_ms = s.too_late ? 1000 : 20000;
    cr_expect_eq(run_threads(4, &config, threads_shrink, &s), 0);
  }
  cr_expect_eq(count_fds(), before);
}

/* Nobody waits for a process that leaves, and the others' descriptors stay the same. */
static int leaver(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  coll_comm *child, *next = NULL;
  int mask;
  bool right;
  RANK_OK(coll_barrier(comm));
  if (rank == 1)
    return 0;
  RANK_CHECK(reduce_for(comm, 100, 1 << 30) == COLL_ERR_PEER_LOST);
  RANK_OK(coll_comm_shrink(comm, NULL, &child));
  RANK_CHECK(go_on(child, rank, &mask, &right) == COLL_OK && right && mask == 5);
  int before = count_fds();
  for (int i = 0; i < 3; i++) {
    RANK_OK(coll_comm_shrink(child, NULL, &next));
    RANK_CHECK(go_on(next, rank, &mask, &right) == COLL_OK && right && mask == 5);
    coll_comm_destroy(&child);
    child = next;
  }
  RANK_CHECK(count_fds() == before);
  coll_comm_destroy(&child);
  return 0;
}

Test(shrink_use, leaver_and_descriptors, .timeout = 60) {
  cr_expect_eq(run_processes(3, NULL, leaver, NULL, 30, NULL), 0);
}
