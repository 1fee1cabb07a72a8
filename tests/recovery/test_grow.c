/*
 * test_grow.c: coll_comm_grow and coll_comm_join: processes join a communicator that is in use,
 * whoever dies meanwhile.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "extent.h"
#include "tests/proc/support_ranks.h"
#include "tests/proc/support_shrink.h"
#include "waits.h"

enum { EPOCHS = 8 };

/* What the processes of a run share. Members are 0, 1, ..., and newcomers come behind them. */
typedef struct scene {
  int members, newcomers;
  int victim;  /* who dies; NOBODY */
  int dies_at; /* with which send() or recv() in coll_comm_grow() or coll_comm_join(); 0: before */
  int shrinks; /* who first calls coll_comm_shrink() instead; NOBODY */
  coll_id id;
  atomic_int open;    /* `id` is there */
  atomic_int created; /* members that have their first communicator */
  atomic_int died;
  pid_t pid; /* of the last newcomer */
  /* By whom, and epoch: the communicator that it got, as a number; and the last epoch. */
  uint64_t got[EPOCHS][MOST];
  int last[MOST];
  int joined[MOST];
  coll_status status;
  coll_error error;
} scene;

static scene *make_scene(int members, int newcomers) {
  scene *s = shared_memory(sizeof(*s));
  s->members = members;
  s->newcomers = newcomers;
  s->victim = s->shrinks = NOBODY;
  return s;
}

/* ---- death at a certain call ----------------------------------------------------------------- */

ssize_t __real_send(int fd, const void *buf, size_t bytes, int flags);
ssize_t __real_recv(int fd, void *buf, size_t bytes, int flags);
ssize_t __wrap_send(int fd, const void *buf, size_t bytes, int flags);
ssize_t __wrap_recv(int fd, void *buf, size_t bytes, int flags);

static struct {
  scene *scene; /* NULL: this process lives on */
  atomic_int calls_left;
} fate;

static void die(scene *s) {
  atomic_store(&s->died, 1);
  kill(getpid(), SIGKILL);
}

static void come_closer(void) {
  if (fate.scene && atomic_fetch_sub(&fate.calls_left, 1) == 1)
    die(fate.scene);
}

ssize_t __wrap_send(int fd, const void *buf, size_t bytes, int flags) {
  come_closer();
  return __real_send(fd, buf, bytes, flags);
}

ssize_t __wrap_recv(int fd, void *buf, size_t bytes, int flags) {
  come_closer();
  return __real_recv(fd, buf, bytes, flags);
}

/* From now on the victim may die. */
static void tempt_fate(scene *s, int who) {
  if (who == s->victim && fate.calls_left == 0)
    atomic_store(&fate.calls_left, s->dies_at);
  fate.scene = who == s->victim ? s : NULL;
}

/* ---- what members and newcomers do ----------------------------------------------------------- */

/* Notes which communicator this is: all who have it note the same. */
static void note(scene *s, const coll_comm *comm, int who) {
  int nranks, origin;
  uint64_t epoch, list = 1;
  coll_comm_nranks(comm, &nranks);
  coll_comm_epoch(comm, &epoch);
  for (int r = 0; r < nranks; r++) {
    coll_comm_origin_rank(comm, r, &origin);
    list = list * 31 + (uint64_t)origin + 1;
  }
  s->got[epoch % EPOCHS][who] = list;
  s->last[who] = (int)epoch;
}

/* Whether all live processes are in; rank 0 decides, after waiting for those that want to join. */
static coll_status all_in(scene *s, coll_comm *comm, int *yes) {
  int rank, nranks, count = 0;
  coll_comm_rank(comm, &rank);
  coll_comm_nranks(comm, &nranks);
  int want = s->members + s->newcomers;
  if (rank == 0) {
    /* If rank 0 dies, newcomers that are not in yet may be lost. */
    bool closed = s->victim == 0 && atomic_load(&s->died);
    (void)WAIT_UNTIL(closed || nranks >= want - atomic_load(&s->died) ||
                         coll_comm_joiners(comm, &count) != COLL_OK || count > 0,
                     20);
    *yes = closed || nranks >= want - atomic_load(&s->died);
  }
  return coll_broadcast(yes, yes, 1, COLL_INT32, 0, comm);
}

