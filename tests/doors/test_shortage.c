/*
 * test_shortage.c: one rank of three runs out of something: one of its system calls, allocations or
 * other calls that can fail does, once or from then on, while it creates a communicator, makes the
 * first connections, shrinks or grows. The operation succeeds, or fails on that rank with an error
 * of its own; no other rank is blamed, nothing hangs, nothing leaks.
 *
 * A *place* is the n-th call of a kind in a phase of a victim, failing once or for good. There are
 * 20,000; a run plays a sample, always the same. By hand:
 *
 *   TEST_SHORTAGE=... build/tests/doors_test_shortage --filter 'shortage/what_is_asked_for'
 *     all                                each place, and 600 worlds at random: half an hour
 *     shrink  shrink,2  shrink,2,calloc  those of a phase, a victim, a kind of call
 *     shrink,2,calloc,17,always          one place, and what becomes of each rank
 *     grow,0,any,5,once                  at random, with a seed
 *     count                              how many there are
 *   TEST_SLOW=3                          longer limits, for a busy machine
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "extent.h"
#include "support_stage.h"
#include "tests/proc/support_ranks.h"

enum { WORLDS = 4, SWEEP_WORLDS = 14, RANDOM = 600, KINDS = PHASES * RANKS * SHORTAGE_COUNT };

/* ---- many places, some at a time ------------------------------------------------------------- */

/* Worlds that play, each in a process of its own. */
typedef struct pool {
  int most, running, played, wrong;
} pool;

static void wait_for_one(pool *p) {
  int status = 0;
  waitpid(-1, &status, 0);
  p->running--;
  p->wrong += status != 0;
}

static void put(pool *p, const shortage_case *what) {
  if (p->running == p->most)
    wait_for_one(p);
  pid_t pid = fork();
  cr_assert_geq(pid, 0);
  if (pid == 0) {
    setenv("COLL_LOG", "none", 1);
    _exit(play(what, false) < 0);
  }
  p->running++;
  p->played++;
}

static void finish(pool *p) {
  while (p->running > 0)
    wait_for_one(p);
  printf("%d places played, %d complaints\n", p->played, p->wrong);
  cr_assert_eq(p->wrong, 0);
}

/* ---- which places there are ------------------------------------------------------------------ */

/* A kind of call that a victim makes in a phase, and how often. */
typedef struct kind {
  phase phase;
  int victim;
  shortage_call call;
  int seen;
} kind;

/* Lists the kinds that `only` matches, with so many words. */
static int count_kinds(kind kinds[KINDS], const shortage_case *only, int words) {
  int count = 0;
  setenv("COLL_LOG", "none", 1);
  for (int now = 0; now < PHASES; now++)
    for (int victim = 0; victim < RANKS; victim++) {
      if ((words > 0 && only->phase != (phase)now) || (words > 1 && only->victim != victim))
        continue;
      stage *s = shared_memory(sizeof(*s));
      s->what = (shortage_case){(phase)now, victim, 0, 0, false, 0};
      run_ranks(s);
      for (int call = 0; call < SHORTAGE_COUNT; call++)
        if (s->seen[call] > 0 && (words < 3 || only->call == (shortage_call)call))
          kinds[count++] = (kind){(phase)now, victim, (shortage_call)call, s->seen[call]};
    }
  return count;
}

/* The place after this one. OpenSSL allocates thousands of times, mostly when it is used first: a
 * part of these. */
static int next_place(const kind *k, int nth) {
  return nth + (k->call == SHORTAGE_OPENSSL_malloc ? 1 + nth / 16 : 1);
}

/* Once, and for good; but epoll_wait() can only be interrupted, which ends. */
static int ways(const kind *k) {
  return k->call == SHORTAGE_epoll_wait ? 1 : 2;
}

/* Plays all places of these kinds. */
static void sweep(const kind *kinds, int count, pool *p) {
  for (int i = 0; i < count; i++) {
    const kind *k = &kinds[i];
    for (int nth = 1; nth <= k->seen; nth = next_place(k, nth))
      for (int for_good = 0; for_good < ways(k); for_good++)
        put(p, &(shortage_case){k->phase, k->victim, k->call, nth, for_good, 0});
  }
}

static void play_at_random(int count, pool *p) {
  for (int i = 0; i < count; i++)
    put(p,
        &(shortage_case){(phase)(i % PHASES), i / PHASES % RANKS, SHORTAGE_COUNT, i + 1, false, 0});
}

