/*
 * test_grow_cut.c: rank 0 and a newcomer return from a growth, but a cut keeps all other members
 * from hearing of it. Then rank 0 dies. The others must not make a communicator without the
 * newcomer, which has one with them. The model found this (tests/model).
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcoll/recovery/grow.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

enum { MEMBERS = 3, NEWCOMER = MEMBERS };

typedef struct scene {
  coll_id id;
  atomic_int open;    /* `id` is there */
  atomic_int created; /* members that have their first communicator */
  atomic_int joined;  /* the newcomer has returned */
  int nranks[MEMBERS + 1];
  uint64_t list[MEMBERS + 1]; /* the communicator that each got, as a number */
} scene;

/* ---- the cut --------------------------------------------------------------------------------- */

static scene *cut; /* this process is rank 0, whose words of the outcome get lost */

void __real_shrink_pass_down(shrink *s, const shrink_order *order, const uint8_t *flags);
void __wrap_shrink_pass_down(shrink *s, const shrink_order *order, const uint8_t *flags);
void __real_grow_dismiss(shrink *s, bool committed);
void __wrap_grow_dismiss(shrink *s, bool committed);

/* The kernel takes the message, as it does during a cut. */
void __wrap_shrink_pass_down(shrink *s, const shrink_order *order, const uint8_t *flags) {
  if (!cut || order->kind != SHRINK_COMMIT) {
    __real_shrink_pass_down(s, order, flags);
    return;
  }
  for (int r = 0; r < s->b.nranks; r++)
    if (flags[r] & SHRINK_FOR)
      s->members[r].ends = s->members[r].told = true;
}

/* Rank 0 dies as soon as the newcomer has returned. */
void __wrap_grow_dismiss(shrink *s, bool committed) {
  __real_grow_dismiss(s, committed);
  if (cut && committed && WAIT_UNTIL(atomic_load(&cut->joined), 30))
    kill(getpid(), SIGKILL);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* Notes which communicator this is: all who have it note the same. */
static void note(scene *s, const coll_comm *comm, int who) {
  int origin;
  coll_comm_nranks(comm, &s->nranks[who]);
  s->list[who] = 1;
  for (int r = 0; r < s->nranks[who]; r++) {
    coll_comm_origin_rank(comm, r, &origin);
    s->list[who] = s->list[who] * 31 + (uint64_t)origin + 1;
  }
}

static int member(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  int count = 0;
  coll_comm *bigger = NULL;
  atomic_fetch_add(&s->created, 1);
  if (rank == 0) {
    RANK_CHECK(WAIT_UNTIL(atomic_load(&s->created) == nranks, 30));
    RANK_OK(coll_comm_join_id(comm, &s->id));
    atomic_store(&s->open, 1);
    RANK_CHECK(WAIT_UNTIL(coll_comm_joiners(comm, &count) != COLL_OK || count == 1, 30));
    cut = s;
  }
  RANK_OK(coll_comm_grow(comm, NULL, &bigger));
  note(s, bigger, rank);
  coll_comm_destroy(&bigger);
  return 0;
}

/* The newcomer's process, as it ends. */
static int newcomer(scene *s) {
  const int rank = NEWCOMER;
  coll_comm *comm = NULL;
  RANK_CHECK(WAIT_UNTIL(atomic_load(&s->open), 30));
  RANK_CHECK(coll_comm_join(&comm, &s->id, NULL) == COLL_OK);
  note(s, comm, NEWCOMER);
  atomic_store(&s->joined, 1);
  coll_comm_destroy(&comm);
  return 0;
}

Test(grow_cut, newcomer_returns_before_the_others, .timeout = 120) {
  scene *s = shared_memory(sizeof(*s));
  int results[MEMBERS], status;
  coll_config config = COLL_CONFIG_INIT;
  config.create_timeout_ms = slow_ms(10000);
  const pid_t pid = fork();
  if (pid == 0)
    _exit(newcomer(s));
  run_processes(MEMBERS, &config, member, s, 60, results);
  cr_assert_eq(waitpid(pid, &status, 0), pid);
  cr_expect_eq(status, 0);
  cr_expect_eq(results[0], 128 + SIGKILL);
  cr_assert_eq(s->nranks[NEWCOMER], MEMBERS + 1);
  for (int r = 1; r < MEMBERS; r++) {
    cr_expect_eq(results[r], 0, "rank %d: %d", r, results[r]);
    cr_expect_eq(s->list[r], s->list[NEWCOMER], "rank %d has another communicator, of %d ranks", r,
                 s->nranks[r]);
  }
}
