/*
 * test_shortage.c: one rank of three runs out of something: one of its system calls or allocations
 * fails, once or from then on, while it creates a communicator, makes the first connections over
 * TCP, or shrinks. The operation succeeds, or fails on that rank with an error of its own; no other
 * rank is blamed, nothing hangs, no descriptor leaks.
 *
 *   TEST_SHORTAGE=shrink,2,calloc,17,always build/tests/doors_test_shortage    plays one case
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

enum { RANKS = 3, CREATE_MS = 4000, TIMEOUT_MS = 2000, LIMIT_S = 25, WORLDS = 4 };

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
  if (rank != c->victim || now != c->phase)
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
  config.create_timeout_ms = slow_ms(CREATE_MS);
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
  /* In a shrink, others that a broken connection left out see only who did not come. */
  if (s->what.phase == SHRINK && o->status == COLL_ERR_TIMEOUT && rank != victim)
    return NULL;
  if (o->error.peer != victim && o->error.peer >= 0)
    return "blames an innocent rank";
  if (o->error.peer != victim && o->error.rank != victim && rank != victim)
    return "names nobody";
  if (rank == victim && s->what.phase == SHRINK && o->status != COLL_ERR_SYSTEM &&
      o->status != COLL_ERR_NO_MEMORY)
    return "does not speak of a shortage";
  if (s->ranks[victim].status == COLL_OK)
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

/* A rank that cannot open a port for a new communicator ends the shrink for all, at once and with
 * its own error: in another round it would be as short. */
Test(shortage, ends_a_shrink_for_all, .timeout = 100) {
  for (int victim = 0; victim < RANKS; victim++) {
    stage *s = shared_memory(sizeof(*s));
    s->what = (shortage_case){SHRINK, victim, SHORTAGE_socket, 2, true, 0};
    run_ranks(s);
    for (int r = 0; r < RANKS; r++) {
      const outcome *o = &s->ranks[r];
      cr_expect_null(judge(s, r), "rank %d of victim %d %s: %s", r, victim, judge(s, r),
                     o->error.message);
      cr_expect_eq(o->status, COLL_ERR_SYSTEM, "rank %d of victim %d: %s", r, victim,
                   o->error.message);
      cr_expect_eq(o->error.rank, victim);
      cr_expect_lt(o->seconds, 2 * slow_s(CREATE_MS / 1000), "%.2f s", o->seconds);
    }
  }
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

Test(shortage, the_case_that_is_asked_for, .timeout = 60) {
  const char *text = getenv("TEST_SHORTAGE");
  char copy[100];
  shortage_case what;
  if (!text)
    cr_skip_test("TEST_SHORTAGE names none");
  snprintf(copy, sizeof(copy), "%s", text);
  cr_assert(read_case(copy, &what));
  cr_assert_geq(play(&what), 0);
}
