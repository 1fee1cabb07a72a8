/*
 * test_patience.c: nobody is suspected without reason. Many ranks share two cores, hosts count as
 * silent after 100 ms, and processes are stopped for longer than that, but less than the timeout,
 * while all others wait for them or compute. Everything succeeds.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "extent.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

#define MOST_RANKS 32
#define PAUSE_MS   400 /* four times the limit for hosts */

typedef struct scene {
  int nranks, pauses;
  atomic_int pid[MOST_RANKS];
  atomic_bool over; /* there are no more pauses */
} scene;

/* Stops one rank after the other for a while; the ranks go on meanwhile. */
static void stop_ranks(scene *s) {
  for (int r = 0; r < s->nranks; r++)
    if (!WAIT_UNTIL(atomic_load(&s->pid[r]) != 0, slow_s(30)))
      _exit(1);
  for (int i = 0; i < s->pauses; i++) {
    const pid_t pid = atomic_load(&s->pid[i * 7 % s->nranks]);
    kill(pid, SIGSTOP);
    be_late(PAUSE_MS);
    kill(pid, SIGCONT);
  }
  atomic_store(&s->over, true);
  _exit(0);
}

/* Sums until all pauses are over: rank 0 says when. Now and then a rank computes for longer than a
 * host may be silent. */
static int sum_on(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  atomic_store(&s->pid[rank], getpid());
  for (int round = 0, last = 0; !last; round++) {
    int mine[2] = {rank == 0 && atomic_load(&s->over), rank + round}, sums[2];
    RANK_OK(coll_allreduce(mine, sums, 2, COLL_INT32, COLL_SUM, comm));
    RANK_CHECK(sums[1] == nranks * (nranks - 1) / 2 + nranks * round);
    last = sums[0];
    const double until = now_s() + (round % 200 == 5 * rank ? PAUSE_MS / 2e3 : 0);
    while (now_s() < until)
      continue;
  }
  return 0;
}

/* Ranks over one transport. */
static void play(const char *transport) {
  scene *s = shared_memory(sizeof(*s));
  coll_config config = COLL_CONFIG_INIT;
  config.transport = transport;
  config.timeout_ms = slow_ms(20000);
  config.heartbeat_ms = 100;
  s->nranks = extent(MOST_RANKS, MOST_RANKS, 8);
  s->pauses = extent(4, 12, 4);
  pid_t stopper = fork();
  if (stopper == 0)
    stop_ranks(s);
  int status = -1, result = run_processes(s->nranks, &config, sum_on, s, 100, NULL);
  waitpid(stopper, &status, 0);
  cr_assert(result == 0 && status == 0, "%s: %d, %d", transport, result, status);
}

Test(patience, pauses, .timeout = 250) {
  play("tcp");
  play("shm");
}
