/* test_split_failures.c: a failure revokes the affected communicators, and no others. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "extent.h"
#include "libcoll/base/prng.h"
#include "support_family.h"
#include "support_ranks.h"
#include "waits.h"

/* Mismatched calls are noticed by all, and revoke only the parent. */
static int disagree(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  coll_comm *parent = NULL, *child = NULL;
  coll_error error = COLL_ERROR_INIT;
  int list[2] = {0, 1};
  RANK_OK(coll_comm_dup(comm, NULL, &parent));
  if (rank == nranks - 1)
    RANK_CHECK(coll_comm_dup(parent, NULL, &child) == COLL_ERR_MISMATCH);
  else
    RANK_CHECK(coll_comm_split(parent, 0, 0, NULL, &child) == COLL_ERR_MISMATCH);
  RANK_CHECK(child == NULL);
  RANK_CHECK(coll_last_error(parent, &error) == COLL_OK && error.status == COLL_ERR_MISMATCH);
  RANK_CHECK(strstr(error.message, "coll_comm_dup") && strstr(error.message, "coll_comm_split"));
  RANK_CHECK(coll_comm_dup(parent, NULL, &child) == COLL_ERR_MISMATCH);
  coll_comm_destroy(&parent);
  RANK_OK(coll_comm_dup(comm, NULL, &parent));
  list[1] = rank == 0 ? 2 : 1;
  RANK_CHECK(coll_comm_subset(parent, list, 2, NULL, &child) == COLL_ERR_MISMATCH);
  RANK_CHECK(coll_last_error(parent, &error) == COLL_OK && strstr(error.message, "lists"));
  coll_comm_destroy(&parent);
  return family_exercise(comm, 100, 1);
}

Test(split_failures, disagree, .timeout = 60) {
  cr_assert_eq(run_threads(3, NULL, disagree, NULL), 0);
  cr_assert_eq(run_processes(4, NULL, disagree, NULL, 30, NULL), 0);
}

/* Rank 0's communicator, which is aborted when all wait in it but the last. */
typedef struct aborter {
  coll_comm *comm;
  int nranks;
  callers *in_call;
} aborter;

static void *abort_waiting(void *arg) {
  const aborter *a = arg;
  WAIT_UNTIL(all_wait_in_call(a->in_call, a->nranks, a->nranks - 1), 20);
  coll_comm_abort(a->comm);
  return NULL;
}

/* An abort from another thread ends one communicator on all its ranks; its siblings still work. */
static int aborted(coll_comm *comm, int rank, int nranks, void *arg) {
  callers *in_call = arg;
  coll_comm *child = NULL, *sibling = NULL;
  coll_error error = COLL_ERROR_INIT;
  pthread_t thread;
  RANK_OK(coll_comm_split(comm, 0, -rank, NULL, &child));
  RANK_OK(coll_comm_dup(child, NULL, &sibling));
  aborter a = {child, nranks, in_call};
  if (rank == 0 && pthread_create(&thread, NULL, abort_waiting, &a) != 0)
    return 2;
  enters_call(in_call, rank);
  if (rank < nranks - 1) /* the last one does not come */
    RANK_CHECK(coll_barrier(child) == COLL_ERR_ABORTED);
  if (rank == 0)
    pthread_join(thread, NULL);
  RANK_CHECK(family_exercise(sibling, 100, 1) == 0);
  RANK_CHECK(family_exercise(comm, 100, 2) == 0);
  RANK_CHECK(coll_barrier(child) == COLL_ERR_ABORTED);
  RANK_CHECK(coll_last_error(child, &error) == COLL_OK);
  RANK_CHECK(error.peer == nranks - 1 && strstr(error.message, "coll_comm_abort"));
  coll_comm_destroy(&child);
  coll_comm_destroy(&sibling);
  return 0;
}

Test(split_failures, aborted, .timeout = 60) {
  cr_assert_eq(run_threads(3, NULL, aborted, shared_memory(sizeof(callers))), 0);
  cr_assert_eq(run_processes(4, NULL, aborted, shared_memory(sizeof(callers)), 30, NULL), 0);
}