/* Grows and uses a communicator until all live processes are in it. */
static int go_through(scene *s, coll_comm *comm, int who) {
  int rank = who, origin, mask, yes = 0;
  bool right, own = who >= s->members, shrinks = s->shrinks == who;
  while (!yes) {
    coll_comm *next = NULL;
    coll_comm_rank(comm, &rank);
    RANK_OK(coll_comm_origin_rank(comm, rank, &origin));
    coll_status status = go_on(comm, origin, &mask, &right);
    RANK_CHECK(status != COLL_OK || right);
    if (status == COLL_OK)
      status = all_in(s, comm, &yes);
    RANK_CHECK(status == COLL_OK || status == COLL_ERR_PEER_LOST);
    if (status == COLL_OK && yes)
      break;
    yes = 0;
    tempt_fate(s, who);
    RANK_OK((shrinks ? coll_comm_shrink : coll_comm_grow)(comm, NULL, &next));
    fate.scene = NULL;
    shrinks = false;
    if (own)
      coll_comm_destroy(&comm);
    own = true;
    comm = next;
    note(s, comm, who);
  }
  RANK_OK(coll_barrier(comm)); /* nobody leaves while others still work */
  if (own)
    coll_comm_destroy(&comm);
  return 0;
}

static int member(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  (void)nranks;
  if (rank == 0) {
    RANK_OK(coll_comm_join_id(comm, &s->id));
    atomic_store(&s->open, 1);
  }
  atomic_fetch_add(&s->created, 1);
  if (rank == s->victim && s->dies_at == 0) {
    RANK_CHECK(WAIT_UNTIL(atomic_load(&s->created) == s->members, 30));
    die(s);
  }
  return go_through(s, comm, rank);
}

/* A newcomer's process, as it ends. */
static int newcomer(scene *s, int who) {
  const int rank = who;
  coll_comm *comm;
  coll_config config = COLL_CONFIG_INIT;
  coll_error error = COLL_ERROR_INIT;
  config.error = &error;
  config.create_timeout_ms = slow_ms(15000);
  RANK_CHECK(WAIT_UNTIL(atomic_load(&s->open), 30));
  tempt_fate(s, who);
  coll_status status = coll_comm_join(&comm, &s->id, &config);
  fate.scene = NULL;
  if (status != COLL_OK && s->victim == 0 && atomic_load(&s->died))
    return 0; /* rank 0 has died, and its entrance with it */
  if (status != COLL_OK)
    fprintf(stderr, "newcomer %d: %s: %s\n", who, coll_status_name(status), error.message);
  RANK_CHECK(status == COLL_OK);
  s->joined[who] = 1;
  note(s, comm, who);
  return go_through(s, comm, who);
}

/* All who got a communicator of the same epoch got the same one. */
static void check_lists(const scene *s) {
  const int all = s->members + s->newcomers;
  for (int e = 0; e < EPOCHS; e++) {
    uint64_t list = 0;
    for (int i = 0; i < all; i++) {
      cr_expect(!list || !s->got[e][i] || s->got[e][i] == list, "epoch %d: two communicators", e);
      list = s->got[e][i] ? s->got[e][i] : list;
    }
  }
}

