/* signals.c: the signals that collrun handles. */
#include <signal.h>
#include <sys/signalfd.h>

#include "libcoll/tools/collrun/run.h"

static const int handled[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};

/* The signals that collrun watches: all it handles, except those ignored at its start (nohup). */
static void add_watched(sigset_t *set) {
  sigemptyset(set);
  for (size_t i = 0; i < sizeof(handled) / sizeof(handled[0]); i++) {
    struct sigaction action;
    if (sigaction(handled[i], NULL, &action) == 0 &&
        (action.sa_handler != SIG_IGN || handled[i] == SIGCHLD))
      sigaddset(set, handled[i]);
  }
}

/* Turns the signals that collrun handles into a descriptor. */
int run_signals_open(void) {
  sigset_t set;
  signal(SIGCHLD, SIG_DFL); /* if it were ignored, children's statuses would be lost */
  signal(SIGPIPE, SIG_IGN); /* write() returns EPIPE instead */
  add_watched(&set);
  if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
    return -1;
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* In a child: restores the signals that collrun inherited. */
void run_signals_restore(void) {
  sigset_t set;
  add_watched(&set);
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_UNBLOCK, &set, NULL);
}
