/*
 * waits.h: how tests wait. For something: WAIT_UNTIL(). To come late on purpose, as a slow rank
 * does: be_late(). To see that something does not happen: watch_for().
 */
#ifndef TESTS_COMMON_WAITS_H
#define TESTS_COMMON_WAITS_H

#include <stdbool.h>
#include <time.h>

/* Seconds of a clock that never goes back. */
static inline double wait_clock_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Comes so late, in no call of the library. */
static inline void be_late(double ms) {
  struct timespec pause = {(time_t)(ms / 1e3), 0};
  pause.tv_nsec = (long)((ms - (double)pause.tv_sec * 1e3) * 1e6);
  nanosleep(&pause, NULL);
}

/* Lets so much time pass in which something that must not happen could. */
static inline void watch_for(double ms) {
  be_late(ms);
}

/* Whether a condition becomes true within so many seconds; it is evaluated again and again, at
 * first after 0.05 ms, later every 2 ms. */
#define WAIT_UNTIL(condition, seconds)                                                             \
  __extension__({                                                                                  \
    double until_s_ = wait_clock_s() + (seconds), pause_ms_ = 0.05;                                \
    bool is_so_;                                                                                   \
    while (!(is_so_ = (condition)) && wait_clock_s() < until_s_) {                                 \
      be_late(pause_ms_);                                                                          \
      pause_ms_ = pause_ms_ < 1 ? pause_ms_ * 2 : 2;                                               \
    }                                                                                              \
    is_so_;                                                                                        \
  })

#endif
