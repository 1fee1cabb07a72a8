/*
 * guard.c: a process that waits for collrun's end. The kernel ends a rank together with collrun
 * (start.c), but not what the rank has started. The guard kills that, even after kill -9.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "libcoll/tools/collrun/run.h"

/* Reads the numbers of ended ranks until collrun is gone, then kills the groups that are left. */
static _Noreturn void guard_ranks(const run_job *job, int fd) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, NULL);
  prctl(PR_SET_NAME, "collrun-guard");
  (void)setsid(); /* ignore Ctrl-C and the end of the terminal */
  if (dup2(fd, STDIN_FILENO) < 0)
    _exit(1);
  (void)close_range(1, ~0u, 0); /* keeps no pipe open */
  for (;;) {
    int rank;
    ssize_t got = read(STDIN_FILENO, &rank, sizeof(rank));
    if (got == (ssize_t)sizeof(rank))
      job->ranks[rank].leads_group = false;
    else if (got >= 0 || errno != EINTR)
      break;
  }
  for (int r = 0; r < job->nranks; r++)
    if (job->ranks[r].leads_group)
      kill(-job->ranks[r].pid, SIGKILL);
  _exit(0);
}

/* Starts the guard, which outlives collrun by a moment. */
int run_guard_start(const run_job *job) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return -1;
  pid_t pid = fork();
  if (pid == 0) {
    close(ends[1]);
    guard_ranks(job, ends[0]);
  }
  close(ends[0]);
  if (pid < 0) {
    close(ends[1]);
    return -1;
  }
  return ends[1];
}

/* Tells the guard that a rank has ended. */
void run_guard_forget(int guard_fd, int rank) {
  ssize_t wrote;
  do
    wrote = write(guard_fd, &rank, sizeof(rank));
  while (wrote < 0 && errno == EINTR);
}
