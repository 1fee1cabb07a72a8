/* clock.h: monotonic time. */
#ifndef COLLI_BASE_CLOCK_H
#define COLLI_BASE_CLOCK_H

#include <stdint.h>

#define COLLI_NS_PER_MS 1000000ull
#define COLLI_NS_PER_S  1000000000ull

/* Nanoseconds of a clock that never goes back (CLOCK_MONOTONIC). */
uint64_t colli_now_ns(void);

/* Tells the processor that this is a spin loop. */
static inline void colli_cpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

#endif