/* Mismatched calls on a child revoke the child. */
static int mismatched(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  coll_comm *child = NULL, *sibling = NULL;
  coll_error error = COLL_ERROR_INIT;
  int in = 1, out = 0;
  RANK_OK(coll_comm_split(comm, 0, -rank, NULL, &child));
  RANK_OK(coll_comm_dup(comm, NULL, &sibling));
  coll_status status = rank == 1 ? coll_broadcast(&in, &out, 1, COLL_INT32, 0, child)
                                 : coll_allreduce(&in, &out, 1, COLL_INT32, COLL_SUM, child);
  if (status == COLL_OK) /* the root of a broadcast may finish before it hears from the others */
    status = coll_barrier(child);
  RANK_CHECK(status == COLL_ERR_MISMATCH);
  RANK_CHECK(coll_last_error(child, &error) == COLL_OK);
  RANK_CHECK(strstr(error.message, "broadcast(") && strstr(error.message, "allreduce("));
  RANK_CHECK(family_exercise(sibling, 3000, 1) == 0);
  RANK_CHECK(family_exercise(comm, 3000, 2) == 0);
  coll_comm_destroy(&child);
  coll_comm_destroy(&sibling);
  return 0;
}

Test(split_failures, mismatched, .timeout = 60) {
  cr_assert_eq(run_threads(4, NULL, mismatched, NULL), 0);
  cr_assert_eq(run_processes(3, NULL, mismatched, NULL, 30, NULL), 0);
}

/* A rank that has destroyed its child is lost there, and only there. */
static int left(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  coll_comm *child = NULL, *sibling = NULL;
  coll_error error = COLL_ERROR_INIT;
  int value = 7;
  RANK_OK(coll_comm_split(comm, 0, -rank, NULL, &child));
  RANK_OK(coll_comm_dup(comm, NULL, &sibling));
  RANK_CHECK(family_exercise(child, 10, 1) == 0);
  if (rank == 0) {
    coll_comm_destroy(&child);
  } else {
    RANK_CHECK(coll_allreduce(&value, &value, 1, COLL_INT32, COLL_SUM, child) ==
               COLL_ERR_PEER_LOST);
    RANK_CHECK(coll_last_error(child, &error) == COLL_OK);
    RANK_CHECK(error.peer == nranks - 1);
  }
  RANK_CHECK(family_exercise(sibling, 100, 2) == 0);
  RANK_CHECK(family_exercise(comm, 100, 3) == 0);
  coll_comm_destroy(&child);
  coll_comm_destroy(&sibling);
  return 0;
}

Test(split_failures, left, .timeout = 60) {
  cr_assert_eq(run_threads(3, NULL, left, NULL), 0);
  cr_assert_eq(run_processes(3, NULL, left, NULL, 30, NULL), 0);
}

/* A rank destroys its communicator before it has sent anything on it: a rank that waits for it gets
 * an error. */
static int left_at_once(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  coll_comm *child = NULL;
  coll_error error = COLL_ERROR_INIT;
  int value = 7;
  RANK_OK(coll_comm_split(comm, 0, -rank, NULL, &child));
  if (rank == 0) {
    coll_comm_destroy(&child);
  } else {
    RANK_CHECK(coll_allreduce(&value, &value, 1, COLL_INT32, COLL_SUM, child) ==
               COLL_ERR_PEER_LOST);
    RANK_CHECK(coll_last_error(child, &error) == COLL_OK);
    RANK_CHECK(error.peer == nranks - 1 && strstr(error.message, "ended its communicator"));
  }
  RANK_CHECK(family_exercise(comm, 100, 3) == 0);
  coll_comm_destroy(&child);
  return 0;
}

Test(split_failures, left_at_once, .timeout = 60) {
  cr_assert_eq(run_threads(3, NULL, left_at_once, NULL), 0);
  cr_assert_eq(run_processes(3, NULL, left_at_once, NULL, 30, NULL), 0);
}

/* Waits until `comm` fails, and checks whom it blames. */
static int wait_for_loss(coll_comm *comm, int rank, int dead) {
  coll_status status = COLL_OK;
  coll_error error = COLL_ERROR_INIT;
  double until = now_s() + slow_s(20);
  while (status == COLL_OK && now_s() < until)
    status = coll_barrier(comm);
  RANK_CHECK(status == COLL_ERR_PEER_LOST);
  RANK_CHECK(coll_last_error(comm, &error) == COLL_OK);
  RANK_CHECK(error.peer == dead);
  return 0;
}

/* The last rank is killed: its communicators fail on every rank, even without a call on them; the
 * others still work. */
