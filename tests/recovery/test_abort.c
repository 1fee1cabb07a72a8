/*
 * test_abort.c: coll_comm_abort while ranks are in coll_comm_shrink or coll_comm_agree: all of them
 * return at once, whatever they wait for, and the next shrink works.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "extent.h"
#include "libcoll/base/prng.h"
#include "libcoll/wireup/bootstrap/links.h"
#include "tests/proc/support_ranks.h"
#include "tests/proc/support_shrink.h"
#include "waits.h"

enum { PATIENCE_MS = 15000 };

/* What happens, and what each rank saw. */
typedef struct scene {
  unsigned frozen; /* ranks that stop before the shrink */
  int stuck;       /* the rank that stops in the bootstrap of the new communicator, or NOBODY */
  int late;        /* the rank that comes when the others have returned, or NOBODY */
  int aborter;
  bool agrees; /* instead of a shrink */
  callers callers;
  atomic_int pid[MOST];
  atomic_int returned;
  double aborted_s; /* when coll_comm_abort() was called */
  double seconds[MOST];
  char message[MOST][640];
} scene;

/* ---- places in the library where a rank stops or aborts ----------------------------------------
 */

static atomic_bool stops_there;

coll_status __real_boot_links_open(const boot *b, boot_links *links, const colli_params *params);
coll_status __wrap_boot_links_open(const boot *b, boot_links *links, const colli_params *params);
int __real_boot_polls_wait(boot_polls *polls);
int __wrap_boot_polls_wait(boot_polls *polls);

/* A bootstrap begins. */
coll_status __wrap_boot_links_open(const boot *b, boot_links *links, const colli_params *params) {
  if (atomic_load(&stops_there))
    raise(SIGSTOP);
  return __real_boot_links_open(b, links, params);
}

static coll_comm *to_abort;
static int abort_at; /* 1: when this process waits next */

