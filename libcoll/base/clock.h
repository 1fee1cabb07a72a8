/* clock.h: monotonic time. */
#ifndef COLLI_BASE_CLOCK_H
#define COLLI_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define COLLI_NS_PER_MS 1000000ull
#define COLLI_NS_PER_S  1000000000ull

/* Nanoseconds of a clock that never goes back (CLOCK_MONOTONIC). */
static inline uint64_t colli_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * COLLI_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* The time that all ranks of a communicator share, in traces: CLOCK_MONOTONIC of rank 0's host plus
 * a constant, which makes it the time of day of the rank that made its id, or of rank 0, when the
 * first communicator was created. */
typedef struct colli_shared_time {
  uint64_t zero_ns;  /* what this rank adds to its own CLOCK_MONOTONIC; 0: not known */
  int64_t offset_ns; /* rank 0's CLOCK_MONOTONIC less this rank's; zero_ns contains it */
  uint64_t error_ns; /* by how much zero_ns may be wrong */
} colli_shared_time;

/* A counter of the processor that runs at a constant rate, which is not known; much faster to read
 * than a clock. Another processor's may be ahead by less than a message takes. */
static inline uint64_t colli_ticks(void) {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t ticks;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return colli_now_ns();
#endif
}

/* Tells the processor that this is a spin loop. */
static inline void colli_cpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

#endif