static int killed(coll_comm *comm, int rank, int nranks, void *arg) {
  atomic_int *beyond = arg;
  int last = nranks - 1;
  coll_comm *with = NULL, *without = NULL, *sub = NULL, *idle = NULL;
  RANK_OK(coll_comm_split(comm, rank % 2 == last % 2, -rank, NULL, &with));
  RANK_OK(coll_comm_split(comm, rank == last ? COLL_NO_COLOR : 0, 0, NULL, &without));
  RANK_OK(coll_comm_dup(with, NULL, &idle));
  RANK_CHECK(family_exercise(with, 100, 1) == 0);
  RANK_OK(coll_barrier(comm));
  atomic_fetch_add(beyond, 1);
  if (rank == last) { /* while the others are in what comes next */
    WAIT_UNTIL(atomic_load(beyond) == nranks, 20);
    raise(SIGKILL);
  }
  RANK_CHECK(family_exercise(without, 1000, 2) == 0);
  RANK_OK(coll_comm_split(without, rank % 2, 0, NULL, &sub));
  RANK_CHECK(wait_for_loss(comm, rank, last) == 0);
  RANK_OK(coll_barrier(without)); /* now everybody knows */
  if (rank % 2 == last % 2) {
    RANK_CHECK(wait_for_loss(with, rank, 0) == 0);
    RANK_CHECK(coll_ibarrier(idle, &(coll_request *){NULL}) == COLL_ERR_PEER_LOST);
  } else {
    RANK_CHECK(family_exercise(with, 1000, 3) == 0);
    RANK_CHECK(family_exercise(idle, 1000, 4) == 0);
  }
  RANK_CHECK(family_exercise(without, 5000, 5) == 0);
  RANK_CHECK(family_exercise(sub, 5000, 6) == 0);
  coll_comm_destroy(&with);
  coll_comm_destroy(&without);
  coll_comm_destroy(&sub);
  coll_comm_destroy(&idle);
  return 0;
}

Test(split_failures, killed, .timeout = 100) {
  const char *transports[] = {"shm", "tcp"};
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    int results[6];
    config.transport = transports[t];
    run_processes(6, &config, killed, shared_memory(sizeof(atomic_int)), 40, results);
    for (int r = 0; r < 5; r++)
      cr_assert_eq(results[r], 0, "%s: rank %d: %d", transports[t], r, results[r]);
    cr_assert_eq(results[5], 128 + SIGKILL);
  }
}

/* ---- random communicators, and a rank that is struck ----------------------------------------- */

#define STRUCK_RANKS 7
#define STRUCK_COMMS 5
#define STRUCK_STEPS 60

/* What a rank does after its first error. */
typedef enum manner { STOP, LEAVE, GO_ON, MANNERS } manner;

typedef struct struck_scene {
  uint64_t seed;
  int signal; /* SIGKILL or SIGSTOP */
  int victim;
  int at; /* the step in which it is struck */
  atomic_int pids[STRUCK_RANKS];
  atomic_int step; /* of the victim */
  atomic_int over; /* survivors that make no more calls */
  atomic_int errors;
} struck_scene;

/* The communicators of a rank: the first is the given one, the others are split from earlier ones.
 */
static int make_comms(const struck_scene *s, coll_comm *comm, int rank, coll_comm **comms) {
  colli_prng prng = {s->seed};
  comms[0] = comm;
  for (int n = 1; n < STRUCK_COMMS; n++) {
    coll_comm *parent = comms[colli_prng_below(&prng, (uint64_t)n)];
    int color = 0;
    for (int r = 0; r < STRUCK_RANKS; r++) {
      int drawn = (int)colli_prng_below(&prng, 3) - 1;
      color = r == rank ? drawn : color;
    }
    comms[n] = NULL;
    if (parent)
      RANK_OK(coll_comm_split(parent, color, 0, NULL, &comms[n]));
  }
  return 0;
}

/* Step `i` of every rank that is in its communicator. */
static coll_status struck_step(const struck_scene *s, coll_comm **comms, int i, int *node) {
  colli_prng prng = {s->seed * 1000 + (uint64_t)i};
  int in[300] = {0}, out[300], rank, nranks;
  *node = (int)colli_prng_below(&prng, STRUCK_COMMS);
  const int kind = (int)colli_prng_below(&prng, 4), root = (int)colli_prng_below(&prng, 64);
  const size_t count = colli_prng_below(&prng, 300);
  coll_comm *comm = comms[*node];
  if (!comm)
    return COLL_OK;
  coll_comm_rank(comm, &rank);
  coll_comm_nranks(comm, &nranks);
  switch (kind) {
  case 0:
    return coll_barrier(comm);
  case 1:
    return coll_broadcast(in, in, count, COLL_INT32, root % nranks, comm);
  case 2:
    return coll_sendrecv(in, count, (rank + 1) % nranks, 0, out, count,
                         (rank + nranks - 1) % nranks, 0, COLL_INT32, NULL, comm);
  default:
    return coll_allreduce(in, out, count, COLL_INT32, COLL_SUM, comm);
  }
}

