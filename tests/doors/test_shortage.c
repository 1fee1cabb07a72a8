/*
 * test_shortage.c: one rank of three runs out of something: one of its system calls or allocations
 * fails, once or from then on, while it creates a communicator, makes the first connections over
 * TCP, or shrinks. The operation succeeds, or fails on that rank with an error of its own; no other
 * rank is blamed, nothing hangs, no descriptor leaks.
 *
 *   TEST_SHORTAGE=shrink,2,calloc,17,always build/tests/doors_test_shortage    plays one case,
 *   TEST_SHORTAGE=shrink,2,calloc,0,always build/tests/doors_test_shortage     one after the other
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "extent.h"
#include "support_shortage.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

enum {
  RANKS = 3,
  CREATE_MS = 4000,
  UNHURRIED_MS = 20000,
  TIMEOUT_MS = 2000,
  LIMIT_S = 25,
  WORLDS = 4
};

typedef enum phase { CREATION, FIRST_SUM, SHRINK, PHASES } phase;
static const char *const phase_names[] = {"creation", "sum", "shrink"};

typedef struct shortage_case {
  phase phase;
  int victim;
  shortage_call call; /* SHORTAGE_COUNT: any, at random */
  int nth;            /* of random calls: the seed */
  bool for_good;
  int sys_errno; /* 0: the usual one */
} shortage_case;

/* What became of a rank. */
typedef struct outcome {
  bool over;
  coll_status status;
  coll_error error;
  int failed; /* how many calls failed */
  int leaked; /* descriptors */
  double seconds;
} outcome;

/* In shared memory. */
typedef struct stage {
  shortage_case what;
  int more;       /* so many ranks after the victim are victims, too */
  bool unhurried; /* nobody may be late, even on a slow machine */
  coll_id id;
  atomic_int arrived;
  outcome ranks[RANKS];
} stage;

/* Waits until all ranks are here for the n-th time. */
static void meet(stage *s, int n) {
  atomic_fetch_add(&s->arrived, 1);
  (void)WAIT_UNTIL(atomic_load(&s->arrived) >= n * RANKS, LIMIT_S);
}

/* The shortage begins, if it is this rank's and phase's. */
static void maybe_begin(const stage *s, int rank, phase now) {
  const shortage_case *c = &s->what;
  if (rank < c->victim || rank > c->victim + s->more || now != c->phase)
    return;
  if (c->call == SHORTAGE_COUNT)
    shortage_begin_random((unsigned long long)c->nth, 60);
  else
    shortage_begin(c->call, c->nth, c->for_good, c->sys_errno);
}

/* Calls the operation of a phase. */
static coll_status operate(stage *s, int rank, phase now, coll_comm **comm, coll_error *error) {
  coll_config config = COLL_CONFIG_INIT;
  coll_comm *child = NULL;
  coll_status status;
  int value = 1, sum = 0;
  config.transport = "tcp";
  config.create_timeout_ms = slow_ms(s->unhurried ? UNHURRIED_MS : CREATE_MS);
  config.timeout_ms = slow_ms(TIMEOUT_MS);
  config.error = error;
  maybe_begin(s, rank, now);
  if (now == CREATION) {
    status = coll_comm_create(comm, &s->id, RANKS, rank, &config);
  } else if (now == FIRST_SUM) {
    status = coll_allreduce(&value, &sum, 1, COLL_INT32, COLL_SUM, *comm);
    if (status != COLL_OK)
      coll_last_error(*comm, error);
  } else {
    status = coll_comm_shrink(*comm, &config, &child);
    coll_comm_destroy(&child);
  }
  int failed = shortage_end();
  if (rank == s->what.victim && now == s->what.phase)
    s->ranks[rank].failed = failed;
  return status == COLL_OK && now == FIRST_SUM && sum != RANKS ? COLL_ERR_INTERNAL : status;
}

