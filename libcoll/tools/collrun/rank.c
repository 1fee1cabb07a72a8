/* rank.c: what collrun passes to one rank: its settings, and signals. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/tools/collrun/run.h"

/* Passes each setting that identifies a rank. */
void run_settings(const run_job *job, int rank,
                  void (*put)(void *to, const char *name, const char *value), void *to) {
  const run_rank *r = &job->ranks[rank];
  const struct {
    const char *name;
    int value;
  } numbers[] = {{"COLL_RANK", rank},
                 {"COLL_NRANKS", job->nranks},
                 {"COLL_LOCAL_RANK", r->local_rank},
                 {"COLL_LOCAL_NRANKS", r->local_nranks}};
  for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
    char text[16];
    snprintf(text, sizeof(text), "%d", numbers[i].value);
    put(to, numbers[i].name, text);
  }
  put(to, "COLL_ROOT", job->root);
  if (job->join_folder[0] != '\0') {
    char path[sizeof(job->join_folder) + 8];
    snprintf(path, sizeof(path), "%s/id", job->join_folder);
    put(to, "COLL_JOIN_FILE", path);
  }
  if (r->respawned > 0) {
    char text[16];
    snprintf(text, sizeof(text), "%d", r->respawned);
    put(to, "COLL_RESPAWN", text);
  }
}

/* Writes the secret as a line. */
void run_secret_line(const run_job *job, char line[RUN_SECRET_LINE]) {
  static const char digits[] = "0123456789abcdef";
  for (int i = 0; i < COLL_SECRET_BYTES; i++) {
    line[2 * i] = digits[job->secret->bytes[i] >> 4];
    line[2 * i + 1] = digits[job->secret->bytes[i] & 15];
  }
  memcpy(line + COLLI_SECRET_DIGITS, "\n", 2);
}

/* Sends the name of a signal that collrun forwards, in the shell's form, to the other host. */
static void send_signal_name(const run_rank *rank, int number) {
  char line[32];
  int bytes = snprintf(line, sizeof(line), "%s\n",
                       number == SIGINT    ? "INT"
                       : number == SIGHUP  ? "HUP"
                       : number == SIGUSR1 ? "USR1"
                       : number == SIGUSR2 ? "USR2"
                                           : "TERM");
  if (write(rank->control_fd, line, (size_t)bytes) < 0 && errno != EPIPE)
    perror("collrun: cannot forward a signal"); /* EPIPE: the rank has just ended */
}

/* Sends a signal to a rank and all that it started. */
void run_signal(run_rank *rank, int number) {
  if (rank->pid == 0)
    return;
  if (rank->control_fd < 0) {
    kill(rank->leads_group ? -rank->pid : rank->pid, number);
  } else if (number != SIGKILL) {
    send_signal_name(rank, number);
  } else { /* the end of its input kills the rank; the next time ssh itself is killed */
    close(rank->control_fd);
    rank->control_fd = -1;
  }
}
