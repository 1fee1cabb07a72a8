/*
 * test_answer.c: a deadline passes because one rank has not made a call. The message of all others
 * says what it has not entered, who has waited for how long, and what that rank did last: by its
 * own answer if it calls libcoll at all, else as a rank of its host sees, else as its host's
 * service shows, else as far as the others know.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/proc/support_ranks.h"
#include "waits.h"

#define LATE       3
#define TIMEOUT_MS 1500
#define MANY       (1 << 20)

/* What the late rank does meanwhile. */
typedef enum how {
  ANSWERS,  /* it polls a request of its own */
  COMPUTES, /* in its own code */
  SLEEPS,   /* in its own code */
  STOPPED,
  ENTERS /* the collective, and then sleeps without moving it */
} how;

/* Where the others wait for it. */
typedef enum where {
  WORLD,    /* in an all-reduce */
  REVERSED, /* on a communicator that was split, where it is rank 0 */
  MESSAGE,  /* for a message of it */
  LONG,     /* in a long all-reduce */
  PAIR      /* one for a message, on a communicator of the two; the others for that one */
} where;

typedef struct scene {
  how late;
  where place;
  atomic_int failed;
  double begun_s; /* when the late rank began its broadcasts */
  double failed_s[LATE];
  char messages[LATE][640];
} scene;

static double many[MANY]; /* of a rank that is a process */

/* One receive of the late rank from itself, which it tests for a while: that polls notices too. */
static int talk_to_itself(coll_comm *comm, const scene *s) {
  const int rank = LATE;
  coll_request *requests[2] = {NULL, NULL};
  int in = 0, out = 1;
  RANK_OK(coll_irecv(&in, 1, COLL_INT32, LATE, 7, NULL, comm, &requests[0]));
  for (int i = 0; i < 1000 && atomic_load(&s->failed) < LATE; i++)
    RANK_CHECK(coll_test(&requests[0]) == COLL_IN_PROGRESS);
  RANK_OK(coll_isend(&out, 1, COLL_INT32, LATE, 7, comm, &requests[1]));
  for (int i = 0; i < 2; i++)
    RANK_OK(coll_wait(&requests[i], -1));
  return in != out;
}

/* The late rank is busy until all others have failed, or stops for good. */
static int come_too_late(coll_comm *comm, coll_comm *other, const scene *s) {
  const int rank = LATE;
  const double until = now_s() + slow_s(20);
  coll_request *request = NULL;
  if (s->late == STOPPED)
    raise(SIGSTOP);
  if (s->late == ENTERS)
    RANK_OK(coll_iallreduce(many, many, MANY, COLL_FLOAT64, COLL_SUM, comm, &request));
  while (s->late == COMPUTES && atomic_load(&s->failed) < LATE && now_s() < until)
    ;
  while (s->late == ANSWERS && atomic_load(&s->failed) == 0 && now_s() < until)
    RANK_CHECK(talk_to_itself(other, s) == 0);
  RANK_CHECK(WAIT_UNTIL(atomic_load(&s->failed) == LATE, slow_s(20)));
  if (request)
    RANK_CHECK(coll_wait(&request, -1) == COLL_ERR_TIMEOUT);
  return 0;
}

/* Waits where the late rank does not come. */
static coll_status wait_for_it(coll_comm *comm, coll_comm *pair, int rank, const scene *s) {
  double few[128] = {0};
  if (s->place == PAIR && rank == LATE - 1)
    return coll_recv(few, 1, COLL_FLOAT64, 1, 5, NULL, pair);
  if (s->place == MESSAGE || s->place == PAIR)
    return coll_recv(few, 1, COLL_FLOAT64, s->place == PAIR ? LATE - 1 : LATE, 5, NULL, comm);
  if (s->place == LONG)
    return coll_allreduce(many, many, MANY, COLL_FLOAT64, COLL_SUM, comm);
  return coll_allreduce(few, few, 128, COLL_FLOAT64, COLL_SUM, comm);
}

