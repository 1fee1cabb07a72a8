/* run.h: collrun's parts. It starts ranks, watches them, and ends all when one fails. */
#ifndef COLLI_TOOLS_COLLRUN_RUN_H
#define COLLI_TOOLS_COLLRUN_RUN_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#define RUN_MAX_RANKS   4096 /* each is a process on this host: itself, or its ssh */
#define RUN_SECRET_TEXT 65   /* 64 hexadecimal digits and the end */

/* collrun's own exit statuses; else it is the first failed rank's. */
enum { RUN_USAGE = 2, RUN_TIMEOUT = 124, RUN_FAILED = 125, RUN_NO_EXEC = 126, RUN_NOT_FOUND = 127 };

/* One rank: where it shall run, and what became of it. */
typedef struct run_rank {
  const char *host; /* NULL: here */
  int local_rank;
  int local_nranks;
  int core;         /* to bind to, or -1 */
  pid_t pid;        /* the rank's, or its ssh's; 0: not running (any more) */
  bool leads_group; /* it and all that it starts are one process group */
  int control_fd;   /* remote: signals' names are written here, a line each; else -1 */
} run_rank;

typedef struct run_options {
  int nranks;       /* 0: as many as the hosts have room for */
  char *hosts;      /* text of --hosts, or NULL; cut up by parsing */
  bool tag;         /* begin each line of output with its rank */
  bool bind;        /* bind ranks to cores (colli_topo_place) */
  bool keep_going;  /* the end of a rank is no reason to end the others */
  double timeout_s; /* 0: none */
  char **program;   /* with its arguments; ends with NULL */
} run_options;

/* What the ranks are told. */
typedef struct run_job {
  run_options options;
  run_rank *ranks;
  int nranks;
  int root_fd; /* local: rank 0's listening socket, or -1 */
  char root[300];
  char secret[RUN_SECRET_TEXT];
  pid_t pid;           /* collrun's own */
  struct rlimit files; /* as collrun found them, for the ranks */
} run_job;

/* ---- options.c ------------------------------------------------------------------------------- */

/* Reads the command line: 0; or a status to exit with (after --help: -1) once it has said why. */
int run_options_read(int argc, char **argv, run_options *options);

/* Makes the table of ranks from the options. 0 or an exit status. */
int run_ranks_make(run_job *job);

/* ---- rank.c ---------------------------------------------------------------------------------- */

/* Sends a signal to a rank and all that it started; SIGKILL a second time also to a stuck ssh. */
void run_signal(run_rank *rank, int number);

/* Calls put(to, name, value) for each setting that tells a rank who it is. */
void run_settings(const run_job *job, int rank,
                  void (*put)(void *to, const char *name, const char *value), void *to);

/* ---- start.c --------------------------------------------------------------------------------- */

typedef struct run_output run_output;

/* Starts all ranks. 0, or an exit status once it has said what went wrong; then none is left. */
int run_start(run_job *job, run_output *output);

/* ---- remote.c -------------------------------------------------------------------------------- */

/* A script for a shell on the other host, and the command that makes that shell read it. */
typedef struct run_remote {
  char *script; /* freed by the caller */
  size_t bytes;
  char command[96];
} run_remote;

/* Makes the script of one rank. 0 or an errno. */
int run_remote_make(const run_job *job, int rank, run_remote *remote);

/* Replaces this process by ssh. Returns an errno if that fails. */
int run_remote_exec(const run_rank *rank, const run_remote *remote);

/* ---- output.c -------------------------------------------------------------------------------- */

/* What ranks print, on its way through collrun, when lines are tagged. NULL with errno. */
run_output *run_output_create(int nranks);
void run_output_free(run_output *output);

/* The descriptors that a rank shall write to. */
void run_output_ends(const run_output *output, int rank, int *out, int *err);

/* Closes the ranks' ends once all are started. */
void run_output_started(run_output *output);

/* Adds the descriptors to poll; returns how many (at most 2 * nranks). */
int run_output_poll(const run_output *output, struct pollfd *fds);

/* Passes on what is there. False once every rank's streams have ended. */
bool run_output_pass(run_output *output);

/* ---- guard.c --------------------------------------------------------------------------------- */

/*
 * Starts a process that outlives collrun by a moment: if collrun is killed, it kills what the ranks
 * have started. Returns the descriptor for run_guard_forget(), or -1.
 */
int run_guard_start(const run_job *job);

/* Tells it that a rank has ended, so that its number may be used again by others. */
void run_guard_forget(int guard_fd, int rank);

/* ---- signals.c ------------------------------------------------------------------------------- */

/* Turns the signals that collrun handles into a descriptor; -1 with errno. */
int run_signals_open(void);

/* In a child: signals as collrun found them. */
void run_signals_restore(void);

/* ---- watch.c --------------------------------------------------------------------------------- */

/* Waits for all ranks to end, passing on signals and output. The status to exit with. */
int run_watch(run_job *job, run_output *output, int signal_fd, int guard_fd);

#endif
