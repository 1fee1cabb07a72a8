/* run.h: collrun's parts. It starts ranks, watches them, and ends all when one fails. */
#ifndef COLLI_TOOLS_COLLRUN_RUN_H
#define COLLI_TOOLS_COLLRUN_RUN_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "libcoll/base/secret.h"
#include "topology/topology.h"

#define RUN_MAX_RANKS   4096 /* each is a process on this host: itself, or its ssh */
#define RUN_MAX_EXPORTS 64

/* collrun's own exit statuses; otherwise it exits with that of the first failed rank. */
enum { RUN_USAGE = 2, RUN_TIMEOUT = 124, RUN_FAILED = 125, RUN_NO_EXEC = 126, RUN_NOT_FOUND = 127 };

/* --bind; unless the user says: to cores, where that can be done. */
typedef enum run_bind { RUN_BIND_DEFAULT, RUN_BIND_CORE, RUN_BIND_NUMA, RUN_BIND_NONE } run_bind;

/* One rank: where it runs, and its process. */
typedef struct run_rank {
  const char *host; /* NULL: here */
  int local_rank;
  int local_nranks;
  colli_cpus *cpus; /* to which it is bound, or NULL; freed by run_ranks_free() */
  pid_t pid;        /* the rank's, or its ssh's; 0: not running */
  bool leads_group; /* it and all that it starts are one process group */
  int control_fd;   /* remote: takes the names of signals, one per line; else -1 */
  int respawned;    /* how often it was started again */
} run_rank;

typedef struct run_options {
  int nranks;       /* 0: as many as the hosts have room for */
  char *hosts;      /* text of --hosts, or NULL; cut up by parsing */
  char *hostfile;   /* the same, made from --hostfile; freed by the caller */
  const char *logs; /* folder for a file with the output of each rank, or NULL */
  int nexports;
  const char *exports[RUN_MAX_EXPORTS]; /* names of variables that other hosts get, too */
  bool tag;                             /* begin each line of output with its rank */
  run_bind bind;
  bool by_node;     /* --map node: consecutive ranks go to different hosts */
  bool verbose;     /* say where ranks are bound */
  bool keep_going;  /* if a rank fails, do not end the others */
  double timeout_s; /* 0: none */
  int respawns;     /* when a rank fails, start it again, so many times in all */
  int restarts;     /* when a rank fails, end all and start all again, so many times */
  char **program;   /* with its arguments; ends with NULL */
} run_options;

/* All about one run. */
typedef struct run_job {
  run_options options;
  run_rank *ranks;
  int nranks;
  int root_fd; /* local: rank 0's listening socket, or -1 */
  char root[300];
  colli_secret *secret;
  char join_folder[64]; /* --respawn: a private one for COLL_JOIN_FILE, or "" */
  int secret_fd;        /* local: a file without a name from which ranks read it, or -1 */
  int guard_fd;         /* for run_guard_tell(), or -1 */
  pid_t pid;            /* collrun's own */
  int attempt;          /* 0, or the number of the restart */
  bool stopped;         /* by a signal or the time limit: no restart */
  struct rlimit files;  /* as collrun found them, for the ranks */
} run_job;

/* ---- options.c ------------------------------------------------------------------------------- */

/* Reads the command line. 0; -1 after --help; or an exit status, once it has printed why. */
int run_options_read(int argc, char **argv, run_options *options);

/* Reads a file of hosts as the text that --hosts takes, which the caller frees. NULL, once it has
 * printed why. */
char *run_hostfile_read(const char *path);

/* Notes a variable to pass on: NAME, or NAME=VALUE, which it also sets. False if it is malformed.
 */
bool run_export(run_options *options, const char *text);

/* Makes the table of ranks from the options. 0 or an exit status. */
int run_ranks_make(run_job *job);
void run_ranks_free(run_job *job);

/* ---- rank.c ---------------------------------------------------------------------------------- */

/* Sends a signal to a rank and all that it started; SIGKILL a second time also to a stuck ssh. */
void run_signal(run_rank *rank, int number);

/* Calls put(to, name, value) for each setting that tells a rank who it is. */
void run_settings(const run_job *job, int rank,
                  void (*put)(void *to, const char *name, const char *value), void *to);

/* Writes the secret as a line of hexadecimal digits. The caller erases it. */
#define RUN_SECRET_LINE (COLLI_SECRET_DIGITS + 2)
void run_secret_line(const run_job *job, char line[RUN_SECRET_LINE]);

/* ---- start.c --------------------------------------------------------------------------------- */

