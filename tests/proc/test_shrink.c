/*
 * test_shrink.c: revoke and shrink: after a rank died, froze or gave up, the survivors agree on who
 * is left and continue.
 */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcoll/base/prng.h"
#include "libcoll/comm/comm.h"
#include "libcoll/comm/inspect.h"
#include "libcoll/net/sockets.h"
#include "support_ranks.h"
#include "support_shrink.h"
#include "waits.h"

/* One run, and what each rank saw. */
typedef struct scene {
  int early[2]; /* ranks that kill themselves in the middle of all-reduces */
  int late;     /* a rank that kills itself while it shrinks */
  int late_delay_us;
  volatile pid_t frozen_pid;
  volatile pid_t pids[MOST];
  volatile int done; /* ranks that have continued */
  int survivors;     /* so many ranks will */
  coll_status first[MOST], shrunk[MOST];
  int mask[MOST]; /* of the ranks that continued with this one */
  int shrinks[MOST];
  double seconds[MOST];
  char message[MOST][640];
} scene;

static scene *make_scene(int early0, int early1, int late, int late_delay_us) {
  scene *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  memset(s, 0, sizeof(*s));
  s->early[0] = early0;
  s->early[1] = early1;
  s->late = late;
  s->late_delay_us = late_delay_us;
  return s;
}

/* When this process dies, and which one dies with it. */
typedef struct end {
  int delay_us;
  pid_t other;
} end;

static void *die_soon(void *arg) {
  end *e = arg;
  be_late(e->delay_us / 1e3);
  if (e->other)
    kill(e->other, SIGKILL);
  kill(getpid(), SIGKILL);
  return NULL;
}

/* Starts the death of this process, and of another one (0: none). */
static void begin_to_die(int delay_us, pid_t other) {
  static end e;
  pthread_t thread;
  e = (end){delay_us, other};
  if (pthread_create(&thread, NULL, die_soon, &e) != 0)
    abort();
  pthread_detach(thread);
}

/* Shrinks until a communicator works: a rank may die after all have agreed. */
static int shrink_until_sound(coll_comm *comm, int rank, scene *s) {
  coll_comm *old = NULL, *child = NULL;
  coll_config config = COLL_CONFIG_INIT;
  coll_error error = COLL_ERROR_INIT;
  config.error = &error;
  bool right = false;
  double start = now_s();
  for (int i = 0; i < 4; i++) {
    s->shrunk[rank] = coll_comm_shrink(old ? old : comm, &config, &child);
    s->shrinks[rank]++;
    coll_comm_destroy(&old);
    snprintf(s->message[rank], sizeof(s->message[rank]), "%s", error.message);
    RANK_CHECK((s->shrunk[rank] == COLL_OK) == (child != NULL));
    if (!child)
      break;
    coll_status status = go_on(child, rank, &s->mask[rank], &right);
    old = child;
    child = NULL;
    if (status == COLL_OK) {
      RANK_CHECK(right);
      if (s->late == NOBODY || !(s->mask[rank] & 1 << s->late))
        break;
      status = reduce_for(old, 5000, 1 << 30); /* it will still die */
    }
    RANK_CHECK(status == COLL_ERR_PEER_LOST);
  }
  s->seconds[rank] = now_s() - start;
  /* Where several deaths hold ranks up, stays until all have continued: a busy machine may hold one
   * up for longer than it waits for a rank that has left. */
  __atomic_add_fetch(&s->done, 1, __ATOMIC_SEQ_CST);
  if (s->late != NOBODY)
    (void)WAIT_UNTIL(__atomic_load_n(&s->done, __ATOMIC_SEQ_CST) == s->survivors, 10);
  coll_comm_destroy(&old);
  return 0;
}

static int lose_and_shrink(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  scene *s = arg;
  s->pids[rank] = getpid();
  RANK_OK(coll_barrier(comm));
  /* A rank that has completed one more operation knows that all have passed the barrier. */
  if (rank == s->early[0] && reduce_for(comm, 5000, 1) == COLL_OK)
    begin_to_die(20000, s->early[1] == NOBODY ? 0 : s->pids[s->early[1]]);
  bool lossless = s->early[0] == NOBODY && s->early[1] == NOBODY;
  s->first[rank] = reduce_for(comm, 5000, lossless ? 5 : 1 << 30);
  if (rank == s->late)
    begin_to_die(s->late_delay_us, 0);
  return shrink_until_sound(comm, rank, s);
}