/* A broadcast of all ranks, and then something without the late rank. */
static int broadcast_and_wait(coll_comm *world, int rank, int nranks, void *arg) {
  scene *s = arg;
  const bool reversed = s->place == REVERSED, paired = s->place == PAIR && rank >= LATE - 1;
  double value = 1;
  coll_comm *comm = world, *other, *second;
  (void)nranks;
  RANK_OK(coll_comm_dup(world, NULL, &other));
  RANK_OK(coll_comm_split(world, s->place == PAIR ? rank / 2 : 0, reversed ? -rank : rank, NULL,
                          &second));
  comm = reversed ? second : world;
  if (rank == LATE)
    s->begun_s = now_s();
  if (s->place == PAIR)
    RANK_OK(coll_broadcast(&value, &value, 1, COLL_FLOAT64, 0, second));
  RANK_OK(coll_broadcast(&value, &value, 1, COLL_FLOAT64, 0, comm));
  if (rank == LATE) {
    int result = come_too_late(comm, other, s);
    coll_comm_destroy(&second);
    coll_comm_destroy(&other);
    return result;
  }
  RANK_CHECK(wait_for_it(comm, second, rank, s) == COLL_ERR_TIMEOUT);
  coll_error error = COLL_ERROR_INIT;
  s->failed_s[rank] = now_s();
  coll_last_error(paired ? second : comm, &error);
  memcpy(s->messages[rank], error.message, sizeof(error.message));
  atomic_fetch_add(&s->failed, 1);
  RANK_CHECK(error.peer == (reversed ? 0 : paired ? 1 : LATE));
  coll_comm_destroy(&second);
  coll_comm_destroy(&other);
  return 0;
}

/* What all messages must say, and when the last operation finished, if the late rank is known to
 * have finished one. */
static void check_messages(const char *transport, const scene *s, const char *const *words,
                           bool its_last) {
  for (int rank = 0; rank < LATE; rank++) {
    const char *message = s->messages[rank], *at = strstr(message, "; its last was ");
    double ago_s = -1;
    for (int i = 0; words[i]; i++)
      cr_expect(strstr(message, words[i]), "%s: rank %d lacks '%s': %s", transport, rank, words[i],
                message);
    if (at && (at = strstr(at, ", finished ")))
      sscanf(at, ", finished %lf s ago", &ago_s);
    if (its_last)
      cr_expect(ago_s >= 0.1 && ago_s <= s->failed_s[rank] - s->begun_s + 0.1,
                "%s: rank %d: %g s, not %g: %s", transport, rank, ago_s,
                s->failed_s[rank] - s->begun_s, message);
  }
}

/* Plays the scene with ranks that are processes. */
static scene *perform(const char *transport, how late, where place) {
  coll_config config = COLL_CONFIG_INIT;
  int results[LATE + 1];
  config.transport = transport;
  config.timeout_ms = slow_ms(TIMEOUT_MS);
  scene *s = shared_memory(sizeof(*s));
  s->late = late;
  s->place = place;
  run_processes(LATE + 1, &config, broadcast_and_wait, s, 40, results);
  for (int rank = 0; rank <= LATE; rank++)
    cr_assert_eq(results[rank], late == STOPPED && rank == LATE ? 124 : 0, "%s: rank %d: %d",
                 transport, rank, results[rank]);
  return s;
}

/* All messages must have all the words. */
static void play(const char *transport, how late, where place, const char *const *words) {
  const bool alone = getenv("TEST_HOSTS") && atoi(getenv("TEST_HOSTS")) > LATE; /* on its host */
  const scene *s = perform(transport, late, place);
  check_messages(transport, s, words, late != STOPPED || !alone);
}

/* The same where what is seen must come over a network within 250 ms: a busy machine may need
 * another try. */
static void play_far(how late, const char *const *words) {
  const scene *s;
  int tries = 0, seen;
  do {
    s = perform("tcp", late, WORLD);
    seen = 0;
    for (int rank = 0; rank < LATE; rank++)
      seen += strstr(s->messages[rank], "; its last was ") != NULL;
  } while (seen < LATE && ++tries < 5);
  check_messages("tcp", s, words, true);
}

#define LACKS ") has not entered allreduce #4 (1 KiB float64 sum) on communicator \"world\"; "
#define LAST  "; its last was broadcast #3 (8 B float64), finished "

/* The late rank polls, so it answers. */
Test(answer, of_the_late_rank, .timeout = 100) {
  const char *const words[] = {"rank 3 (host ", LACKS, "; ranks 0-2 have waited for ", LAST, NULL};
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = slow_ms(TIMEOUT_MS);
  scene *s = shared_memory(sizeof(*s));
  cr_assert_eq(run_threads(LATE + 1, &config, broadcast_and_wait, s), 0);
  check_messages("threads", s, words, true);
  play("tcp", ANSWERS, WORLD, words);
}