/* One place of every so-many-th kind. */
Test(shortage, one_call_fails, .timeout = 600) {
  kind kinds[KINDS];
  pool p = {.most = WORLDS};
  const int count = count_kinds(kinds, NULL, 0), sample = extent(50, 150, 20);
  for (int i = 0; i < sample; i++) {
    const kind *k = &kinds[i * count / sample];
    put(&p, &(shortage_case){k->phase, k->victim, k->call, 1 + i * 7919 % k->seen, i % ways(k) == 1,
                             0});
  }
  finish(&p);
}

Test(shortage, calls_fail_at_random, .timeout = 600) {
  pool p = {.most = WORLDS};
  play_at_random(extent(14, 42, 6), &p);
  finish(&p);
}

Test(shortage, what_is_asked_for, .timeout = 40000) {
  const char *text = getenv("TEST_SHORTAGE");
  shortage_case what;
  kind kinds[KINDS];
  pool p = {.most = SWEEP_WORLDS};
  int places = 0;
  if (!text)
    cr_skip_test("TEST_SHORTAGE asks for nothing");
  const int words = read_case(text, &what);
  cr_assert(words > 0 || strcmp(text, "all") == 0 || strcmp(text, "count") == 0, "%s?", text);
  if (words > 3) {
    cr_assert_geq(play(&what, true), 0);
    return;
  }
  const int count = count_kinds(kinds, &what, words);
  for (int i = 0; i < count; i++) {
    const kind *k = &kinds[i];
    if (strcmp(text, "count") == 0)
      printf("%s,%d,%s: %d\n", phase_name(k->phase), k->victim, shortage_name(k->call), k->seen);
    for (int nth = 1; nth <= k->seen; nth = next_place(k, nth))
      places += ways(k);
  }
  printf("%d kinds, %d places\n", count, places);
  fflush(stdout);
  if (strcmp(text, "count") == 0)
    return;
  sweep(kinds, count, &p);
  if (words == 0)
    play_at_random(RANDOM, &p);
  finish(&p);
}

/* ---- some cases ------------------------------------------------------------------------------ */

/* A rank whose kernel has no buffers for what it sends says so, well before the others' deadline.
 */
Test(shortage, no_buffers_for_sending, .timeout = 100) {
  for (int victim = 0; victim < RANKS; victim++) {
    stage *s = shared_memory(sizeof(*s));
    s->what = (shortage_case){FIRST_SUM, victim, SHORTAGE_sendmsg, 1, true, ENOBUFS};
    run_ranks(s);
    for (int r = 0; r < RANKS; r++)
      cr_expect_null(judge(s, r), "rank %d of victim %d %s: %s", r, victim, judge(s, r),
                     s->ranks[r].error.message);
    const coll_error *error = &s->ranks[victim].error;
    cr_expect_eq(s->ranks[victim].status, COLL_ERR_SYSTEM, "%s", error->message);
    cr_expect_str_eq(error->syscall, "sendmsg");
    cr_expect_eq(error->sys_errno, ENOBUFS);
    cr_expect(strstr(error->message, "tcp_mem"), "%s", error->message);
  }
}

/* A rank that cannot take the connections of a new communicator learns that this is why it was left
 * out, although those who did not come look like the cause. */
Test(shortage, while_a_shrink_builds, .timeout = 100) {
  const shortage_case jobs[] = {{SHRINK, 1, SHORTAGE_setsockopt, 13, true, 0},
                                {SHRINK, 1, SHORTAGE_accept4, 1, true, 0},
                                {SHRINK, 2, SHORTAGE_accept4, 3, true, 0}};
  setenv("COLL_LOG", "none", 1);
  for (size_t i = 0; i < sizeof(jobs) / sizeof(*jobs); i++)
    cr_expect_gt(play(&jobs[i], false), 0);
}

/* A rank that cannot open a port for a new communicator is left out of it, with its own error, even
 * if it led the others. */
