/*
 * test_revoked.c: ranks leave communicators, or come late, because another one was revoked. Whoever
 * waits for them there is told who revoked it.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/proc/support_family.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

/* Rank 0 revokes a communicator, therefore the last rank leaves another one, in which rank 0 is
 * not: whoever waits there is told about rank 0. */
static int left_after_a_revocation(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  coll_comm *all = NULL, *others = NULL;
  coll_error error = COLL_ERROR_INIT;
  int value = 7;
  RANK_OK(coll_comm_dup(comm, NULL, &all));
  RANK_OK(coll_comm_split(comm, rank == 0 ? COLL_NO_COLOR : 0, 0, NULL, &others));
  if (rank == 0)
    RANK_OK(coll_comm_revoke(all));
  if (rank == nranks - 1) {
    coll_status status = COLL_OK;
    while (status == COLL_OK)
      status = coll_barrier(all);
    RANK_CHECK(status == COLL_ERR_ABORTED);
    coll_comm_destroy(&others);
  } else if (rank > 0) {
    RANK_CHECK(coll_allreduce(&value, &value, 1, COLL_INT32, COLL_SUM, others) == COLL_ERR_ABORTED);
    RANK_CHECK(coll_last_error(others, &error) == COLL_OK);
    RANK_CHECK(error.peer == -1 && strstr(error.message, "rank 0 of \"world\"") &&
               strstr(error.message, "to blame: it stopped rank") &&
               strstr(error.message, "coll_comm_revoke()"));
  }
  RANK_CHECK(family_exercise(comm, 100, 3) == 0);
  coll_comm_destroy(&others);
  coll_comm_destroy(&all);
  return 0;
}

Test(revoked, left_after_a_revocation, .timeout = 60) {
  cr_assert_eq(run_threads(3, NULL, left_after_a_revocation, NULL), 0);
  cr_assert_eq(run_processes(4, NULL, left_after_a_revocation, NULL, 30, NULL), 0);
}

/* After a revocation the program goes on; the rank that does not come then is to blame itself. */
static int late_after_a_revocation(coll_comm *comm, int rank, int nranks, void *arg) {
  atomic_int *failed = arg;
  coll_comm *all = NULL;
  coll_error error = COLL_ERROR_INIT;
  coll_status status = COLL_OK;
  RANK_OK(coll_comm_dup(comm, NULL, &all));
  if (rank == 0)
    RANK_OK(coll_comm_revoke(all));
  while (status == COLL_OK)
    status = coll_barrier(all);
  RANK_CHECK(status == COLL_ERR_ABORTED);
  RANK_OK(coll_barrier(comm));
  if (rank == nranks - 1) {
    RANK_CHECK(WAIT_UNTIL(atomic_load(failed) == nranks - 1, slow_s(20)));
  } else {
    RANK_CHECK(coll_barrier(comm) == COLL_ERR_TIMEOUT);
    RANK_CHECK(coll_last_error(comm, &error) == COLL_OK);
    RANK_CHECK(error.peer == nranks - 1 && !strstr(error.message, "to blame"));
    atomic_fetch_add(failed, 1);
  }
  coll_comm_destroy(&all);
  return 0;
}

Test(revoked, late_after_a_revocation, .timeout = 60) {
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = slow_ms(1000);
  cr_assert_eq(run_processes(3, &config, late_after_a_revocation, shared_memory(sizeof(atomic_int)),
                             40, NULL),
               0);
}

/* What the three ranks of left_while_it_splits() have done. */
typedef struct progress {
  atomic_int has_half, revoked;
} progress;

/* Ranks 0 and 2 make a communicator of their own. Rank 0 has it and waits there, but before rank 2
 * has it, rank 1 revokes that which they make it from, so rank 2 leaves: rank 1 is to blame. */
static int left_while_it_splits(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  progress *p = arg;
  coll_comm *half = NULL;
  coll_request *request = NULL;
  coll_error error = COLL_ERROR_INIT;
  int value = 7;
  RANK_OK(coll_barrier(comm)); /* all are connected, so that a split sends at once */
  RANK_OK(coll_comm_isplit(comm, rank == 1 ? COLL_NO_COLOR : 0, 0, NULL, &half, &request));
  if (rank == 1) {
    RANK_OK(coll_wait(&request, -1));
    RANK_CHECK(WAIT_UNTIL(atomic_load(&p->has_half), slow_s(20)));
    RANK_OK(coll_comm_revoke(comm));
    atomic_store(&p->revoked, 1);
  } else if (rank == 2) {
    RANK_CHECK(WAIT_UNTIL(atomic_load(&p->revoked), slow_s(20)));
    RANK_CHECK(coll_barrier(comm) == COLL_ERR_ABORTED);
    coll_wait(&request, -1);
    coll_comm_destroy(&half);
  } else {
    RANK_OK(coll_wait(&request, -1));
    atomic_store(&p->has_half, 1);
    RANK_CHECK(coll_allreduce(&value, &value, 1, COLL_INT32, COLL_SUM, half) == COLL_ERR_ABORTED);
    RANK_CHECK(coll_last_error(half, &error) == COLL_OK);
    RANK_CHECK(strstr(error.message, "rank 1 of \"world\"") && strstr(error.message, "to blame"));
    coll_comm_destroy(&half);
  }
  return 0;
}

Test(revoked, left_while_it_splits, .timeout = 60) {
  cr_assert_eq(run_threads(3, NULL, left_while_it_splits, shared_memory(sizeof(progress))), 0);
}