/* It does not call libcoll, and ranks of its host see what it does. */
Test(answer, seen_in_its_own_code, .timeout = 100) {
  const char *const computes[] = {
      "rank 3 (host ", LACKS, "ranks 0-2 have waited for ", LAST, "; it runs its own code; ", NULL};
  const char *const sleeps[] = {LACKS, LAST, " its own code", NULL};
  play("shm", COMPUTES, WORLD, computes);
  play("tcp", SLEEPS, WORLD, sleeps);
}

Test(answer, seen_stopped, .timeout = 100) {
  const char *const words[] = {"rank 3 (host ",
                               LACKS,
                               "ranks 0-2 have waited for ",
                               LAST,
                               "; it is stopped by a signal (SIGCONT continues it); ",
                               NULL};
  play("shm", STOPPED, WORLD, words);
  play("tcp", STOPPED, WORLD, words);
}

/* It has begun the operation, but nothing moves it. */
Test(answer, seen_inside, .timeout = 100) {
  const char *const words[] = {") has entered allreduce #4 (8 MiB float64 sum) on communicator "
                               "\"world\", but does not move on in it; ranks 0-2 have waited for ",
                               LAST, NULL};
  play("shm", ENTERS, LONG, words);
}

/* Ranks of other hosts hear of it from one that waits on its host. */
Test(answer, seen_by_one_of_its_host, .timeout = 100) {
  const char *const words[] = {"rank 3 (host ", LACKS, LAST, "; it is stopped by a signal ", NULL};
  setenv("TEST_HOSTS", "2", 1);
  play("tcp", STOPPED, WORLD, words);
}

/* Where it has another rank, and has done other operations. */
Test(answer, seen_on_another_communicator, .timeout = 100) {
  const char *const words[] = {"rank 0 (host ",
                               ") has not entered allreduce #2 (1 KiB float64 sum) on communicator",
                               "; ranks 1-3 have waited for ",
                               "; its last was broadcast #1 (8 B float64), finished ",
                               "; it is stopped by a signal ",
                               NULL};
  setenv("TEST_HOSTS", "2", 1);
  play("tcp", STOPPED, REVERSED, words);
}

/* Others wait for a message of it; or for a rank that does, where they are no members. */
Test(answer, seen_without_collective, .timeout = 100) {
  const char *const message[] = {"rank 3 (host ", ") has not come to, or froze in, recv(",
                                 " on communicator \"world\"" LAST, "; it is stopped by a signal ",
                                 NULL};
  const char *const pair[] = {") has not come to, or froze in, recv(",
                              "; its last was broadcast #1 (8 B float64), finished ",
                              "; it is stopped by a signal ", NULL};
  play("shm", STOPPED, MESSAGE, message);
  setenv("TEST_HOSTS", "2", 1);
  play("tcp", STOPPED, PAIR, pair);
}

/* ---- a short limit --------------------------------------------------------------------------- */

/* Of two hosts with two ranks each. */
typedef struct chain {
  callers in_call;
  char message[640];
} chain;

/* Rank 0 waits for 1, which waits for 3, which is stopped, before any of them has said so. Rank 2,
 * beside it, learns for whom they wait only when rank 0 asks. */
static int wait_in_a_chain(coll_comm *comm, int rank, int nranks, void *arg) {
  chain *c = arg;
  coll_comm *neighbours, *across;
  coll_request *request;
  coll_error error = COLL_ERROR_INIT;
  int value = 1, sum;
  (void)nranks;
  RANK_OK(coll_comm_split(comm, rank / 2, rank, NULL, &neighbours));
  RANK_OK(coll_comm_split(comm, rank % 2, rank, NULL, &across));
  RANK_OK(coll_broadcast(&value, &value, 1, COLL_INT32, 0, across));
  if (rank == 3)
    raise(SIGSTOP);
  if (rank > 0) { /* each for the other one that has its parity */
    enters_call(&c->in_call, rank);
    const coll_status expected = rank == 1 ? COLL_ERR_TIMEOUT : COLL_OK;
    RANK_CHECK(coll_recv(&sum, 1, COLL_INT32, rank == 1, 5, NULL, across) == expected);
  } else {
    RANK_CHECK(WAIT_UNTIL(waits_in_call(&c->in_call, 1) && waits_in_call(&c->in_call, 2), 20));
    RANK_OK(coll_iallreduce(&value, &sum, 1, COLL_INT32, COLL_SUM, neighbours, &request));
    RANK_OK(coll_request_set_timeout(request, 240)); /* they report after 250 ms */
    RANK_CHECK(coll_wait(&request, -1) == COLL_ERR_TIMEOUT);
    coll_last_error(neighbours, &error);
    memcpy(c->message, error.message, sizeof(error.message));
    RANK_OK(coll_send(&value, 1, COLL_INT32, 1, 5, across));
  }
  coll_comm_destroy(&across);
  coll_comm_destroy(&neighbours);
  return 0;
}

