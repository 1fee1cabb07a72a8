/* clock.c: monotonic time. */
#include "libcoll/base/clock.h"

#include <time.h>

uint64_t colli_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * COLLI_NS_PER_S + (uint64_t)now.tv_nsec;
}
