/*
 * killed.h: the lines that tests/chaos/peers/run reads from each rank of each library:
 *   pid RANK PID            at the start
 *   round RANK              the first operation is done
 *   error RANK SECONDS MESSAGE   an operation failed after so many seconds inside it
 *   on RANK RANKS           10 more operations worked, with so many ranks
 *   off RANK MESSAGE        they did not
 * in the file rankRANK of a folder. Ranks run operations without end: all-reduces of 1 KiB, or
 * broadcasts of 64 MiB from rank 0.
 */
#ifndef TESTS_CHAOS_PEERS_KILLED_H
#define TESTS_CHAOS_PEERS_KILLED_H

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { KILLED_SHORT = 256, KILLED_LONG = 16 << 20, KILLED_MORE = 10 };

static inline double killed_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Each rank has a file of its own in the folder, since launchers mix lines. */
static inline void killed_begin(const char *folder, int rank) {
  char path[4096];
  snprintf(path, sizeof path, "%s/rank%d", folder, rank);
  if (!freopen(path, "w", stdout))
    _exit(3);
  setvbuf(stdout, NULL, _IOLBF, 8192);
  printf("pid %d %d\n", rank, (int)getpid());
}

static inline void killed_error(int rank, double since, const char *message) {
  printf("error %d %.3f ", rank, killed_now() - since);
  for (; *message; message++)
    putchar(*message == '\n' ? ' ' : *message);
  putchar('\n');
}

#endif