/* A shrink or bootstrap waits. */
int __wrap_boot_polls_wait(boot_polls *polls) {
  if (to_abort && --abort_at == 0)
    coll_comm_abort(to_abort);
  return __real_boot_polls_wait(polls);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static bool is_frozen(const scene *s, int rank) {
  return s->frozen & 1u << rank;
}

/* Whether all who take part wait in the call, and all who freeze have done so. */
static bool all_are_there(scene *s, int nranks) {
  for (int r = 0; r < nranks; r++) {
    const bool stops = is_frozen(s, r) || r == s->stuck;
    if (stops && task_state(atomic_load(&s->pid[r])) != 'T')
      return false;
    if (!stops && r != s->late && !waits_in_call(&s->callers, r))
      return false;
  }
  return true;
}

typedef struct abortion {
  coll_comm *comm;
  scene *s;
  int nranks;
} abortion;

static void *abort_soon(void *arg) {
  const abortion *a = arg;
  (void)WAIT_UNTIL(all_are_there(a->s, a->nranks), 30);
  a->s->aborted_s = now_s();
  coll_comm_abort(a->comm);
  return NULL;
}

/* One call of a rank. */
static coll_status call_once(coll_comm *comm, const scene *s, coll_config *config) {
  coll_comm *child = NULL;
  uint64_t word = 5;
  coll_status status = s->agrees ? coll_comm_agree(comm, &word, NULL, config)
                                 : coll_comm_shrink(comm, config, &child);
  coll_comm_destroy(&child);
  return status;
}

static int shrink_aborted(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  abortion a = {comm, s, nranks};
  pthread_t thread;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  config.error = &error;
  int present = nranks - __builtin_popcount(s->frozen) - (s->stuck != NOBODY);
  RANK_OK(coll_barrier(comm));
  atomic_store(&s->pid[rank], getpid());
  if (is_frozen(s, rank))
    raise(SIGSTOP);
  atomic_store(&stops_there, rank == s->stuck);
  if (rank == s->aborter)
    RANK_CHECK(pthread_create(&thread, NULL, abort_soon, &a) == 0);
  if (rank == s->late)
    RANK_CHECK(WAIT_UNTIL(atomic_load(&s->returned) == present - 1, 30));
  enters_call(&s->callers, rank);
  const double began_s = now_s();
  coll_status status = call_once(comm, s, &config);
  s->seconds[rank] = now_s() - (rank == s->late ? began_s : s->aborted_s);
  snprintf(s->message[rank], sizeof(s->message[rank]), "%s", error.message);
  atomic_fetch_add(&s->returned, 1);
  if (rank == s->aborter)
    pthread_join(thread, NULL);
  RANK_CHECK(status == COLL_ERR_ABORTED);
  RANK_CHECK(error.peer == s->aborter && strstr(error.message, "coll_comm_abort()"));
  RANK_CHECK(WAIT_UNTIL(atomic_load(&s->returned) == present, 30));
  /* That abort does not end the next call. Frozen ranks are left out. */
  config.create_timeout_ms = slow_ms(800);
  status = call_once(comm, s, &config);
  if (2 * present > nranks)
    RANK_CHECK(status == COLL_OK);
  return 0;
}

static scene *make_scene(unsigned frozen, int stuck, int aborter) {
  scene *s = shared_memory(sizeof(*s));
  s->frozen = frozen;
  s->stuck = stuck;
  s->aborter = aborter;
  s->late = NOBODY;
  return s;
}

/* Plays a scene with processes and checks what all saw. */
static void play(scene *s, int nranks) {
  coll_config config = COLL_CONFIG_INIT;
  config.create_timeout_ms = slow_ms(PATIENCE_MS);
  int results[MOST];
  run_processes(nranks, &config, shrink_aborted, s, 60, results);
  for (int r = 0; r < nranks; r++) {
    const bool stops = is_frozen(s, r) || r == s->stuck;
    cr_expect_eq(results[r], stops ? 124 : 0,
                 "%d ranks, %x frozen, %d stuck, %d aborts: rank %d ended with %d: %s", nranks,
                 s->frozen, s->stuck, s->aborter, r, results[r], s->message[r]);
    if (!stops)
      cr_expect_lt(s->seconds[r], slow_s(3),
                   "%d ranks, %x frozen, %d stuck, %d aborts: rank %d took %.2f s", nranks,
                   s->frozen, s->stuck, s->aborter, r, s->seconds[r]);
    printf("%s%.3f", r ? " " : "", s->seconds[r]);
  }
  printf("  %d ranks, %x frozen, %d stuck, %d aborts\n", nranks, s->frozen, s->stuck, s->aborter);
}

/* ---- each state ------------------------------------------------------------------------------ */

/* The numbers of ranks to try. */
static int next_nranks(int nranks) {
  return extent(nranks == 2 ? 3 : nranks == 3 ? 5 : nranks + 3, nranks + 1, nranks + 3);
}

Test(abort, while_ranks_wait_for_the_leader, .timeout = 300) {
  for (int nranks = 2; nranks <= MOST; nranks = next_nranks(nranks)) {
    play(make_scene(1, NOBODY, 1), nranks);
    if (nranks > 2)
      play(make_scene(1, NOBODY, nranks - 1), nranks);
  }
}

Test(abort, while_the_leader_gathers, .timeout = 300) {
  for (int nranks = 2; nranks <= MOST; nranks = next_nranks(nranks)) {
    play(make_scene(1u << (nranks - 1), NOBODY, 0), nranks);
    if (nranks > 2)
      play(make_scene(1u << (nranks - 1), NOBODY, nranks - 2), nranks);
  }
}

Test(abort, while_the_new_communicator_is_made, .timeout = 300) {
  for (int nranks = 2; nranks <= MOST; nranks = next_nranks(nranks)) {
    play(make_scene(0, nranks - 1, 0), nranks);
    play(make_scene(0, 0, nranks - 1), nranks);
    if (nranks > 2)
      play(make_scene(0, nranks - 1, nranks - 2), nranks);
  }
}

/* Control links of rank 7 lead to ranks 0, 3 and 6 alone. */
Test(abort, control_links_lead_nowhere, .timeout = 100) {
  play(make_scene(1u << 0 | 1u << 3 | 1u << 6, NOBODY, 1), 8);
  play(make_scene(1u << 0 | 1u << 3 | 1u << 6, NOBODY, 7), 8);
  play(make_scene(1u << 3 | 1u << 6, NOBODY, 5), 8);
}

Test(abort, agreement, .timeout = 100) {
  scene *s = make_scene(1, NOBODY, 2);
  s->agrees = true;
  play(s, 4);
  s = make_scene(8, NOBODY, 1);
  s->agrees = true;
  play(s, 4);
}

/* ---- who comes later ------------------------------------------------------------------------- */

Test(abort, a_rank_that_comes_later, .timeout = 100) {
  for (int late = 0; late < 4; late++) {
    scene *s = make_scene(0, NOBODY, (late + 1) % 4);
    s->late = late;
    play(s, 4);
    s = make_scene(0, NOBODY, (late + 2) % 4);
    s->late = late;
    cr_expect_eq(run_threads(4, NULL, shrink_aborted, s), 0);
  }
}

Test(abort, threads) {
  coll_config config = COLL_CONFIG_INIT;
  config.create_timeout_ms = slow_ms(PATIENCE_MS);
  for (int nranks = 2; nranks <= 5; nranks++) {
    scene *s = make_scene(0, NOBODY, nranks / 2);
    s->late = (s->aborter + 1) % nranks;
    s->agrees = nranks % 2;
    cr_expect_eq(run_threads(nranks, &config, shrink_aborted, s), 0);
    for (int r = 0; r < nranks; r++)
      cr_expect_lt(s->seconds[r], slow_s(3));
  }
}

/* ---- before a shrink, and at any moment ------------------------------------------------------ */

/* Every rank aborts, so that notices of one arrive while another one shrinks. */
static int abort_first(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *child;
  int mask;
  bool right;
  (void)arg;
  coll_status status = coll_barrier(comm); /* other ranks may have left it */
  RANK_CHECK(status == COLL_OK || status == COLL_ERR_ABORTED);
  RANK_OK(coll_comm_abort(comm));
  RANK_CHECK(coll_barrier(comm) == COLL_ERR_ABORTED);
  RANK_OK(coll_comm_shrink(comm, NULL, &child));
  RANK_CHECK(go_on(child, rank, &mask, &right) == COLL_OK && right && mask == (1 << nranks) - 1);
  RANK_OK(coll_comm_abort(comm));
  RANK_OK(coll_barrier(child));
  coll_comm_destroy(&child);
  RANK_OK(coll_comm_shrink(comm, NULL, &child));
  coll_comm_destroy(&child);
  return 0;
}

Test(abort, before_a_shrink, .timeout = 60) {
  for (int nranks = 1; nranks <= 5; nranks++) {
    cr_expect_eq(run_processes(nranks, NULL, abort_first, NULL, 30, NULL), 0);
    cr_expect_eq(run_threads(nranks, NULL, abort_first, NULL), 0);
  }
}

enum { ROUNDS = 120 };

/* What came of each round. */
typedef struct rounds {
  atomic_int met;
  int most; /* of them */
  coll_status status[ROUNDS][MOST];
} rounds;

/* Shrinks again and again; in every other round one or two ranks abort in the middle. */
static int abort_at_random(coll_comm *comm, int rank, int nranks, void *arg) {
  rounds *all = arg;
  colli_prng prng = {77}; /* the same on all ranks */
  for (int i = 0; i < all->most; i++) {
    const bool aborts = i % 2 == 0;
    const int who[] = {(int)colli_prng_below(&prng, (uint64_t)nranks),
                       (int)colli_prng_below(&prng, (uint64_t)nranks)};
    const int at = 1 + (int)colli_prng_below(&prng, 20);
    const bool mine = aborts && (rank == who[0] || (i % 3 == 0 && rank == who[1]));
    coll_comm *child = NULL;
    /* No call of the next round before the last abort of this one. */
    atomic_fetch_add(&all->met, 1);
    RANK_CHECK(WAIT_UNTIL(atomic_load(&all->met) >= (i + 1) * nranks, 30));
    abort_at = at;
    to_abort = mine ? comm : NULL;
    all->status[i][rank] = coll_comm_shrink(comm, NULL, &child);
    to_abort = NULL;
    int size = -1;
    if (child)
      coll_comm_nranks(child, &size);
    RANK_CHECK((all->status[i][rank] == COLL_OK) == (child != NULL));
    RANK_CHECK(!child || size == nranks);
    coll_comm_destroy(&child);
  }
  return 0;
}

static void check_random(const rounds *all, int nranks) {
  int aborted = 0, mixed = 0;
  for (int i = 0; i < all->most; i++) {
    int errors = 0;
    for (int r = 0; r < nranks; r++) {
      errors += all->status[i][r] != COLL_OK;
      cr_expect(all->status[i][r] == COLL_OK ||
                    (i % 2 == 0 && all->status[i][r] == COLL_ERR_ABORTED),
                "round %d, rank %d: %s", i, r, coll_status_name(all->status[i][r]));
    }
    aborted += errors == nranks;
    mixed += errors > 0 && errors < nranks;
  }
  printf("%d ranks: of %d rounds, %d aborted everywhere, %d on some ranks\n", nranks, all->most,
         aborted, mixed);
  cr_expect_gt(aborted, 0);
}

Test(abort, at_any_moment, .timeout = 200) {
  for (int nranks = 2; nranks <= 5; nranks += 3) {
    rounds *all = shared_memory(sizeof(*all));
    all->most = extent(20, ROUNDS, 20);
    cr_expect_eq(run_processes(nranks, NULL, abort_at_random, all, 100, NULL), 0);
    check_random(all, nranks);
  }
}
