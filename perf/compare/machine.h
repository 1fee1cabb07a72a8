/* machine.h: functions that the programs that measure the machine share. */
#ifndef PERF_COMPARE_MACHINE_H
#define PERF_COMPARE_MACHINE_H

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Ends the program because a system call failed. */
static inline void die(const char *what) {
  fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
  exit(1);
}

/*
 * Binds the calling thread to the index-th processor of those that it may use. Don't bind a main
 * thread: the threads that it starts could then use no other processor.
 */
static inline void pin(int index) {
  cpu_set_t all, one;
  CPU_ZERO(&one);
  if (sched_getaffinity(0, sizeof(all), &all) != 0)
    return;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &all) && index-- == 0)
      CPU_SET(cpu, &one);
  if (CPU_COUNT(&one) == 1)
    sched_setaffinity(0, sizeof(one), &one);
}

#endif