/* One rank, to the end of the phase of the shortage. */
static void take_part(stage *s, int rank) {
  uint8_t mac[32];
  coll_comm *comm = NULL;
  outcome *mine = &s->ranks[rank];
  mine->error = (coll_error)COLL_ERROR_INIT;
  HMAC(EVP_sha256(), "", 0, mac, 0, mac, NULL); /* what it allocates, it keeps */
  int before = count_fds();
  if (rank == 0 && coll_unique_id(&s->id, NULL) != COLL_OK)
    abort();
  for (phase now = CREATION; now <= s->what.phase && mine->status == COLL_OK; now++) {
    meet(s, (int)now + 1);
    double begin = now_s();
    mine->status = operate(s, rank, now, &comm, &mine->error);
    mine->seconds = now_s() - begin;
  }
  coll_comm_destroy(&comm);
  mine->leaked = count_fds() - before;
  mine->over = true;
}

/* What is wrong with a rank's outcome; NULL: nothing. */
static const char *judge(const stage *s, int rank) {
  const outcome *o = &s->ranks[rank];
  const int victim = s->what.victim;
  if (!o->over)
    return "hangs or crashed";
  if (o->leaked > 0)
    return "leaks descriptors";
  if (o->status == COLL_OK)
    return NULL;
  if (strlen(o->error.message) < 20)
    return "says nothing";
  if (o->error.peer != victim && o->error.peer >= 0)
    return "blames an innocent rank";
  /* Nobody but the victim, which made the id, knows before they have met that it is rank 0. */
  const bool maker = victim == 0 && strstr(o->error.message, "the process that made the id (pid ");
  if (o->error.peer != victim && o->error.rank != victim && rank != victim && !maker)
    return "names nobody";
  if (rank == victim && s->what.phase == SHRINK && o->status != COLL_ERR_SYSTEM &&
      o->status != COLL_ERR_NO_MEMORY)
    return "does not speak of a shortage";
  /* Ranks that the one with the shortage could not reach are left out of a shrink. */
  const bool left_out = s->what.phase == SHRINK && rank != victim;
  if (s->ranks[victim].status == COLL_OK && !left_out)
    return "fails, but not the rank with the shortage";
  return NULL;
}

/* Runs all ranks. */
static void run_ranks(stage *s) {
  pid_t pids[RANKS];
  for (int r = 0; r < RANKS; r++)
    if ((pids[r] = fork()) == 0) {
      alarm((unsigned)slow_s(LIMIT_S));
      take_part(s, r);
      _exit(0);
    }
  for (int r = 0; r < RANKS; r++)
    waitpid(pids[r], NULL, 0);
}

/* Plays a case, prints what is wrong: how many calls failed, or -1 if something is wrong. */
static int play(const shortage_case *what) {
  stage *s = shared_memory(sizeof(*s));
  s->what = *what;
  run_ranks(s);
  int result = s->ranks[what->victim].failed;
  for (int r = 0; r < RANKS; r++) {
    const char *wrong = judge(s, r);
    if (!wrong)
      continue;
    fprintf(stderr, "TEST_SHORTAGE=%s,%d,%s,%d,%s: rank %d %s (%s, %.2f s, rank %d, peer %d: %s)\n",
            phase_names[what->phase], what->victim,
            what->call == SHORTAGE_COUNT ? "any" : shortage_name(what->call), what->nth,
            what->for_good ? "always" : "once", r, wrong, coll_status_name(s->ranks[r].status),
            s->ranks[r].seconds, s->ranks[r].error.rank, s->ranks[r].error.peer,
            s->ranks[r].error.message);
    result = -1;
  }
  return result;
}

/* Plays the cases of one kind of call, from the first call to the last; how many went wrong. */
static int play_all_of(shortage_case what) {
  int wrong = 0, failed = 1;
  for (what.nth = 1; failed != 0;
       what.nth += extent(1 + 2 * what.nth, 1 + what.nth / 2, 1 + 2 * what.nth)) {
    failed = play(&what);
    wrong += failed < 0;
  }
  return wrong;
}

/* Plays a job in a process of its own. */
static void start_job(const shortage_case *what) {
  pid_t pid = fork();
  cr_assert_geq(pid, 0);
  if (pid > 0)
    return;
  setenv("COLL_LOG", "none", 1);
  if (what->call == SHORTAGE_COUNT)
    _exit(play(what) < 0);
  _exit(play_all_of(*what) > 0);
}

/* Waits for a job; whether it went well. */
static bool end_job(void) {
  int status = 0;
  waitpid(-1, &status, 0);
  return status == 0;
}