Test(shortage, leaves_only_itself_out, .timeout = 100) {
  setenv("COLL_LOG", "none", 1);
  for (int victim = 0; victim < RANKS; victim++) {
    stage *s = shared_memory(sizeof(*s));
    s->what = (shortage_case){SHRINK, victim, SHORTAGE_socket, 2, true, 0};
    s->unhurried = true;
    run_ranks(s);
    for (int r = 0; r < RANKS; r++) {
      const outcome *o = &s->ranks[r];
      cr_expect_null(judge(s, r), "rank %d of victim %d %s: %s", r, victim, judge(s, r),
                     o->error.message);
      cr_expect_eq(o->status, r == victim ? COLL_ERR_SYSTEM : COLL_OK, "rank %d of victim %d: %s",
                   r, victim, o->error.message);
    }
    cr_expect_eq(s->ranks[victim].error.rank, victim);
  }
}

/* If those who are left are too few, they say whose shortage it was. */
Test(shortage, leaves_too_few, .timeout = 100) {
  setenv("COLL_LOG", "none", 1);
  for (int first = 0; first < 2; first++) {
    stage *s = shared_memory(sizeof(*s));
    s->what = (shortage_case){SHRINK, first, SHORTAGE_socket, 2, true, 0};
    s->unhurried = true;
    s->more = 1;
    run_ranks(s);
    for (int r = 0; r < RANKS; r++) {
      const outcome *o = &s->ranks[r];
      const bool is_short = r == first || r == first + 1;
      cr_expect(o->over && o->fds == 0 && o->leaked == 0);
      cr_expect_eq(o->status, COLL_ERR_SYSTEM, "rank %d of %d: %s", r, first, o->error.message);
      cr_expect(is_short ? o->error.rank == r
                         : o->error.rank == first || o->error.rank == first + 1,
                "rank %d of %d: %s", r, first, o->error.message);
    }
  }
}

/* A message of a shrink that could not be sent or received for a moment costs nobody anything. */
Test(shortage, passes_during_a_shrink, .timeout = 100) {
  static const shortage_call calls[] = {SHORTAGE_sendmsg, SHORTAGE_recvmsg, SHORTAGE_send,
                                        SHORTAGE_malloc, SHORTAGE_HMAC};
  const int step = extent(3, 1, 6);
  setenv("COLL_LOG", "none", 1);
  for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
    for (int nth = 1; nth < 40; nth += step)
      cr_expect_geq(play(&(shortage_case){SHRINK, 0, calls[i], nth, false, 0}, false), 0);
}

/* Places at which the library once blamed others, hung up on them or said nothing. */
Test(shortage, places_that_were_wrong, .timeout = 200) {
  static const shortage_case cases[] = {
      {CREATION, 0, SHORTAGE_sendmsg, 1, true, 0},
      {CREATION, 0, SHORTAGE_sendmsg, 6, true, 0},
      {CREATION, 0, SHORTAGE_calloc, 12, true, 0},
      {CREATION, 0, SHORTAGE_send, 2, false, 0},
      {CREATION, 0, SHORTAGE_send, 3, false, 0},
      {CREATION, 0, SHORTAGE_send, 4, false, 0},
      {FIRST_SUM, 1, SHORTAGE_recv, 7, false, 0},
      {FIRST_SUM, 0, SHORTAGE_HMAC, 5, true, 0},
      {FIRST_SUM, 1, SHORTAGE_epoll_ctl, 2, true, 0},
      {FIRST_SUM, 2, SHORTAGE_epoll_ctl, 1, true, 0},
      {FIRST_SUM, 2, SHORTAGE_calloc, 103, true, 0},
      {SHM, 0, SHORTAGE_socket, 6, true, 0},
      {SHM, 0, SHORTAGE_getsockopt, 4, false, 0},
      {SHM, 0, SHORTAGE_fopen, 1, false, 0},
      {SHM, 0, SHORTAGE_fcntl, 10, false, 0},
      {SHM, 0, SHORTAGE_malloc, 3, false, 0},
      {SHM, 1, SHORTAGE_fcntl, 4, true, 0},
      {SHM, 1, SHORTAGE_HMAC, 44, true, 0},
      {MAC, 0, SHORTAGE_calloc, 3, false, 0},
      {TLS, 2, SHORTAGE_SSL_SESSION_new, 1, false, 0},
      {TLS, 1, SHORTAGE_OPENSSL_malloc, 951, false, 0},
      {TLS, 0, SHORTAGE_OPENSSL_malloc, 7086, true, 0},
  };
  pool p = {.most = WORLDS};
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
    put(&p, &cases[i]);
  finish(&p);
}
