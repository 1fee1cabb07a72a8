/* clock.h: the time that has passed, for rates and estimates. */
#ifndef TRAINER_CLOCK_H
#define TRAINER_CLOCK_H

#include <time.h>

/* Seconds of a clock that never goes back. */
static inline double clock_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#endif