/* Plays jobs, some at a time. */
static void play_jobs(const shortage_case *jobs, int count) {
  int running = 0, wrong = 0;
  for (int i = 0; i < count; i++) {
    if (running == WORLDS) {
      wrong += !end_job();
      running--;
    }
    start_job(&jobs[i]);
    running++;
  }
  for (; running > 0; running--)
    wrong += !end_job();
  cr_assert_eq(wrong, 0);
}

/* Plays each kind of call, victim and phase, or a part of them. */
static void play_kinds(bool for_good) {
  shortage_case jobs[PHASES * RANKS * SHORTAGE_COUNT];
  const int part = extent(24, 12, 24);
  int count = 0, number = for_good;
  for (int now = 0; now < PHASES; now++)
    for (int victim = 0; victim < RANKS; victim++)
      for (int call = 0; call < SHORTAGE_COUNT; call++)
        if (number++ % part == 0)
          jobs[count++] = (shortage_case){now, victim, call, 1, for_good, 0};
  play_jobs(jobs, count);
}

Test(shortage, one_call_fails, .timeout = 600) {
  play_kinds(false);
}

Test(shortage, calls_fail_for_good, .timeout = 600) {
  play_kinds(true);
}

Test(shortage, calls_fail_at_random, .timeout = 600) {
  shortage_case jobs[60];
  const int count = extent(12, 30, 12);
  for (int i = 0; i < count; i++)
    jobs[i] = (shortage_case){i % PHASES, i / PHASES % RANKS, SHORTAGE_COUNT, i + 1, false, 0};
  play_jobs(jobs, count);
}

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
    cr_expect_gt(play(&jobs[i]), 0);
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
      cr_expect(o->over && o->leaked == 0);
      cr_expect_eq(o->status, COLL_ERR_SYSTEM, "rank %d of %d: %s", r, first, o->error.message);
      cr_expect(is_short ? o->error.rank == r
                         : o->error.rank == first || o->error.rank == first + 1,
                "rank %d of %d: %s", r, first, o->error.message);
    }
  }
}

/* A message of a shrink that could not be sent or received for a moment costs nobody anything. */
Test(shortage, passes_during_a_shrink, .timeout = 100) {
  static const shortage_call calls[] = {SHORTAGE_sendmsg, SHORTAGE_recvmsg, SHORTAGE_malloc,
                                        SHORTAGE_HMAC};
  const int step = extent(3, 1, 6);
  setenv("COLL_LOG", "none", 1);
  for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
    for (int nth = 1; nth < 40; nth += step)
      cr_expect_geq(play(&(shortage_case){SHRINK, 0, calls[i], nth, false, 0}), 0);
}

/* Reads "sum,2,calloc,17,always"; false if it is malformed. */
static bool read_case(char *text, shortage_case *what) {
  char *words[5], *rest = NULL;
  for (int i = 0; i < 5; i++)
    if (!(words[i] = strtok_r(i ? NULL : text, ",", &rest)))
      return false;
  *what = (shortage_case){
      PHASES, atoi(words[1]), SHORTAGE_COUNT, atoi(words[3]), strcmp(words[4], "always") == 0, 0};
  for (int i = 0; i < PHASES; i++)
    if (strcmp(words[0], phase_names[i]) == 0)
      what->phase = (phase)i;
  for (int i = 0; i < SHORTAGE_COUNT; i++)
    if (strcmp(words[2], shortage_name((shortage_call)i)) == 0)
      what->call = (shortage_call)i;
  return what->phase < PHASES && what->victim < RANKS;
}

Test(shortage, the_case_that_is_asked_for, .timeout = 6000) {
  const char *text = getenv("TEST_SHORTAGE");
  char copy[100];
  shortage_case what;
  if (!text)
    cr_skip_test("TEST_SHORTAGE names none");
  snprintf(copy, sizeof(copy), "%s", text);
  cr_assert(read_case(copy, &what));
  const bool all = what.nth == 0;
  int failed, wrong = 0;
  do {
    what.nth += all;
    failed = play(&what);
    wrong += failed < 0;
  } while (all && failed != 0);
  cr_assert_eq(wrong, 0);
}