/* Runs a scene over one transport and checks that all survivors continued together. */
static void play(scene *s, int nranks, const char *transport, const char *what) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = transport;
  config.timeout_ms = 20000;
  config.create_timeout_ms = slow_ms(10000);
  int results[MOST], survivors = 0;
  for (int r = 0; r < nranks; r++)
    if (r != s->early[0] && r != s->early[1] && r != s->late)
      survivors |= 1 << r;
  s->survivors = __builtin_popcount((unsigned)survivors);
  run_processes(nranks, &config, lose_and_shrink, s, 60, results);
  for (int r = 0; r < nranks; r++) {
    if (!(survivors & 1 << r)) {
      cr_expect_eq(results[r], 128 + SIGKILL);
      continue;
    }
    cr_expect_eq(results[r], 0, "%s, %s: rank %d ended with %d", what, transport, r, results[r]);
    bool lossless = s->early[0] == NOBODY && s->early[1] == NOBODY;
    /* The late rank may be dead before the others have finished. */
    cr_expect((lossless && s->first[r] == COLL_OK) ||
                  ((!lossless || s->late != NOBODY) && s->first[r] == COLL_ERR_PEER_LOST),
              "%s, %s: rank %d got %s", what, transport, r, coll_status_name(s->first[r]));
    cr_expect_eq(s->shrunk[r], COLL_OK, "%s, %s: rank %d: %s", what, transport, r, s->message[r]);
    cr_expect_eq(s->mask[r], survivors, "%s, %s: rank %d went on with %x, not %x", what, transport,
                 r, s->mask[r], survivors);
    cr_expect_lt(s->seconds[r], slow_s(9.0), "%s: rank %d took %.1f s", what, r, s->seconds[r]);
  }
  munmap(s, sizeof(*s));
}

Test(shrink, one_killed, .timeout = 100) {
  for (int victim = 0; victim < 4; victim++)
    play(make_scene(victim, NOBODY, NOBODY, 0), 4, victim % 2 ? "shm" : "tcp", "one");
  play(make_scene(0, NOBODY, NOBODY, 0), 2, "shm", "one of two");
}

Test(shrink, two_killed, .timeout = 100) {
  play(make_scene(1, 2, NOBODY, 0), 4, "shm", "two in the middle");
  play(make_scene(0, 1, NOBODY, 0), 4, "tcp", "two coordinators");
  play(make_scene(0, 2, NOBODY, 0), 3, "shm", "all but one");
}

Test(shrink, nobody_lost, .timeout = 60) {
  play(make_scene(NOBODY, NOBODY, NOBODY, 0), 4, "shm", "nobody");
  play(make_scene(NOBODY, NOBODY, NOBODY, 0), 5, "tcp", "nobody");
}

/* Another rank dies at some moment of the shrink: the first coordinator, the next, a member. */
static void kill_while_shrinking(int late, uint64_t seed) {
  colli_prng prng = {seed};
  for (int i = 0; i < 10; i++) {
    char what[64];
    int delay_us = (int)colli_prng_below(&prng, 8000);
    snprintf(what, sizeof(what), "rank %d %d us late", late, delay_us);
    play(make_scene(i % 2 ? NOBODY : 2, NOBODY, late, delay_us), 5, i % 3 ? "shm" : "tcp", what);
  }
}

Test(shrink, coordinator_dies_meanwhile, .timeout = 200) {
  kill_while_shrinking(0, 11);
}
Test(shrink, next_coordinator_dies_meanwhile, .timeout = 200) {
  kill_while_shrinking(1, 12);
}
Test(shrink, member_dies_meanwhile, .timeout = 200) {
  kill_while_shrinking(3, 13);
}

/* ---- frozen ranks ---------------------------------------------------------------------------- */

