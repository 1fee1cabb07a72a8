/* watch.c: watches the ranks until they have ended. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/tools/collrun/run.h"

#define GRACE_NS (2 * COLLI_NS_PER_S) /* between the stages of ending ranks */
#define DRAIN_NS (1 * COLLI_NS_PER_S) /* for output of processes that outlive their rank */

/* The last step that was taken to end the ranks. */
typedef enum stage { RUNNING, WAITING, ASKED, KILLED } stage;

typedef struct run_state {
  run_job *job;
  run_output *output; /* NULL: none, or all of it has ended */
  int running;
  int respawned;  /* how often ranks were started again */
  int status;     /* of the first rank that failed */
  bool done;      /* a rank has exited with 0 */
  int interrupts; /* SIGINTs received */
  stage stage;
  uint64_t step_ns;    /* when the next stage is due; 0: never */
  uint64_t timeout_ns; /* --timeout; 0: never */
} run_state;

/* Prints the ranks that still run: "rank 2" or "ranks 0, 2, 3". */
static void print_running(const run_state *state, FILE *out) {
  const char *comma = state->running == 1 ? "rank " : "ranks ";
  for (int r = 0; r < state->job->nranks; r++)
    if (state->job->ranks[r].pid != 0) {
      fprintf(out, "%s%d", comma, r);
      comma = ", ";
    }
}

/* Sends a signal to all ranks. One from the terminal has already reached the terminal's group. */
static void signal_all(run_state *state, int number, bool from_terminal) {
  for (int r = 0; r < state->job->nranks; r++)
    if (!from_terminal || state->job->ranks[r].leads_group)
      run_signal(&state->job->ranks[r], number);
}

/* Takes the next step that ends ranks. */
static void enter_stage(run_state *state, stage next, uint64_t now_ns) {
  state->stage = next;
  state->step_ns = now_ns + GRACE_NS;
  if (next == ASKED)
    signal_all(state, SIGTERM, false);
  if (next == KILLED)
    signal_all(state, SIGKILL, false);
}

/* Handles timeouts: the next stage, or the time limit. */
static void check_time(run_state *state, uint64_t now_ns) {
  if (state->timeout_ns != 0 && now_ns >= state->timeout_ns && state->stage == RUNNING) {
    state->timeout_ns = 0;
    fprintf(stderr, "collrun: the time limit of %g s has passed; ending ",
            state->job->options.timeout_s);
    print_running(state, stderr);
    fputc('\n', stderr);
    state->status = RUN_TIMEOUT;
    state->job->stopped = true;
    enter_stage(state, ASKED, now_ns);
  } else if (state->step_ns != 0 && now_ns >= state->step_ns) {
    if (state->stage == WAITING) {
      fputs("collrun: sending SIGTERM to ", stderr);
      print_running(state, stderr);
      fputs(", still running\n", stderr);
    }
    enter_stage(state, state->stage == WAITING ? ASKED : KILLED, now_ns);
  }
}

/* Names a rank that failed. again: it is started again. */
static void report_failure(run_state *state, int r, int code, int number, bool again) {
  const run_rank *rank = &state->job->ranks[r];
  fprintf(stderr, "collrun: rank %d ", r);
  if (rank->host != NULL)
    fprintf(stderr, "on %s ", rank->host);
  else
    fprintf(stderr, "(pid %d) ", (int)rank->pid);
  if (number > 0)
    fprintf(stderr, "was killed by signal %d (%s)", number, strsignal(number));
  else
    fprintf(stderr, "exited with status %d", code);
  if (rank->host != NULL && code == 255)
    fputs(" (from ssh if it could not log in; servers may refuse more than 10 concurrent logins: "
          "MaxStartups)",
          stderr);
  if (state->running == 1)
    fputc('\n', stderr);
  else if (again)
    fprintf(stderr, "; starting it again (%d of %d)\n", state->respawned + 1,
            state->job->options.respawns);
  else if (state->respawned > 0 && state->respawned == state->job->options.respawns)
    fputs("; --respawn allows no further start; the others continue\n", stderr);
  else
    fputs(state->job->options.keep_going ? "; the others continue\n" : "; ending the others\n",
          stderr);
}

/* Starts a rank that has failed again. */
static void start_again(run_state *state, int r) {
  state->respawned++;
  if (run_start_again(state->job, state->output, r) != 0)
    return;
  state->running++;
}

