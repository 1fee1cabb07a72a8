/*
 * test_outsider.c: a program that computes on the core to which a rank is bound. The rank notices,
 * gives way, and comes back when that program has ended. It also notices other ranks of which it
 * does not know that they are on its machine.
 */
#include <criterion/criterion.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcoll/comm/comm.h"
#include "libcoll/progress/handover.h"
#include "libcoll/tuning/cpu_list.h"
#include "tests/proc/support_ranks.h"

#define LIMIT_S 30

enum { CORES = 2, MOST_RANKS = 4 };

/* What the ranks share. */
typedef struct scene {
  int cpu[CORES];         /* the processors of all ranks; the outsider is on the first */
  char cpus[32];          /* their list, or none */
  _Atomic pid_t outsider; /* 0: not there */
  atomic_int noticed;
} scene;

/* Two processors of this process. False: it has fewer. */
static bool find_cores(scene *s) {
  cpu_set_t set;
  int count = 0;
  if (sched_getaffinity(0, sizeof(set), &set) != 0)
    return false;
  for (int cpu = 0; cpu < CPU_SETSIZE && count < CORES; cpu++)
    if (CPU_ISSET(cpu, &set))
      s->cpu[count++] = cpu;
  return count == CORES;
}

static bool bind_to(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  return sched_setaffinity(0, sizeof(one), &one) == 0;
}

/* All processors of the ranks. */
static cpu_set_t both_of(const scene *s) {
  cpu_set_t both;
  CPU_ZERO(&both);
  for (int i = 0; i < CORES; i++)
    CPU_SET(s->cpu[i], &both);
  return both;
}

static int count_cpus(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : -1;
}

/* Starts a process that computes until it is killed. */
static pid_t start_outsider(const scene *s) {
  const pid_t pid = fork();
  if (pid != 0)
    return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!bind_to(s->cpu[0]))
    _exit(1);
  for (volatile unsigned long i = 0;; i++)
    ;
}

/* Whether this rank gives way. */
static bool gives_way(const scene *s, const coll_comm *comm) {
  return *s->cpus != '\0' ? count_cpus() > 1 : comm->family->outsider.sleeps;
}

/* A communicator of the same ranks, as they are now. */
static int create_again(coll_comm *comm, int rank, int nranks, coll_comm **again) {
  coll_id id;
  if (rank == 0)
    RANK_OK(coll_unique_id(&id, NULL));
  RANK_OK(coll_broadcast(&id, &id, sizeof(id), COLL_UINT8, 0, comm));
  RANK_OK(coll_comm_create(again, &id, nranks, rank, NULL));
  return 0;
}

/* Ranks call until each has seen its `event`. */
static int call_until(const scene *s, coll_comm *comm, int rank, atomic_int *event, bool way) {
  const double until = now_s() + slow_s(LIMIT_S);
  int32_t mine, all = 0;
  while (all == 0) {
    RANK_CHECK(now_s() < until);
    if (gives_way(s, comm) == way)
      atomic_store(event, 1);
    mine = atomic_load(event);
    RANK_OK(coll_allreduce(&mine, &all, 1, COLL_INT32, COLL_MIN, comm));
  }
  return 0;
}

static int outsider_rank(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_comm *bound = NULL;
  RANK_CHECK(bind_to(s->cpu[rank % CORES]));
  if (*s->cpus != '\0')
    setenv("COLL_CPUS", s->cpus, 1);
  RANK_CHECK(create_again(comm, rank, nranks, &bound) == 0);
  RANK_OK(coll_barrier(bound));
  if (rank == 0)
    atomic_store(&s->outsider, start_outsider(s));
  RANK_CHECK(call_until(s, bound, rank, &s->noticed, true) == 0);
  RANK_OK(coll_barrier(bound));
  if (rank == 0) {
    kill(s->outsider, SIGKILL);
    waitpid(s->outsider, NULL, 0);
  }
  RANK_OK(coll_barrier(bound));
  /* Other ranks may have given way to other programs of this machine. */
  atomic_int back = 0;
  RANK_CHECK(call_until(s, bound, rank, &back, false) == 0);
  coll_comm_destroy(&bound);
  RANK_CHECK(count_cpus() == 1);
  return 0;
}