/* The victim dies, if it gets that far, and all others end up together. Whether it died. */
static bool play(scene *s) {
  pid_t pids[MOST];
  int results[MOST], status, last = -1;
  coll_config config = COLL_CONFIG_INIT;
  config.create_timeout_ms = slow_ms(10000);
  config.timeout_ms = slow_ms(10000);
  for (int i = 0; i < s->newcomers; i++)
    if ((pids[i] = fork()) == 0)
      _exit(newcomer(s, s->members + i));
  run_processes(s->members, &config, member, s, 60, results);
  for (int i = 0; i < s->newcomers; i++) {
    cr_assert_eq(waitpid(pids[i], &status, 0), pids[i]);
    results[s->members + i] = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  const bool died = atomic_load(&s->died);
  for (int i = 0; i < s->members + s->newcomers; i++) {
    bool dead = died && i == s->victim;
    cr_expect_eq(results[i], dead ? 128 + SIGKILL : 0, "%d ended with %d; %d dies at call %d", i,
                 results[i], s->victim, s->dies_at);
    bool out = dead || (i >= s->members && !s->joined[i]);
    cr_expect(!out || dead || (died && s->victim == 0), "%d did not join", i);
    cr_expect(out || last < 0 || s->last[i] == last, "%d ended in epoch %d, not %d", i, s->last[i],
              last);
    last = out ? last : s->last[i];
  }
  check_lists(s);
  return died;
}

Test(grow, newcomers_join, .timeout = 120) {
  play(make_scene(1, 1));
  play(make_scene(1, 3));
  play(make_scene(3, 0));
  play(make_scene(3, 1));
  play(make_scene(2, 3));
}

/* A member is dead already; whether the others shrink or grow is the same to them. */
Test(grow, instead_of_a_dead_rank, .timeout = 120) {
  for (int who = 0; who < 3; who++) {
    scene *s = make_scene(3, 1);
    s->victim = 1;
    s->shrinks = who;
    cr_expect(play(s));
  }
}

/* Somebody dies at each call in which it sends or receives while the communicator grows. */
static void die_at_each_call(int members, int newcomers, int victim) {
  const int step = getenv("COLL_TLS") ? extent(9, 1, 9) : extent(3, 1, 9);
  bool died = true;
  int at = 1 + victim; /* of those who are left out, each victim has others */
  for (; died; at += step) {
    scene *s = make_scene(members, newcomers);
    s->victim = victim;
    s->dies_at = at;
    died = play(s);
  }
  cr_expect_gt(at, 15, "%d calls", at);
}

Test(grow, rank_0_dies, .timeout = 600) {
  die_at_each_call(3, 2, 0);
}

Test(grow, rank_0_dies_with_tls, .timeout = 600) {
  setenv("COLL_TLS", "1", 1);
  die_at_each_call(3, 2, 0);
}

Test(grow, member_dies, .timeout = 600) {
  die_at_each_call(3, 2, 1);
  die_at_each_call(3, 1, 2);
}

Test(grow, newcomer_dies, .timeout = 600) {
  die_at_each_call(3, 2, 4);
  die_at_each_call(1, 2, 1);
}

/* ---- afterwards ------------------------------------------------------------------------------ */

/* Loses a rank, shrinks and agrees; newcomers do as members do. */
static int lose_one(coll_comm *comm, const scene *s, int expected) {
  int rank, origin, mask;
  bool right;
  uint64_t word;
  coll_comm *child;
  coll_comm_rank(comm, &rank);
  RANK_OK(coll_comm_origin_rank(comm, rank, &origin));
  RANK_CHECK(go_on(comm, origin, &mask, &right) == COLL_OK && right && mask == expected);
  RANK_OK(coll_barrier(comm));
  /* A rank that has completed one more operation knows that all have passed the barrier. */
  if (origin == s->victim && reduce_for(comm, 100, 1) == COLL_OK)
    kill(getpid(), SIGKILL);
  RANK_CHECK(reduce_for(comm, 100, 1 << 30) == COLL_ERR_PEER_LOST);
  RANK_OK(coll_comm_shrink(comm, NULL, &child));
  RANK_OK(coll_comm_epoch(child, &word));
  RANK_CHECK(word == 2);
  RANK_CHECK(go_on(child, origin, &mask, &right) == COLL_OK && right);
  RANK_CHECK(mask == (expected & ~(1 << s->victim)));
  word = ~(1ull << origin);
  RANK_OK(coll_comm_agree(child, &word, NULL, NULL));
  RANK_CHECK((int)~word == mask);
  RANK_OK(coll_barrier(child));
  coll_comm_destroy(&child);
  return 0;
}

static int grow_and_lose_one(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_comm *bigger;
  int count = 0;
  if (rank == 0) {
    RANK_OK(coll_comm_join_id(comm, &s->id));
    atomic_store(&s->open, 1);
    RANK_CHECK(WAIT_UNTIL(coll_comm_joiners(comm, &count) != COLL_OK || count == s->newcomers, 30));
  }
  RANK_OK(coll_comm_grow(comm, NULL, &bigger));
  int result = lose_one(bigger, s, (1 << (nranks + s->newcomers)) - 1);
  coll_comm_destroy(&bigger);
  return result;
}

static int join_and_lose_one(scene *s) {
  const int rank = -1;
  coll_comm *comm = NULL;
  RANK_CHECK(WAIT_UNTIL(atomic_load(&s->open), 30));
  RANK_OK(coll_comm_join(&comm, &s->id, NULL));
  int result = lose_one(comm, s, (1 << (s->members + s->newcomers)) - 1);
  coll_comm_destroy(&comm);
  return result;
}

/* A grown communicator shrinks as any other, whoever is lost: newcomers can lead, too. */
Test(grow, ranks_die_afterwards, .timeout = 120) {
  for (int victim = 0; victim < 4; victim++) {
    pid_t pids[2];
    int results[MOST], status, killed = 0;
    scene *s = make_scene(2, 2);
    s->victim = victim;
    for (int i = 0; i < 2; i++)
      if ((pids[i] = fork()) == 0)
        _exit(join_and_lose_one(s));
    run_processes(2, NULL, grow_and_lose_one, s, 50, results);
    for (int r = 0; r < 2; r++)
      cr_expect_eq(results[r], r == victim ? 128 + SIGKILL : 0, "member %d: %d", r, results[r]);
    for (int i = 0; i < 2; i++) {
      cr_assert_eq(waitpid(pids[i], &status, 0), pids[i]);
      killed += WIFSIGNALED(status);
      cr_expect(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    }
    cr_expect_eq(killed, victim >= 2);
  }
}

/* ---- newcomers that do not get in ------------------------------------------------------------ */

enum { STAYS, FORGES, LEAVES };

/* Rank 0 has an entrance, but does not grow. */
static int stay(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  int count = 0;
  (void)nranks;
  if (rank == 0) {
    RANK_OK(coll_comm_join_id(comm, &s->id));
    if (s->dies_at == FORGES)
      change_secret(&s->id);
    atomic_store(&s->open, 1);
    RANK_CHECK(WAIT_UNTIL(coll_comm_joiners(comm, &count) != COLL_OK ||
                              (s->dies_at == LEAVES && count == 1) || atomic_load(&s->died),
                          30));
    if (s->dies_at == LEAVES)
      return 0;
    RANK_CHECK(coll_comm_joiners(comm, &count) == COLL_OK && count == 0);
  }
  RANK_CHECK(WAIT_UNTIL(atomic_load(&s->died), 30));
  return 0;
}

/* The only newcomer does not get in. */
static void refuse(int how, coll_status expected, const char *text) {
  int status;
  coll_config config = COLL_CONFIG_INIT;
  scene *s = make_scene(2, 1);
  s->dies_at = how;
  s->error = (coll_error)COLL_ERROR_INIT;
  config.error = &s->error;
  config.create_timeout_ms = slow_ms(1000);
  pid_t pid = fork();
  if (pid == 0) {
    coll_comm *comm;
    bool open = WAIT_UNTIL(atomic_load(&s->open), 30);
    s->status = coll_comm_join(&comm, &s->id, &config);
    atomic_store(&s->died, 1);
    _exit(!open || comm);
  }
  cr_expect_eq(run_processes(2, NULL, stay, s, 50, NULL), 0);
  cr_assert_eq(waitpid(pid, &status, 0), pid);
  cr_expect_eq(status, 0);
  cr_expect_eq(s->status, expected, "%s: %s", coll_status_name(s->status), s->error.message);
  cr_expect(strstr(s->error.message, text), "%s", s->error.message);
}

Test(grow, not_let_in, .timeout = 120) {
  refuse(STAYS, COLL_ERR_TIMEOUT, "coll_comm_grow()");
  refuse(FORGES, COLL_ERR_AUTH, "coll_comm_join_id");
  refuse(LEAVES, COLL_ERR_PEER_LOST, "coll_comm_join_id");
}

/* A newcomer freezes at the entrance. The others grow without it. */
static int grow_with_frozen(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_comm *bigger;
  int mask, size, count = 0;
  bool right;
  if (rank == 0) {
    RANK_OK(coll_comm_join_id(comm, &s->id));
    atomic_store(&s->open, 1);
    RANK_CHECK(WAIT_UNTIL(coll_comm_joiners(comm, &count) != COLL_OK || count == 1, 30));
    kill(s->pid, SIGSTOP);
  }
  double start = now_s();
  RANK_OK(coll_comm_grow(comm, NULL, &bigger));
  RANK_CHECK(now_s() - start < slow_s(8));
  coll_comm_nranks(bigger, &size);
  RANK_CHECK(size == nranks);
  RANK_CHECK(go_on(bigger, rank, &mask, &right) == COLL_OK && right);
  RANK_OK(coll_barrier(bigger));
  coll_comm_destroy(&bigger);
  return 0;
}

Test(grow, newcomer_freezes, .timeout = 60) {
  scene *s = make_scene(3, 1);
  coll_config config = COLL_CONFIG_INIT;
  config.create_timeout_ms = slow_ms(2000);
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    coll_comm *comm;
    (void)WAIT_UNTIL(atomic_load(&s->open), 30);
    coll_comm_join(&comm, &s->id, NULL);
    _exit(0);
  }
  s->pid = pid;
  cr_expect_eq(run_processes(3, &config, grow_with_frozen, s, 40, NULL), 0);
  kill(pid, SIGKILL);
  cr_assert_eq(waitpid(pid, &status, 0), pid);
}

static int ask_in_vain(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_id id;
  coll_comm *child = comm;
  int count = 7;
  (void)nranks;
  const bool threads = *(bool *)arg;
  RANK_CHECK(coll_comm_join_id(comm, NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_comm_joiners(comm, NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_comm_epoch(comm, NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_comm_grow(comm, NULL, NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_comm_joiners(comm, &count) == COLL_OK && count == 0);
  if (rank != 0)
    RANK_CHECK(coll_comm_join_id(comm, &id) == COLL_ERR_INVALID_USAGE);
  else if (threads)
    RANK_CHECK(coll_comm_join_id(comm, &id) == COLL_ERR_UNSUPPORTED);
  if (threads)
    RANK_CHECK(coll_comm_grow(comm, NULL, &child) == COLL_ERR_UNSUPPORTED && !child);
  return 0;
}

Test(grow, bad_arguments, .timeout = 60) {
  bool threads = true;
  coll_comm *comm;
  coll_id id = {{0}};
  cr_expect_eq(run_threads(2, NULL, ask_in_vain, &threads), 0);
  threads = false;
  cr_expect_eq(run_processes(2, NULL, ask_in_vain, &threads, 20, NULL), 0);
  cr_expect_eq(coll_comm_join(NULL, &id, NULL), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(coll_comm_join(&comm, NULL, NULL), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(coll_comm_join(&comm, &id, NULL), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_null(comm);
  cr_expect_eq(coll_comm_grow(NULL, NULL, &comm), COLL_ERR_INVALID_ARGUMENT);
}