/* One rank, or its ssh, has ended. */
static void rank_ended(run_state *state, int r, const siginfo_t *info) {
  run_rank *rank = &state->job->ranks[r];
  int number = info->si_code == CLD_EXITED ? 0 : info->si_status;
  int code = number > 0 ? 128 + number : info->si_status;
  if (number == 0 && rank->host != NULL && code > 128 && code <= 128 + SIGRTMAX)
    number = code - 128; /* how a shell on the other host reports a signal */
  const bool keep_going = state->job->options.keep_going;
  /* Once a rank is done there may be nobody any more whom it could join. */
  const bool again = code != 0 && state->stage == RUNNING && state->running > 1 && !state->done &&
                     !state->job->stopped && state->respawned < state->job->options.respawns;
  if (code != 0 && state->stage == RUNNING) {
    report_failure(state, r, code, number, again);
    if (state->status == 0)
      state->status = code;
    if (!keep_going)
      enter_stage(state, WAITING, colli_now_ns());
  }
  state->done = state->done || code == 0;
  /* Kills what it leaves behind, while its process id cannot be reused yet. */
  if (rank->leads_group)
    kill(-rank->pid, SIGKILL);
  run_guard_tell(state->job->guard_fd, r, 0);
  (void)waitpid(rank->pid, NULL, 0);
  if (rank->control_fd >= 0)
    close(rank->control_fd);
  rank->control_fd = -1;
  rank->pid = 0;
  state->running--;
  if (again)
    start_again(state, r);
}

/* Finds out who has ended. */
static void reap_ranks(run_state *state) {
  siginfo_t info;
  for (;;) {
    info.si_pid = 0;
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
      return;
    int r = 0;
    while (r < state->job->nranks && state->job->ranks[r].pid != info.si_pid)
      r++;
    if (r < state->job->nranks && state->output != NULL && state->interrupts < 2 &&
        !run_output_settled(state->output, r))
      return; /* what it printed comes before what we say about its end */
    if (r < state->job->nranks)
      rank_ended(state, r, &info);
    else
      (void)waitpid(info.si_pid, NULL, 0); /* inherited from whoever became collrun */
  }
}

/* Handles the signals that have come. */
static void take_signals(run_state *state, int signal_fd) {
  struct signalfd_siginfo info;
  while (read(signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
    int number = (int)info.ssi_signo;
    if (number == SIGCHLD)
      continue; /* reap_ranks() looks each time */
    state->interrupts += number == SIGINT;
    state->job->stopped |= number == SIGINT || number == SIGTERM || number == SIGHUP;
    if (number == SIGINT && state->interrupts > 1) {
      fputs("collrun: interrupted twice; killing all ranks\n", stderr);
      state->status = 128 + SIGINT;
      enter_stage(state, KILLED, colli_now_ns());
    } else {
      signal_all(state, number, info.ssi_code == SI_KERNEL);
    }
  }
}

/* Milliseconds until the next timeout; -1: none. */
static int wait_ms(const run_state *state) {
  uint64_t due = state->step_ns, now_ns = colli_now_ns();
  const uint64_t others[] = {state->timeout_ns,
                             state->output != NULL ? run_output_due(state->output) : 0};
  for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
    if (others[i] != 0 && (due == 0 || others[i] < due))
      due = others[i];
  if (due == 0)
    return -1;
  if (due <= now_ns)
    return 0;
  uint64_t ms = (due - now_ns) / COLLI_NS_PER_MS + 1;
  return ms < 1000000 ? (int)ms : 1000000;
}

/* Forwards output that has arrived. */
static void pass_output(run_state *state) {
  if (state->output == NULL)
    return;
  const bool open = run_output_pass(state->output);
  if (run_output_gone(state->output))
    run_guard_tell(state->job->guard_fd, RUN_NO_READER, 0);
  if (!open)
    state->output = NULL;
}

/* Reads the last output of the ranks; with --tag, also of processes that outlive them. */
static void drain_output(run_state *state, struct pollfd *fds) {
  uint64_t until_ns = colli_now_ns() + DRAIN_NS;
  run_output *output = state->output;
  while (state->job->options.tag && state->output != NULL && colli_now_ns() < until_ns) {
    pass_output(state);
    int count = run_output_poll(output, fds);
    (void)poll(fds, (nfds_t)count, 50);
  }
  if (output != NULL)
    run_output_finish(output);
}

/* Waits for all ranks to end, and forwards signals and output. */
int run_watch(run_job *job, run_output *output, int signal_fd) {
  run_state state = {.job = job, .output = output, .running = job->nranks};
  struct pollfd *fds = calloc(2 * (size_t)job->nranks + 2, sizeof(*fds));
  if (fds == NULL) {
    fputs("collrun: out of memory\n", stderr);
    return RUN_FAILED; /* the guard ends the ranks */
  }
  if (job->options.timeout_s > 0)
    state.timeout_ns = colli_now_ns() + (uint64_t)(job->options.timeout_s * 1e9);
  while (state.running > 0) {
    int count = state.output != NULL ? run_output_poll(state.output, fds + 1) : 0;
    fds[0] = (struct pollfd){signal_fd, POLLIN, 0};
    (void)poll(fds, (nfds_t)count + 1, wait_ms(&state));
    pass_output(&state);
    take_signals(&state, signal_fd);
    reap_ranks(&state);
    if (state.running > 0)
      check_time(&state, colli_now_ns());
  }
  if (output != NULL)
    run_output_started(output);
  drain_output(&state, fds);
  free(fds);
  return job->options.keep_going && state.stage == RUNNING && state.done ? 0 : state.status;
}