/* Whether the error of a communicator names the victim. */
static int names_victim(struck_scene *s, const coll_comm *comm, int rank) {
  coll_error error = COLL_ERROR_INIT;
  int nranks, origin, peer = -1;
  coll_last_error(comm, &error);
  coll_comm_nranks(comm, &nranks);
  for (int r = 0; r < nranks; r++)
    if (coll_comm_origin_rank(comm, r, &origin) == COLL_OK && origin == s->victim)
      peer = r;
  atomic_fetch_add(&s->errors, 1);
  if (error.status == (s->signal == SIGKILL ? COLL_ERR_PEER_LOST : COLL_ERR_TIMEOUT) &&
      error.peer == peer && error.peer_pid == atomic_load(&s->pids[s->victim]))
    return 0;
  fprintf(stderr, "seed %llu: %s: rank %d, where the victim is %d (pid %d): %s: peer %d: %s\n",
          (unsigned long long)s->seed, s->signal == SIGKILL ? "kill" : "freeze", rank, peer,
          atomic_load(&s->pids[s->victim]), coll_status_name(error.status), error.peer,
          error.message);
  return 1;
}

static void *strike(void *arg) {
  struck_scene *s = arg;
  WAIT_UNTIL(atomic_load(&s->step) >= s->at, 20);
  kill(getpid(), s->signal);
  return NULL;
}

/* One rank of the scene. */
static int struck_rank(coll_comm *comm, int rank, int nranks, void *arg) {
  struck_scene *s = arg;
  coll_comm *comms[STRUCK_COMMS];
  pthread_t thread;
  bool failed[STRUCK_COMMS] = {false};
  int wrong = 0, node;
  const manner how = (manner)((s->seed * 7 + (uint64_t)rank * 5) / 3 % MANNERS);
  atomic_store(&s->pids[rank], getpid());
  RANK_CHECK(make_comms(s, comm, rank, comms) == 0);
  RANK_OK(coll_barrier(comm)); /* all pids are known */
  if (rank == s->victim && pthread_create(&thread, NULL, strike, s) != 0)
    return 2;
  for (int i = 0; rank == s->victim || i < STRUCK_STEPS; i++) {
    if (rank == s->victim)
      atomic_store(&s->step, i);
    if (struck_step(s, comms, i % STRUCK_STEPS, &node) == COLL_OK || failed[node])
      continue;
    failed[node] = true;
    wrong |= names_victim(s, comms[node], rank);
    if (how != GO_ON)
      break;
  }
  atomic_fetch_add(&s->over, 1);
  if (how == STOP) /* in no call */
    (void)WAIT_UNTIL(atomic_load(&s->over) == nranks - 1, slow_s(20));
  for (int n = 1; n < STRUCK_COMMS; n++)
    coll_comm_destroy(&comms[n]);
  return wrong;
}

/* Runs scenes with the seeds first .. first + count - 1; returns how many went wrong. */
static int strike_ranks(int signal, uint64_t first, int count) {
  const char *transports[] = {"shm", "tcp"};
  int wrong = 0, errors = 0;
  for (uint64_t seed = first; seed < first + (uint64_t)count; seed++) {
    colli_prng prng = {seed * 31};
    coll_config config = COLL_CONFIG_INIT;
    int results[STRUCK_RANKS];
    struck_scene *s = shared_memory(sizeof(*s));
    s->seed = seed;
    s->signal = signal;
    s->victim = (int)colli_prng_below(&prng, STRUCK_RANKS);
    s->at = (int)colli_prng_below(&prng, STRUCK_STEPS / 2);
    config.transport = transports[seed % 2];
    config.timeout_ms = slow_ms(1000);
    run_processes(STRUCK_RANKS, &config, struck_rank, s, 40, results);
    bool bad = false;
    for (int r = 0; r < STRUCK_RANKS; r++)
      bad |= r != s->victim && results[r] != 0;
    wrong += bad;
    errors += atomic_load(&s->errors);
  }
  cr_expect_gt(errors, count);
  return wrong;
}

Test(split_failures, struck_killed, .timeout = 600) {
  cr_assert_eq(strike_ranks(SIGKILL, 1, extent(5, 12, 5)), 0);
}

Test(split_failures, struck_frozen, .timeout = 600) {
  cr_assert_eq(strike_ranks(SIGSTOP, 1, extent(2, 12, 2)), 0);
}
