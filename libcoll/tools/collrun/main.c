/* main.c: collrun starts the ranks of a program that uses libcoll; see docs/launchers.md. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "libcoll/base/fork.h"
#include "libcoll/base/prng.h"
#include "libcoll/base/shared.h"
#include "libcoll/net/door.h"
#include "libcoll/tools/collrun/run.h"

/* Ports for rank 0 on another host, below the ephemeral ports of common systems. */
#define FIRST_PORT 20000
#define LAST_PORT  32767

/* Makes the secret of this run and, for ranks on this host, the file from which they read it. */
static int make_secret(run_job *job) {
  char line[RUN_SECRET_LINE];
  colli_shared_fault fault = {"mmap", ENOMEM};
  job->secret = colli_secret_create();
  if (job->secret != NULL)
    fault = (colli_shared_fault){"getrandom",
                                 colli_random_secret(job->secret->bytes, COLL_SECRET_BYTES)};
  if (fault.sys_errno == 0 && job->options.hosts == NULL) {
    job->secret_fd = colli_shared_create(RUN_SECRET_LINE - 1, &fault);
    colli_fd_disown(job->secret_fd); /* ranks get it */
    run_secret_line(job, line);
    if (job->secret_fd >= 0)
      fault = (colli_shared_fault){
          "write", pwrite(job->secret_fd, line, RUN_SECRET_LINE - 1, 0) < 0 ? errno : 0};
    explicit_bzero(line, sizeof(line));
  }
  if (fault.sys_errno == 0)
    return 0;
  fprintf(stderr, "collrun: cannot make a secret: %s: %s\n", fault.syscall,
          strerror(fault.sys_errno));
  return RUN_FAILED;
}

/* Local: listens for rank 0 before any rank runs, so that no other process can take its port. */
static int listen_here(run_job *job) {
  const char *range = getenv("COLL_PORT_RANGE");
  coll_error error = COLL_ERROR_INIT;
  uint16_t port;
  if (colli_door_listen(range != NULL ? range : "", job->secret->bytes, &job->root_fd, &port,
                        &error) != COLL_OK) {
    fprintf(stderr, "collrun: %s\n", error.message);
    return RUN_FAILED;
  }
  colli_fd_disown(job->root_fd); /* rank 0 gets it */
  snprintf(job->root, sizeof(job->root), "127.0.0.1:%u", (unsigned)port);
  return 0;
}

/*
 * Remote: collrun cannot look for a free port on the first host, so it picks one at random. If
 * COLL_PORT_RANGE is set, it picks from the upper half, because the ranks there look for their own
 * ports from the start of the range.
 */
static int choose_root(run_job *job) {
  const char *range = getenv("COLL_PORT_RANGE");
  const char *host = job->ranks[0].host, *user = strrchr(host, '@');
  unsigned first = FIRST_PORT, last = LAST_PORT;
  if (range != NULL && range[0] != '\0' && strcmp(range, "0") != 0) {
    int read = sscanf(range, "%u-%u", &first, &last);
    if (read == 1)
      last = first;
    if (read < 1 || first < 1 || last < first || last > 65535) {
      fprintf(stderr, "collrun: COLL_PORT_RANGE=%s: it takes a port or first-last\n", range);
      return RUN_USAGE;
    }
    first += (last - first + 1) / 2;
    first = first > last ? last : first;
  }
  uint64_t seed;
  if (colli_random_secret(&seed, sizeof(seed)) != 0)
    return RUN_FAILED;
  colli_prng prng = {seed};
  unsigned port = first + (unsigned)colli_prng_below(&prng, last - first + 1);
  if (user != NULL)
    host = user + 1;
  snprintf(job->root, sizeof(job->root), strchr(host, ':') != NULL ? "[%s]:%u" : "%s:%u", host,
           port);
  return 0;
}

/* Raises the limit on open files if the ranks' pipes need more. */
static void raise_limit(run_job *job) {
  struct rlimit more;
  if (getrlimit(RLIMIT_NOFILE, &job->files) != 0)
    return;
  more = job->files;
  rlim_t need = 5 * (rlim_t)job->nranks + 64;
  if (more.rlim_cur < need)
    more.rlim_cur = need < more.rlim_max ? need : more.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &more);
}

/* Runs all ranks from start to end; returns the exit status. */
static int run_ranks(run_job *job) {
  run_output *output = NULL;
  const bool tag = job->options.tag,
             forward = tag || (job->nranks > 1 && job->options.logs == NULL);
  if (forward && (output = run_output_create(job->nranks, tag)) == NULL && tag) {
    perror("collrun: cannot make pipes for the ranks' output");
    return RUN_FAILED;
  }
  int signal_fd = run_signals_open();
  if (signal_fd < 0) {
    perror("collrun: signalfd");
    run_output_free(output);
    return RUN_FAILED;
  }
  int status = run_start(job, output);
  if (output != NULL && job->options.respawns == 0)
    run_output_started(output);
  if (job->root_fd >= 0)
    close(job->root_fd);
  if (job->secret_fd >= 0)
    close(job->secret_fd);
  job->root_fd = job->secret_fd = -1;
  if (status == 0) {
    job->guard_fd = run_guard_start(job, output);
    if (job->guard_fd < 0)
      perror("collrun: cannot start the guard (if collrun is killed, ranks' children may remain)");
    status = run_watch(job, output, signal_fd);
    if (job->guard_fd >= 0)
      close(job->guard_fd);
    job->guard_fd = -1;
    while (wait(NULL) > 0)
      ; /* wait for the guard's end */
  } else if (output != NULL) {
    run_output_finish(output);
  }
  close(signal_fd);
  run_output_free(output);
  return status;
}

/* Runs the job once, with a secret and a port of its own. */
static int run_once(run_job *job) {
  int status = make_secret(job);
  if (status == 0)
    status = job->options.hosts != NULL ? choose_root(job) : listen_here(job);
  if (status == 0)
    status = run_ranks(job);
  colli_secret_release(job->secret);
  job->secret = NULL;
  return status;
}

int main(int argc, char **argv) {
  run_job job = {.root_fd = -1, .secret_fd = -1, .guard_fd = -1, .pid = getpid()};
  int status = run_options_read(argc, argv, &job.options);
  if (status != 0)
    return status < 0 ? 0 : status;
  status = run_ranks_make(&job);
  if (status == 0 && job.options.logs != NULL && mkdir(job.options.logs, 0777) != 0 &&
      errno != EEXIST) {
    fprintf(stderr, "collrun: --logs %s: %s\n", job.options.logs, strerror(errno));
    status = RUN_FAILED;
  }
  if (status == 0) {
    run_bindings_choose(&job);
    raise_limit(&job);
    status = run_join_make(&job) ? run_once(&job) : RUN_FAILED;
    /* What collrun itself could not do would fail again. */
    for (int i = 1; i <= job.options.restarts && status != 0 && !job.stopped &&
                    (status < RUN_TIMEOUT || status > RUN_NOT_FOUND);
         i++) {
      job.attempt = i;
      fprintf(stderr, "collrun: restart %d of %d\n", i, job.options.restarts);
      status = run_once(&job);
    }
  }
  run_join_remove(&job);
  run_ranks_free(&job);
  free(job.options.hostfile);
  for (int i = 0; i < job.options.nexports; i++)
    free((char *)job.options.exports[i]);
  return status;
}