static scene *make_scene(bool may_move) {
  scene *s = shared_memory(sizeof(*s));
  if (!find_cores(s))
    cr_skip_test("this process has one processor only");
  const cpu_set_t both = both_of(s);
  if (may_move)
    colli_cpu_list_write(&both, sizeof(both), s->cpus, sizeof(s->cpus));
  return s;
}

Test(outsider, a_rank_moves_away, .timeout = 120) {
  cr_assert_eq(run_processes(2, NULL, outsider_rank, make_scene(true), 100, NULL), 0);
}

Test(outsider, ranks_that_share_cores_sleep, .timeout = 120) {
  cr_assert_eq(run_processes(MOST_RANKS, NULL, outsider_rank, make_scene(false), 100, NULL), 0);
}

/* ---- ranks that pass for hosts -----------------------------------------------------------------
 */

/* Two hosts of two ranks and two cores, which are the same two. Ranks call until one has seen that
 * others want its core. What was seen does not hold for a second. */
static int share_unknown(coll_comm *comm, int rank, int nranks, void *arg) {
  const scene *s = arg;
  const double until = now_s() + slow_s(LIMIT_S);
  const cpu_set_t both = both_of(s);
  coll_comm *apart = NULL;
  char host[16];
  int32_t any = 0;
  snprintf(host, sizeof(host), "host%d", rank / CORES);
  setenv("COLL_HOST_ID", host, 1);
  RANK_CHECK(sched_setaffinity(0, sizeof(both), &both) == 0);
  RANK_CHECK(create_again(comm, rank, nranks, &apart) == 0);
  RANK_CHECK(!apart->watch.crowded);
  while (any == 0) {
    const int32_t mine = apart->watch.contested;
    RANK_CHECK(now_s() < until);
    RANK_OK(coll_allreduce(&mine, &any, 1, COLL_INT32, COLL_MAX, apart));
  }
  apart->watch.now_ns += COLLI_NS_PER_S; /* in which nobody took the core more often */
  colli_handover_look(apart);
  RANK_CHECK(!apart->watch.contested);
  coll_comm_destroy(&apart);
  return 0;
}

Test(outsider, ranks_that_pass_for_hosts, .timeout = 120) {
  cr_assert_eq(run_processes(2 * CORES, NULL, share_unknown, make_scene(false), 100, NULL), 0);
}

/* ---- lists of processors -----------------------------------------------------------------------
 */

Test(outsider, lists) {
  static const char *const right[] = {"0", "1023", "0-3", "0-3,8", "1,3,5-7,1000"};
  static const char *const wrong[] = {"",  ",",  "0,", "3-1", "1024",
                                      "a", "0-", "-1", "0 1", "1-2-3"};
  cpu_set_t set;
  char text[64];
  for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++) {
    cr_expect(colli_cpu_list_read(right[i], &set), "%s", right[i]);
    colli_cpu_list_write(&set, sizeof(set), text, sizeof(text));
    cr_expect_str_eq(text, right[i]);
  }
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
    cr_expect(!colli_cpu_list_read(wrong[i], &set), "%s", wrong[i]);
}

static int refuse(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks, (void)arg;
  coll_comm *other = NULL;
  coll_id id;
  setenv("COLL_CPUS", "some", 1);
  RANK_OK(coll_unique_id(&id, NULL));
  RANK_CHECK(coll_comm_create(&other, &id, 1, 0, NULL) == COLL_ERR_INVALID_ARGUMENT && !other);
  coll_unique_id_release(&id);
  RANK_OK(coll_barrier(comm));
  return rank < 0;
}

Test(outsider, a_list_that_is_none, .timeout = 60) {
  cr_assert_eq(run_processes(2, NULL, refuse, NULL, 30, NULL), 0);
}