/* Stops itself; the last of the others to finish wakes it up. */
static int freeze_and_shrink(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_comm *child = NULL;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  config.error = &error;
  bool right = false;
  RANK_OK(coll_barrier(comm));
  if (rank == s->early[0]) {
    s->frozen_pid = getpid();
    kill(getpid(), SIGSTOP);
  }
  s->first[rank] = reduce_for(comm, 100, 1 << 30);
  double start = now_s();
  s->shrunk[rank] = coll_comm_shrink(comm, &config, &child);
  s->seconds[rank] = now_s() - start;
  snprintf(s->message[rank], sizeof(s->message[rank]), "%s", error.message);
  if (!child)
    return 0;
  RANK_CHECK(go_on(child, rank, &s->mask[rank], &right) == COLL_OK && right);
  if (__atomic_add_fetch(&s->done, 1, __ATOMIC_SEQ_CST) == nranks - 1)
    kill(s->frozen_pid, SIGCONT);
  /* stays, so that its process is not taken for dead */
  (void)WAIT_UNTIL(__atomic_load_n((uint64_t *)&s->seconds[s->early[0]], __ATOMIC_RELAXED) != 0,
                   10);
  coll_comm_destroy(&child);
  return 0;
}

/* Whether all of n ranks but one went on together; `says` what each saw if not. */
static bool left_out_alone(const scene *s, const int *results, int nranks, int out, bool says) {
  const int mask = ((1 << nranks) - 1) & ~(1 << out);
  bool together = true;
  for (int r = 0; r < nranks; r++) {
    if (r == out)
      continue;
    together = together && results[r] == 0 && s->shrunk[r] == COLL_OK && s->mask[r] == mask;
    if (!says)
      continue;
    cr_expect_eq(results[r], 0, "rank %d, %d us: rank %d ended with %d", out, s->late_delay_us, r,
                 results[r]);
    cr_expect_eq(s->shrunk[r], COLL_OK, "rank %d, %d us: rank %d: %s", out, s->late_delay_us, r,
                 s->message[r]);
    cr_expect_eq(s->mask[r], mask, "rank %d, %d us: rank %d went on with %x", out, s->late_delay_us,
                 r, s->mask[r]);
  }
  return together;
}

/* Freezes a rank before a shrink, with deadlines so many times as long: whether that was right. */
static bool play_frozen_with(int frozen, int times, bool says) {
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = slow_ms(500 * times);
  config.create_timeout_ms = slow_ms(800 * times);
  scene *s = make_scene(frozen, NOBODY, NOBODY, 0);
  int results[MOST];
  run_processes(4, &config, freeze_and_shrink, s, 30 * times, results);
  bool right = left_out_alone(s, results, 4, frozen, says) && results[frozen] == 0 &&
               s->shrunk[frozen] == COLL_ERR_TIMEOUT && s->mask[frozen] == 0 &&
               s->message[frozen][0];
  for (int r = 0; r < 4; r++)
    right = right && (r == frozen ||
                      (s->first[r] == COLL_ERR_TIMEOUT && s->seconds[r] < slow_s(4.0 * times)));
  if (says)
    cr_expect(right, "rank %d, which is frozen, ended with %d and got %s: %s", frozen,
              results[frozen], coll_status_name(s->shrunk[frozen]), s->message[frozen]);
  munmap(s, sizeof(*s));
  return right;
}

/* A busy machine may hold up ranks for longer than the first deadlines. */
Test(shrink, frozen_rank_is_left_out, .timeout = 300) {
  for (int frozen = 0; frozen < 4; frozen += 3)
    if (!play_frozen_with(frozen, 1, false))
      play_frozen_with(frozen, 6, true);
}

static void *freeze_soon(void *arg) {
  be_late(*(useconds_t *)arg / 1e3);
  kill(getpid(), SIGSTOP);
  return NULL;
}

