/*
 * ticks.c: prints how often in a millisecond the processor counts its time stamp counter, which a
 * guest of tests/vm/run sees as it is. A guest that finds out by itself on a busy host may be wrong
 * by far, and its clock with it. Prints nothing, and fails, on processors that have no such
 * counter.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef __x86_64__
#include <x86intrin.h>

#define LOOKS    1000              /* of which the shortest counts: this process may be held up */
#define PAUSE_NS (200 * 1000000ll) /* between the two moments */

/* A moment on both clocks. */
typedef struct moment {
  uint64_t ticks;
  int64_t ns;
} moment;

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static moment look(void) {
  moment best = {0};
  uint64_t shortest = UINT64_MAX;
  for (int i = 0; i < LOOKS; i++) {
    uint64_t before = __rdtsc();
    int64_t ns = now_ns();
    uint64_t took = __rdtsc() - before;
    if (took < shortest) {
      shortest = took;
      best = (moment){before + took / 2, ns};
    }
  }
  return best;
}

int main(void) {
  moment first = look();
  nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
  moment last = look();
  printf("%.0f\n", (double)(last.ticks - first.ticks) * 1e6 / (double)(last.ns - first.ns));
  return EXIT_SUCCESS;
}

#else

int main(void) {
  return EXIT_FAILURE;
}

#endif
