/* start.c: starts the ranks. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcoll/tools/collrun/run.h"

/* The report of a child that could not become its rank. */
typedef struct failure {
  int rank;
  int reason; /* errno */
} failure;

/* Passed to all children at the start. */
typedef struct starter {
  run_job *job;
  run_output *output; /* NULL: ranks write where collrun does */
  int report[2];      /* a pipe for failures, which stays empty if every rank starts */
  bool terminal;      /* rank 0 must be able to read from the terminal */
} starter;

/* Sets a variable of this process. */
static void put_here(void *unused, const char *name, const char *value) {
  (void)unused;
  setenv(name, value, 1);
}

/* In the child: the file for its output, or -1 with errno. */
static int open_log(const run_job *job, int rank) {
  char path[4096];
  if (snprintf(path, sizeof(path), "%s/rank.%d.log", job->options.logs, rank) >=
      (int)sizeof(path)) {
    errno = ENAMETOOLONG;
    return -1;
  }
  int fresh = job->attempt == 0 ? O_TRUNC : 0;
  return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | fresh, 0666);
}

/* In the child: its three standard streams. An errno or 0. */
static int set_streams(const starter *start, int rank, int control_fd) {
  int in = control_fd, out = STDOUT_FILENO, err = STDERR_FILENO;
  if (control_fd < 0)
    in = rank == 0 ? STDIN_FILENO : open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (start->output != NULL)
    run_output_ends(start->output, rank, &out, &err);
  if (start->job->options.logs != NULL)
    out = err = open_log(start->job, rank);
  if (out < 0) {
    dprintf(STDERR_FILENO, "collrun: --logs %s: rank %d's file cannot be made: %s\n",
            start->job->options.logs, rank, strerror(errno));
    _exit(RUN_FAILED);
  }
  if ((in != STDIN_FILENO && dup2(in, STDIN_FILENO) < 0) ||
      (out != STDOUT_FILENO && dup2(out, STDOUT_FILENO) < 0) ||
      (err != STDERR_FILENO && dup2(err, STDERR_FILENO) < 0))
    return errno;
  return 0;
}

/* In the child: leaves a descriptor open for the rank. */
static void pass_descriptor(const char *name, int fd) {
  char text[16];
  snprintf(text, sizeof(text), "%d", fd);
  (void)fcntl(fd, F_SETFD, 0);
  setenv(name, text, 1);
}

/* In the child: sets the rank's variables, core and listener. */
static void set_place(const starter *start, int rank) {
  const run_job *job = start->job;
  static const char *const others[] = {"COLL_ROOT_FD", "COLL_SECRET", "COLL_SECRET_FD",
                                       "COLL_SECRET_FILE", "COLL_RESPAWN"};
  for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
    unsetenv(others[i]);
  run_settings(job, rank, put_here, NULL);
  if (job->secret_fd >= 0)
    pass_descriptor("COLL_SECRET_FD", job->secret_fd);
  if (rank == 0 && job->root_fd >= 0)
    pass_descriptor("COLL_ROOT_FD", job->root_fd);
  run_bindings_apply(job, rank);
}

/* The child: becomes the rank, or its ssh, and reports why if it cannot. */
static _Noreturn void become_rank(const starter *start, int rank, int control_fd,
                                  const run_remote *remote) {
  const run_job *job = start->job;
  /* Makes the kernel kill the rank if collrun dies. */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != job->pid)
    _exit(RUN_FAILED);
  if (job->ranks[rank].leads_group)
    setpgid(0, 0);
  if (job->ranks[rank].leads_group && job->guard_fd >= 0)
    run_guard_tell(job->guard_fd, rank, getpid()); /* before it starts anything */
  failure failed = {rank, set_streams(start, rank, control_fd)};
  setrlimit(RLIMIT_NOFILE, &job->files);
  run_signals_restore();
  if (failed.reason == 0 && remote != NULL) {
    failed.reason = run_remote_exec(&job->ranks[rank], remote);
  } else if (failed.reason == 0) {
    set_place(start, rank);
    execvp(job->options.program[0], job->options.program);
    failed.reason = errno;
  }
  if (write(start->report[1], &failed, sizeof(failed)) < 0)
    _exit(RUN_FAILED);
  _exit(failed.reason == ENOENT ? RUN_NOT_FOUND : RUN_NO_EXEC);
}