/* One rank freezes while it shrinks. The others continue without it, sooner or later. */
static int freeze_meanwhile(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_comm *old = NULL, *child;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  config.error = &error;
  pthread_t thread;
  bool right;
  useconds_t delay = (useconds_t)s->late_delay_us;
  RANK_OK(coll_barrier(comm));
  if (rank == s->late) {
    s->frozen_pid = getpid();
    RANK_CHECK(pthread_create(&thread, NULL, freeze_soon, &delay) == 0);
  }
  for (int i = 0; i < 4; i++) {
    s->shrunk[rank] = coll_comm_shrink(old ? old : comm, &config, &child);
    snprintf(s->message[rank], sizeof(s->message[rank]), "%s", error.message);
    coll_comm_destroy(&old);
    if (!child)
      break;
    old = child;
    coll_status status = go_on(child, rank, &s->mask[rank], &right);
    if (status == COLL_OK && !(s->mask[rank] & 1 << s->late))
      break;
    if (status == COLL_OK)
      status = reduce_for(child, 100, 1 << 30);
    RANK_CHECK(status == COLL_ERR_TIMEOUT);
  }
  RANK_CHECK(rank != s->late);
  if (__atomic_add_fetch(&s->done, 1, __ATOMIC_SEQ_CST) == nranks - 1)
    kill(s->frozen_pid, SIGKILL);
  coll_comm_destroy(&old);
  return 0;
}

/* Freezes a rank while it shrinks, with deadlines so many times as long: whether that was right. */
static bool play_freeze_with(int late, int delay_us, int times, bool says) {
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = slow_ms(500 * times);
  config.create_timeout_ms = slow_ms(1200 * times);
  scene *s = make_scene(NOBODY, NOBODY, late, delay_us);
  int results[MOST];
  run_processes(5, &config, freeze_meanwhile, s, 30 * times, results);
  const bool right = left_out_alone(s, results, 5, late, says);
  munmap(s, sizeof(*s));
  return right;
}

/* A rank that a busy machine holds up for longer than the deadline is left out as well, rightly:
 * then the deadline was too short for this machine. */
static void play_freeze(int late, int delay_us) {
  if (!play_freeze_with(late, delay_us, 1, false))
    play_freeze_with(late, delay_us, 6, true);
}

Test(shrink, coordinator_freezes_meanwhile, .timeout = 300) {
  for (int delay_us = 300; delay_us < 5000; delay_us += 2200)
    play_freeze(0, delay_us);
}
Test(shrink, member_freezes_meanwhile, .timeout = 300) {
  for (int delay_us = 300; delay_us < 5000; delay_us += 2200)
    play_freeze(3, delay_us);
}

/* ---- strangers ------------------------------------------------------------------ */

/* Connects to a rank's listener `count` times, and sends nothing or nonsense. */
static int connect_to(int rank, const colli_rank_info *info, bool talk, int *fds, int count) {
  char noise[200];
  memset(noise, 'x', sizeof(noise));
  for (int i = 0; i < count; i++) {
    fds[i] = colli_net_connect(&info->control_addrs[0]);
    RANK_CHECK(fds[i] >= 0 && poll(&(struct pollfd){fds[i], POLLOUT, 0}, 1, 5000) == 1);
    if (talk) /* it may have been turned away by now */
      (void)send(fds[i], noise, sizeof(noise), MSG_NOSIGNAL);
  }
  return 0;
}

static int with_strangers(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  enum { STRANGERS = 40 };
  int fds[2][STRANGERS], mask;
  coll_comm *child;
  bool right;
  RANK_OK(coll_barrier(comm));
  const colli_rank_info info = colli_comm_info(comm, 0);
  RANK_CHECK(connect_to(rank, &info, false, fds[0], STRANGERS) == 0);
  RANK_CHECK(connect_to(rank, &info, true, fds[1], STRANGERS) == 0);
  int before = count_fds();
  RANK_OK(coll_comm_shrink(comm, NULL, &child));
  RANK_CHECK(go_on(child, rank, &mask, &right) == COLL_OK && right);
  RANK_CHECK(mask == (1 << nranks) - 1);
  coll_comm_destroy(&child);
  RANK_CHECK(count_fds() <= before);
  for (int i = 0; i < STRANGERS; i++)
    for (int j = 0; j < 2; j++)
      if (fds[j][i] >= 0)
        close(fds[j][i]);
  return 0;
}

Test(shrink, strangers_change_nothing, .timeout = 60) {
  cr_expect_eq(run_processes(3, NULL, with_strangers, NULL, 40, NULL), 0);
}
