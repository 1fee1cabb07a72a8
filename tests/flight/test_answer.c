/*
 * test_answer.c: a deadline passes because one rank has not made a call. The message of all others
 * says what it has not entered, who has waited for how long, and what that rank did last: by its
 * own answer if it calls libcoll at all, else as far as the others know.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/proc/support_ranks.h"
#include "waits.h"

#define LATE 3

typedef struct scene {
  bool answers; /* the late rank polls a request of its own meanwhile */
  atomic_int failed;
  char messages[LATE][640];
} scene;

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

/* The late rank computes, or is busy on another communicator, until all others have failed. */
static int come_too_late(coll_comm *other, const scene *s) {
  const int rank = LATE;
  const double until = now_s() + slow_s(20);
  while (s->answers && atomic_load(&s->failed) == 0 && now_s() < until)
    RANK_CHECK(talk_to_itself(other, s) == 0);
  RANK_CHECK(WAIT_UNTIL(atomic_load(&s->failed) == LATE, slow_s(20)));
  return 0;
}

/* A broadcast of all ranks, and then an all-reduce without the late rank. */
static int broadcast_and_reduce(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  double value = 1, sums[128] = {0};
  coll_comm *other;
  (void)nranks;
  RANK_OK(coll_comm_dup(comm, NULL, &other));
  RANK_OK(coll_broadcast(&value, &value, 1, COLL_FLOAT64, 0, comm));
  if (rank == LATE) {
    int result = come_too_late(other, s);
    coll_comm_destroy(&other);
    return result;
  }
  RANK_CHECK(coll_allreduce(sums, sums, 128, COLL_FLOAT64, COLL_SUM, comm) == COLL_ERR_TIMEOUT);
  coll_error error = COLL_ERROR_INIT;
  coll_last_error(comm, &error);
  memcpy(s->messages[rank], error.message, sizeof(error.message));
  atomic_fetch_add(&s->failed, 1);
  RANK_CHECK(error.peer == LATE && error.sequence == 3);
  coll_comm_destroy(&other);
  return 0;
}

/* Runs the scene; all ranks' messages must have all the words. */
static void play(const char *transport, bool processes, bool answers, const char *const *words) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = transport;
  config.timeout_ms = slow_ms(1500);
  scene *s = shared_memory(sizeof(*s));
  s->answers = answers;
  int result = processes ? run_processes(LATE + 1, &config, broadcast_and_reduce, s, 20, NULL)
                         : run_threads(LATE + 1, &config, broadcast_and_reduce, s);
  cr_assert_eq(result, 0, "%s: %d", transport, result);
  for (int rank = 0; rank < LATE; rank++)
    for (int i = 0; words[i]; i++)
      cr_expect(strstr(s->messages[rank], words[i]), "%s: rank %d lacks '%s': %s", transport, rank,
                words[i], s->messages[rank]);
}

/* The late rank polls, so it answers. */
Test(answer, of_the_late_rank, .timeout = 100) {
  const char *const words[] = {
      "rank 3 (host ",
      ") has not entered allreduce #3 (1 KiB float64 sum) on communicator \"world\"; ",
      "; ranks 0-2 have waited for ", "; its last was broadcast #2 (8 B float64), finished ", NULL};
  play("shm", false, true, words);
  play("tcp", true, true, words);
}

/* It computes, and cannot answer: the others say what they know. (In their process, they would
 * answer for it.) */
Test(answer, missing, .timeout = 100) {
  const char *const words[] = {") has not entered allreduce #3 (1 KiB float64 sum) on communicator "
                               "\"world\", or is frozen, or "
                               "cannot be reached: it does not answer; ranks 0-2 have waited for ",
                               "'s last was broadcast #2 (8 B float64), finished ", NULL};
  play("shm", true, false, words);
  play("tcp", true, false, words);
}