typedef struct run_output run_output;

/* Chooses to which processors ranks are bound, if they are. */
void run_bindings_choose(run_job *job);

/* In the child: binds a rank, and tells it where it may go if another program uses its core. */
void run_bindings_apply(const run_job *job, int rank);

/* Starts all ranks. 0; or an exit status once it has printed why, and no rank is left. */
int run_start(run_job *job, run_output *output);

/* Starts one rank that has ended again. 0; or an exit status once it has printed why. */
int run_start_again(run_job *job, run_output *output, int rank);

/* ---- respawn.c ------------------------------------------------------------------------------- */

/* --respawn: makes the folder for COLL_JOIN_FILE, unless the user has set that; removes it. False
 * once it has printed why. */
bool run_join_make(run_job *job);
void run_join_remove(const run_job *job);

/* ---- remote.c -------------------------------------------------------------------------------- */

/* A script for a shell on the other host, and the command that makes that shell read it. */
typedef struct run_remote {
  char *script; /* without the secret; freed by the caller */
  size_t bytes;
  char command[96];
} run_remote;

/* Makes the script of one rank. 0 or an errno. */
int run_remote_make(const run_job *job, int rank, run_remote *remote);

/* Writes the beginning of the script, which has the secret, and then the rest into a pipe, without
 * waiting. 0 or an errno. */
int run_remote_send(const run_job *job, const run_remote *remote, int fd);

/* Replaces this process by ssh. Returns an errno if that fails. */
int run_remote_exec(const run_rank *rank, const run_remote *remote);

/* ---- output.c -------------------------------------------------------------------------------- */

/* Forwards what ranks print: all of it with the rank before each line (tag), or only standard
 * error, unchanged. Errors of libcoll that several ranks print are shown once. NULL with errno. */
run_output *run_output_create(int nranks, bool tag);
void run_output_free(run_output *output);

/* The descriptors that a rank writes to; those that are not forwarded stay as they are. */
void run_output_ends(const run_output *output, int rank, int *out, int *err);

/* Closes the ranks' ends once all are started. */
void run_output_started(run_output *output);

/* Adds the descriptors to poll; returns how many (at most 2 * nranks + 1). */
int run_output_poll(const run_output *output, struct pollfd *fds);

/* Forwards what has arrived. False once every rank's streams have ended. */
bool run_output_pass(run_output *output);

/* When run_output_pass() has to be called even if nothing arrives; 0: never. */
uint64_t run_output_due(const run_output *output);

/* Forwards what a rank has printed until now. False if some of it has to wait for a moment. */
bool run_output_settled(run_output *output, int rank);

/* Whether nobody reads our standard error any more. */
bool run_output_gone(const run_output *output);

/* Forwards everything that is there, also incomplete lines, and waits until it is written. */
void run_output_finish(run_output *output);

/* The descriptors that run_output_finish() needs in a forked process, at most nranks. */
int run_output_keep(const run_output *output, int *fds);

/* ---- merge.c --------------------------------------------------------------------------------- */

/* Where the text of an error begins that libcoll printed: "libcoll [3] error: " comes first. 0: the
 * line is none. */
size_t run_error_begin(const char *line, size_t bytes);

/* A number that is the same for errors of several ranks that say the same. */
uint64_t run_error_hash(const char *line, size_t bytes);

/* Writes which ranks are members, as in "0-2,5"; returns its length. */
size_t run_error_list(const unsigned char *member, int nranks, char *text, size_t room);

/* ---- guard.c --------------------------------------------------------------------------------- */

/*
 * Starts a process that outlives collrun by a moment: if collrun is killed, it kills what the ranks
 * have started, and writes what they had printed (output may be NULL). Returns the descriptor for
 * run_guard_tell(), or -1.
 */
int run_guard_start(const run_job *job, run_output *output);

/* Tells the guard which process a rank has now: 0 for none, because the process id of the last one
 * may be used again. With RUN_NO_READER: ranks are to notice that nobody reads what they print. */
#define RUN_NO_READER -1
void run_guard_tell(int guard_fd, int rank, pid_t pid);

/* ---- signals.c ------------------------------------------------------------------------------- */

/* Turns the signals that collrun handles into a descriptor; -1 with errno. */
int run_signals_open(void);

/* In a child: restores the signals that collrun inherited. */
void run_signals_restore(void);

/* ---- watch.c --------------------------------------------------------------------------------- */

/* Waits for all ranks to end, and forwards signals and output. Returns the exit status. */
int run_watch(run_job *job, run_output *output, int signal_fd);

#endif
