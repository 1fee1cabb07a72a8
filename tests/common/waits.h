/*
 * waits.h: how tests wait. For something: WAIT_UNTIL(), also for what a thread or process does:
 * sleeps(), has_ended(). To come late on purpose, as a slow rank does: be_late(). To see that
 * something does not happen: watch_for().
 */
#ifndef TESTS_COMMON_WAITS_H
#define TESTS_COMMON_WAITS_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

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

/* What a thread (gettid()) or process does, as proc(5) has it: R, S, T, Z, ...; 0: there is none.
 */
static inline char task_state(pid_t id) {
  char path[40], text[200] = "";
  snprintf(path, sizeof(path), "/proc/%d/stat", (int)id);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return 0;
  ssize_t bytes = read(fd, text, sizeof(text) - 1);
  close(fd);
  const char *behind_name = bytes > 0 ? strrchr(text, ')') : NULL;
  return behind_name && behind_name[1] ? behind_name[2] : 0;
}

/* Whether it waits for something. A rank sets `id` right before the call that is meant. */
static inline bool sleeps(pid_t id) {
  return id > 0 && task_state(id) == 'S';
}

/* Whether it has come to its end. Nobody need have asked for its exit status. */
static inline bool has_ended(pid_t id) {
  char state = task_state(id);
  return state == 0 || state == 'Z' || state == 'X';
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
