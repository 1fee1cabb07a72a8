/*
 * guard.c: a process that waits for collrun's end. The kernel ends a rank together with collrun
 * (start.c), but not what the rank has started. The guard kills that, even after kill -9, and
 * writes what collrun had still to write.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "libcoll/base/libc.h"
#include "libcoll/tools/collrun/run.h"

static int compare(const void *a, const void *b) {
  return *(const int *)a - *(const int *)b;
}

/* Closes all descriptors but standard input and error and those of the ranks' output. */
static void close_others(const run_job *job, const run_output *output) {
  int *keep = calloc((size_t)job->nranks, sizeof(*keep));
  const int count = output != NULL && keep != NULL ? run_output_keep(output, keep) : 0;
  unsigned from = STDERR_FILENO + 1;
  close(STDOUT_FILENO);
  if (count > 0)
    qsort(keep, (size_t)count, sizeof(*keep), compare);
  for (int i = 0; i < count; i++) {
    if ((unsigned)keep[i] > from)
      (void)close_range(from, (unsigned)keep[i] - 1, 0);
    from = (unsigned)keep[i] + 1;
  }
  (void)close_range(from, ~0u, 0);
  free(keep);
}

/* A message to the guard. */
typedef struct news {
  int rank; /* or RUN_NO_READER */
  pid_t pid;
} news;

/* Reads which processes there are until collrun is gone. Then kills the groups that are left. */
static _Noreturn void guard_ranks(const run_job *job, run_output *output, int fd) {
  sigset_t all;
  bool read_on = true;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, NULL);
  prctl(PR_SET_NAME, "collrun-guard");
  (void)setsid(); /* ignore Ctrl-C and the end of the terminal */
  if (dup2(fd, STDIN_FILENO) < 0)
    _exit(1);
  close_others(job, output);
  while (read_on) {
    news n;
    ssize_t got = read(STDIN_FILENO, &n, sizeof(n));
    if (got == (ssize_t)sizeof(n) && n.rank >= 0) {
      job->ranks[n.rank].leads_group = n.pid > 0;
      job->ranks[n.rank].pid = n.pid;
    } else if (got == (ssize_t)sizeof(n))
      (void)close_range(STDERR_FILENO, ~0u, 0);
    else
      read_on = got < 0 && errno == EINTR;
  }
  for (int r = 0; r < job->nranks; r++)
    if (job->ranks[r].leads_group)
      kill(-job->ranks[r].pid, SIGKILL);
  if (output != NULL)
    run_output_finish(output);
  run_join_remove(job);
  _exit(0);
}

/* Starts the guard, which outlives collrun by a moment. */
int run_guard_start(const run_job *job, run_output *output) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return -1;
  pid_t pid = fork();
  if (pid == 0) {
    close(ends[1]);
    guard_ranks(job, output, ends[0]);
  }
  close(ends[0]);
  if (pid < 0) {
    close(ends[1]);
    return -1;
  }
  return ends[1];
}

/* Tells the guard. */
void run_guard_tell(int guard_fd, int rank, pid_t pid) {
  const news n = {rank, pid};
  ssize_t wrote;
  do
    wrote = write(guard_fd, &n, sizeof(n));
  while (wrote < 0 && errno == EINTR);
}