/* Starts one rank here. 0 or an errno. */
static int start_here(starter *start, int rank, int control_fd, const run_remote *remote) {
  run_rank *r = &start->job->ranks[rank];
  r->leads_group = !(start->terminal && rank == 0);
  pid_t pid = fork();
  if (pid == 0)
    become_rank(start, rank, control_fd, remote);
  if (pid < 0)
    return errno;
  r->pid = pid;
  if (r->leads_group)
    (void)setpgid(pid, pid); /* parent and child both do this, so that no signal misses the group */
  return 0;
}

/* Starts one rank on another host: a pipe with the script in it becomes ssh's input. */
static int start_there(starter *start, int rank) {
  run_remote remote;
  int ends[2];
  int failed = run_remote_make(start->job, rank, &remote);
  if (failed != 0)
    return failed;
  if (pipe2(ends, O_CLOEXEC) != 0) {
    free(remote.script);
    return errno;
  }
  failed = run_remote_send(start->job, &remote, ends[1]);
  if (failed == 0)
    failed = start_here(start, rank, ends[0], &remote);
  free(remote.script);
  close(ends[0]);
  if (failed != 0)
    close(ends[1]);
  else
    start->job->ranks[rank].control_fd = ends[1];
  return failed;
}

/* Kills and collects what was started. */
static void undo_start(run_job *job, int first, int end) {
  for (int r = first; r < end; r++) {
    run_rank *rank = &job->ranks[r];
    if (rank->pid == 0)
      continue;
    if (rank->control_fd >= 0)
      close(rank->control_fd);
    kill(rank->leads_group ? -rank->pid : rank->pid, SIGKILL);
    (void)waitpid(rank->pid, NULL, 0);
    rank->pid = 0;
    rank->control_fd = -1;
  }
}

/* Prints why a rank could not be started, and returns the exit status. */
static int explain_failure(const run_job *job, failure failed) {
  const char *ssh = getenv("COLL_SSH");
  const char *program = job->options.program[0];
  if (job->options.hosts != NULL)
    program = ssh != NULL && ssh[0] != '\0' ? ssh : "ssh";
  if (failed.reason == ENOENT) {
    fprintf(stderr, "collrun: %s: not found%s\n", program,
            job->options.hosts != NULL     ? " (install ssh, or set COLL_SSH)"
            : strchr(program, '/') == NULL ? " in PATH (write ./program for one in this folder)"
                                           : "");
    return RUN_NOT_FOUND;
  }
  if (failed.reason == EAGAIN || failed.reason == ENOMEM || failed.reason == EMFILE) {
    fprintf(stderr, "collrun: rank %d cannot be started: %s (see ulimit -u, -n and -v)\n",
            failed.rank, strerror(failed.reason));
    return RUN_FAILED;
  }
  fprintf(stderr, "collrun: %s: cannot be run: %s\n", program, strerror(failed.reason));
  return RUN_NO_EXEC;
}

/* Starts ranks first ... end - 1. What keeps one from starting, or 0. */
static failure start_ranks(starter *start, int first, int end) {
  run_job *job = start->job;
  failure failed = {0, 0};
  if (pipe2(start->report, O_CLOEXEC) != 0)
    return (failure){first, errno};
  /* Only the terminal's foreground group may read from it: rank 0 stays in collrun's. */
  start->terminal =
      job->options.hosts == NULL && isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp();
  for (int r = first; r < end && failed.reason == 0; r++)
    failed = (failure){r, job->options.hosts != NULL ? start_there(start, r)
                                                     : start_here(start, r, -1, NULL)};
  close(start->report[1]);
  if (failed.reason == 0 && read(start->report[0], &failed, sizeof(failed)) < 0)
    failed.reason = errno;
  close(start->report[0]);
  return failed;
}

/* Starts all ranks. */
int run_start(run_job *job, run_output *output) {
  starter start = {.job = job, .output = output};
  const failure failed = start_ranks(&start, 0, job->nranks);
  if (failed.reason == 0)
    return 0;
  undo_start(job, 0, job->nranks);
  return explain_failure(job, failed);
}

int run_start_again(run_job *job, run_output *output, int rank) {
  starter start = {.job = job, .output = output};
  job->ranks[rank].respawned++;
  const failure failed = start_ranks(&start, rank, rank + 1);
  if (failed.reason == 0)
    return 0;
  undo_start(job, rank, rank + 1);
  return explain_failure(job, failed);
}