/* With so short a limit, a busy machine may need another try. */
Test(answer, seen_by_one_that_is_asked, .timeout = 200) {
  const char *const seen = "; its last was broadcast #1 (4 B int32), finished ";
  coll_config config = COLL_CONFIG_INIT;
  int results[4];
  config.transport = "tcp";
  config.timeout_ms = slow_ms(2 * TIMEOUT_MS);
  chain *c = shared_memory(sizeof(*c));
  setenv("TEST_HOSTS", "2", 1);
  for (int i = 0; i < 5 && !strstr(c->message, seen); i++) {
    memset(&c->in_call, 0, sizeof(c->in_call));
    run_processes(4, &config, wait_in_a_chain, c, 40, results);
    cr_assert(!results[0] && !results[1] && !results[2], "%d %d %d", results[0], results[1],
              results[2]);
  }
  cr_expect(strstr(c->message, seen), "%s", c->message);
  cr_expect(strstr(c->message, "; it is stopped by a signal "), "%s", c->message);
}

/* Nobody of its host is in a call: ranks of other hosts ask its service, which its own thread does
 * not hold up. */
Test(answer, seen_from_another_host, .timeout = 200) {
  const char *const sleeps[] = {"rank 3 (host ", LACKS, "ranks 0-2 have waited for ", LAST,
                                " its own code", NULL};
  const char *const computes[] = {LACKS, LAST, "; it runs its own code; ", NULL};
  setenv("TEST_HOSTS", "4", 1);
  play_far(SLEEPS, sleeps);
  setenv("COLL_TLS", "1", 1);
  play_far(COMPUTES, computes);
}

/* Two hosts with two ranks each. */
typedef struct pairs {
  atomic_int failed;
  char messages[2][640];
} pairs;

/* Ranks 0 and 1 wait for 2, which is stopped; 3, beside it, is in its own code. */
static int wait_for_the_stopped(coll_comm *comm, int rank, int nranks, void *arg) {
  pairs *p = arg;
  coll_error error = COLL_ERROR_INIT;
  int value = 1;
  (void)nranks;
  RANK_OK(coll_broadcast(&value, &value, 1, COLL_INT32, 0, comm));
  if (rank == 2)
    raise(SIGSTOP);
  if (rank >= 2) {
    RANK_CHECK(WAIT_UNTIL(atomic_load(&p->failed) == 2, slow_s(20)));
    return 0;
  }
  RANK_CHECK(coll_recv(&value, 1, COLL_INT32, 2, 5, NULL, comm) == COLL_ERR_TIMEOUT);
  coll_last_error(comm, &error);
  memcpy(p->messages[rank], error.message, sizeof(error.message));
  atomic_fetch_add(&p->failed, 1);
  return 0;
}

/* Its own service is stopped, too; the one of its neighbour answers. */
Test(answer, seen_beside_its_neighbour, .timeout = 200) {
  const char *const seen = "; its last was broadcast #1 (4 B int32), finished ";
  coll_config config = COLL_CONFIG_INIT;
  int results[4];
  config.transport = "tcp";
  config.timeout_ms = slow_ms(TIMEOUT_MS);
  pairs *p = shared_memory(sizeof(*p));
  setenv("TEST_HOSTS", "2", 1);
  for (int i = 0; i < 5 && !(strstr(p->messages[0], seen) && strstr(p->messages[1], seen)); i++) {
    atomic_store(&p->failed, 0);
    run_processes(4, &config, wait_for_the_stopped, p, 40, results);
    cr_assert(!results[0] && !results[1] && !results[3], "%d %d %d", results[0], results[1],
              results[3]);
  }
  for (int rank = 0; rank < 2; rank++) {
    const char *message = p->messages[rank];
    cr_expect(strstr(message, seen), "%s", message);
    cr_expect(strstr(message, "; it is stopped by a signal "), "%s", message);
  }
}

/* No service answers, since all of its process is stopped: the others say what they know. */
Test(answer, missing, .timeout = 100) {
  const char *const words[] = {") has not entered allreduce #4 (1 KiB float64 sum) on communicator "
                               "\"world\", or is frozen, or "
                               "cannot be reached: it does not answer; ranks 0-2 have waited for ",
                               "'s last was broadcast #3 (8 B float64), finished ", NULL};
  setenv("TEST_HOSTS", "4", 1);
  play("tcp", STOPPED, WORLD, words);
}
