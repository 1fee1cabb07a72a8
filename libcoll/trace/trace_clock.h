/*
 * trace_clock.h: CLOCK_MONOTONIC, read from the processor's counter where that is what the kernel
 * keeps time with. The counter's rate is measured: every 10 ms in use it is compared with the clock
 * again, so it follows the kernel's corrections, and a suspended machine is no problem.
 */
#ifndef COLLI_TRACE_TRACE_CLOCK_H
#define COLLI_TRACE_TRACE_CLOCK_H

#include <stdbool.h>

#include "libcoll/base/clock.h"

/* One moment on both. */
typedef struct colli_trace_moment {
  uint64_t ticks, ns;
} colli_trace_moment;

typedef struct colli_trace_clock {
  colli_trace_moment last;  /* when they were compared last */
  uint64_t valid_ticks;     /* so long that holds; 0: the rate is not known (yet) */
  uint64_t rate;            /* nanoseconds of a tick, times 2^32 */
  uint64_t latest_ns;       /* what was read last: time never runs backwards */
  bool counts;              /* the counter can be used */
  colli_trace_moment since; /* the rate is that since this moment, */
  colli_trace_moment next;  /* and after a while since this one */
} colli_trace_clock;

/* Whether the kernel keeps time with the counter, which then runs at a constant rate on all
 * processors. */
bool colli_trace_clock_counts(void);

/* Starts a clock; without `counts`, reading it asks the kernel each time. */
void colli_trace_clock_start(colli_trace_clock *clock, bool counts);

/* Reads it when the last comparison is too old. */
__attribute__((cold)) uint64_t colli_trace_clock_compare(colli_trace_clock *clock);

/* Nanoseconds of CLOCK_MONOTONIC at a moment a short while ago, or now for `ticks` 0; never less
 * than before. Not from two threads at once. */
static inline uint64_t colli_trace_clock_read(colli_trace_clock *clock, uint64_t ticks) {
  const uint64_t since = (ticks ? ticks : colli_ticks()) - clock->last.ticks;
  uint64_t ns;
  if (__builtin_expect(since < clock->valid_ticks, 1))
    ns = clock->last.ns + (since * clock->rate >> 32);
  else
    ns = colli_trace_clock_compare(clock);
  if (ns > clock->latest_ns)
    clock->latest_ns = ns;
  return clock->latest_ns;
}

#endif
