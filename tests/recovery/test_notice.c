/*
 * test_notice.c: a rank that has learnt of a failure returns at once: it does not go to sleep
 * first.
 */
#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "extent.h"
#include "libcoll/comm/comm.h"
#include "tests/proc/support_ranks.h"

enum { RANKS = 8, VICTIM = 5, SUMS = 50 };

static const coll_comm *watched; /* of this process */
static int overslept;            /* sleeps after its failure */

/* The library's sleeps. */
int __real_poll(struct pollfd *fds, nfds_t count, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int ms) {
  overslept += watched && ms != 0 && watched->failure.status != COLL_OK;
  return __real_poll(fds, count, ms);
}

/* Sums until the victim dies. */
static int sum_until_death(coll_comm *comm, int rank, int nranks, void *arg) {
  int value = 1, sum;
  (void)arg;
  watched = comm;
  overslept = 0;
  for (int i = 0;; i++) {
    if (rank == VICTIM && i == SUMS)
      kill(getpid(), SIGKILL);
    if (coll_allreduce(&value, &sum, 1, COLL_INT32, COLL_SUM, comm) != COLL_OK)
      break;
    RANK_CHECK(sum == nranks);
  }
  watched = NULL;
  RANK_CHECK(overslept == 0);
  return 0;
}

Test(notice, nobody_sleeps_over_a_failure, .timeout = 120) {
  const int rounds = extent(20, 60, 5);
  for (int i = 0; i < rounds; i++) {
    int results[RANKS];
    run_processes(RANKS, NULL, sum_until_death, NULL, 60, results);
    for (int r = 0; r < RANKS; r++)
      cr_assert_eq(results[r], r == VICTIM ? 128 + SIGKILL : 0, "round %d, rank %d", i, r);
  }
}
