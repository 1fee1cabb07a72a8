/*
 * budget.c: a fuzz target ends after FUZZ_CPU_S seconds of processor time, if that is set.
 * libFuzzer itself knows only time that passes, of which a process at low priority gets little. At
 * SIGUSR1 it stops, and its exit status is 0.
 */
#include <signal.h>
#include <stdlib.h>
#include <time.h>

__attribute__((constructor)) static void begin(void) {
  const char *seconds = getenv("FUZZ_CPU_S");
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
  timer_t timer;
  if (!seconds)
    return;
  if (timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer) != 0 ||
      timer_settime(timer, 0, &(struct itimerspec){.it_value.tv_sec = atol(seconds)}, NULL) != 0)
    abort();
}
