/*
 * test_rejoin.c: a rank that the others left out, because it came late, gets nothing from what they
 * did meanwhile, and joins again as a newcomer. And a newcomer that cannot be in a communicator
 * with the others does not keep them from growing.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/proc/support_ranks.h"
#include "tests/proc/support_shrink.h"
#include "waits.h"

enum { LATE = 1 };

typedef struct scene {
  bool grows; /* the late rank calls coll_comm_grow(), else coll_comm_shrink() */
  coll_id id;
  atomic_int gone_on; /* ranks that have gone on without it */
  atomic_int here;    /* it waits to join */
} scene;

/* Gets out of one communicator without the others, and into theirs. */
static int come_back(coll_comm *comm, scene *s, int rank, coll_comm **back) {
  coll_comm *child = NULL;
  coll_error error = COLL_ERROR_INIT;
  RANK_CHECK(WAIT_UNTIL(atomic_load(&s->gone_on) == 2, 30));
  coll_status status = (s->grows ? coll_comm_grow : coll_comm_shrink)(comm, NULL, &child);
  RANK_CHECK(status == COLL_ERR_TIMEOUT && !child);
  coll_last_error(comm, &error);
  RANK_CHECK(strstr(error.message, "left out"));
  status = coll_comm_join(back, &s->id, NULL);
  RANK_CHECK(status == COLL_OK);
  return 0;
}

/* Shrinks without the late rank, uses what is left, and lets that rank in again. */
static int go_on_without(coll_comm *comm, scene *s, int rank, coll_comm **bigger) {
  coll_comm *rest;
  int mask, count = 0;
  bool right;
  RANK_OK(coll_comm_shrink(comm, NULL, &rest));
  RANK_CHECK(go_on(rest, rank, &mask, &right) == COLL_OK && right && mask == 5);
  if (rank == 0)
    RANK_OK(coll_comm_join_id(rest, &s->id));
  RANK_OK(coll_barrier(rest));
  atomic_fetch_add(&s->gone_on, 1);
  if (rank == 0) {
    RANK_CHECK(WAIT_UNTIL(coll_comm_joiners(rest, &count) != COLL_OK || count == 1, 60));
    atomic_store(&s->here, 1);
  }
  RANK_CHECK(WAIT_UNTIL(atomic_load(&s->here), 60));
  RANK_OK(coll_comm_grow(rest, NULL, bigger));
  coll_comm_destroy(&rest);
  return 0;
}

static int lose_and_find(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_comm *bigger = NULL;
  int mask, origin, mine;
  bool right;
  uint64_t epoch;
  (void)nranks;
  RANK_OK(coll_barrier(comm));
  if ((rank == LATE ? come_back : go_on_without)(comm, s, rank, &bigger) != 0)
    return 1;
  RANK_OK(coll_comm_epoch(bigger, &epoch));
  coll_comm_rank(bigger, &mine);
  RANK_OK(coll_comm_origin_rank(bigger, mine, &origin));
  RANK_CHECK(epoch == 2 && origin == (rank == LATE ? 3 : rank));
  RANK_CHECK(go_on(bigger, origin, &mask, &right) == COLL_OK && right && mask == 13);
  RANK_OK(coll_barrier(bigger));
  coll_comm_destroy(&bigger);
  return 0;
}

Test(rejoin, late_rank_comes_back, .timeout = 120) {
  coll_config config = COLL_CONFIG_INIT;
  config.create_timeout_ms = slow_ms(500);
  for (int grows = 0; grows < 2; grows++) {
    scene *s = shared_memory(sizeof(*s));
    s->grows = grows;
    cr_expect_eq(run_processes(3, &config, lose_and_find, s, 60, NULL), 0);
  }
}

/* ---- a newcomer that does not fit ------------------------------------------------------------ */

static int grow_without_it(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_comm *same;
  int count = 0, size = 0, mask;
  bool right;
  if (rank == 0) {
    RANK_OK(coll_comm_join_id(comm, &s->id));
    atomic_store(&s->here, 1);
    RANK_CHECK(WAIT_UNTIL(coll_comm_joiners(comm, &count) != COLL_OK || count == 1, 30));
  }
  RANK_OK(coll_comm_grow(comm, NULL, &same));
  coll_comm_nranks(same, &size);
  RANK_CHECK(size == nranks);
  RANK_CHECK(go_on(same, rank, &mask, &right) == COLL_OK && right);
  RANK_OK(coll_barrier(same));
  coll_comm_destroy(&same);
  return 0;
}

/* It has no transport in common with them. */
Test(rejoin, newcomer_does_not_fit, .timeout = 60) {
  int status;
  scene *s = shared_memory(sizeof(*s));
  coll_config config = COLL_CONFIG_INIT, other = COLL_CONFIG_INIT;
  config.transport = "tcp";
  other.transport = "shm";
  pid_t pid = fork();
  if (pid == 0) {
    coll_comm *comm;
    (void)WAIT_UNTIL(atomic_load(&s->here), 30);
    _exit(coll_comm_join(&comm, &s->id, &other));
  }
  cr_expect_eq(run_processes(3, &config, grow_without_it, s, 30, NULL), 0);
  cr_assert_eq(waitpid(pid, &status, 0), pid);
  cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == COLL_ERR_UNREACHABLE, "%x", status);
}
