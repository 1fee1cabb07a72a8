/* trace_clock.c: compares the processor's counter with CLOCK_MONOTONIC. */
#include "libcoll/trace/trace_clock.h"

#include <stdio.h>
#include <string.h>

#define PERIOD_NS (10 * COLLI_NS_PER_MS) /* between comparisons */
#define BASE_NS   COLLI_NS_PER_S         /* over at least so long the rate is measured in the end */
#define READINGS  3                      /* of which the least disturbed counts */
#define TICK      4294967296.0           /* the unit of colli_trace_clock.rate, of a nanosecond */

/* The kernel corrects its clock's rate by 0.05 % at most. */
#define MOST_CHANGE 0.002

#if defined(__x86_64__)
#define COUNTER "tsc\n"
#elif defined(__aarch64__)
#define COUNTER "arch_sys_counter\n"
#else
#define COUNTER ""
#endif

bool colli_trace_clock_counts(void) {
  char name[32] = "";
  FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
  if (!file)
    return false;
  const bool read = fgets(name, sizeof(name), file) != NULL;
  fclose(file);
  return read && strcmp(name, COUNTER) == 0;
}

/* Reads counter and clock at the same time, as nearly as possible. */
static colli_trace_moment compare_once(void) {
  colli_trace_moment best = {0, 0};
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < READINGS; i++) {
    const uint64_t before = colli_ticks(), ns = colli_now_ns(), took = colli_ticks() - before;
    if (took >= least)
      continue;
    least = took;
    best = (colli_trace_moment){before + took / 2, ns};
  }
  return best;
}

void colli_trace_clock_start(colli_trace_clock *clock, bool counts) {
  *clock = (colli_trace_clock){.counts = counts};
  clock->last = clock->since = clock->next = compare_once();
}

/* Takes over a rate; false if it is not the rate from before: the counter was stopped or set. */
static bool set_rate(colli_trace_clock *clock, double rate) {
  const double before = (double)clock->rate / TICK;
  if (clock->rate && (rate < before * (1 - MOST_CHANGE) || rate > before * (1 + MOST_CHANGE)))
    return false;
  clock->rate = (uint64_t)(rate * TICK);
  clock->valid_ticks = (uint64_t)((double)PERIOD_NS / rate);
  return true;
}

uint64_t colli_trace_clock_compare(colli_trace_clock *clock) {
  const uint64_t ns = colli_now_ns();
  if (!clock->counts || ns - clock->since.ns < PERIOD_NS)
    return ns;
  const colli_trace_moment now = compare_once();
  const double ticks = (double)now.ticks - (double)clock->since.ticks;
  clock->last = now;
  if (ticks <= 0 || !set_rate(clock, (double)(now.ns - clock->since.ns) / ticks)) {
    colli_trace_clock_start(clock, true);
  } else if (now.ns - clock->next.ns >= BASE_NS) {
    clock->since = clock->next;
    clock->next = now;
  }
  return now.ns;
}
