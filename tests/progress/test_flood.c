/*
 * test_flood.c: a program that calls often makes progress itself: its calls neither wake the
 * progress thread each time nor wait for it. Nor does a call wake it that leaves nothing in flight.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/proc/support_ranks.h"

enum { RANKS = 4, COUNT = 1 << 20 };

/* How often a thread of this process has gone to sleep; -1: it does not exist. */
static long count_sleeps(long thread) {
  static const char name[] = "voluntary_ctxt_switches:";
  char line[256];
  long count = -1;
  snprintf(line, sizeof(line), "/proc/self/task/%ld/status", thread);
  FILE *status = fopen(line, "r");
  while (status && fgets(line, sizeof(line), status))
    if (strncmp(line, name, sizeof(name) - 1) == 0)
      count = strtol(line + sizeof(name) - 1, NULL, 10);
  if (status)
    fclose(status);
  return count;
}

/* The only other thread of this process; -1: there is none, or several. */
static long find_other_thread(void) {
  DIR *dir = opendir("/proc/self/task");
  long other = -1;
  int count = 0;
  for (const struct dirent *entry; dir && (entry = readdir(dir));) {
    const long thread = strtol(entry->d_name, NULL, 10);
    if (thread > 0 && thread != (long)getpid()) {
      other = thread;
      count++;
    }
  }
  if (dir)
    closedir(dir);
  return count == 1 ? other : -1;
}

/* Pairs of ranks exchange messages, each of which leaves an operation in flight for a moment. */
static int exchange(coll_comm *comm, int rank, int rounds) {
  const int peer = rank ^ 1;
  for (int i = 0; i < rounds; i++) {
    int in = -1;
    const int out = i + rank;
    coll_request *requests[2];
    RANK_OK(coll_irecv(&in, 1, COLL_INT32, peer, 0, NULL, comm, &requests[0]));
    RANK_OK(coll_isend(&out, 1, COLL_INT32, peer, 0, comm, &requests[1]));
    RANK_OK(coll_wait(&requests[0], -1));
    RANK_OK(coll_wait(&requests[1], -1));
    RANK_CHECK(in == i + peer);
  }
  return 0;
}

/* All ranks work together, in blocking calls, each of which waits for the other ranks. */
static int reduce(coll_comm *comm, int rank, int rounds) {
  static float values[COUNT];
  for (int i = 0; i < rounds; i++) {
    values[0] = (float)rank;
    RANK_OK(coll_allreduce(values, values, COUNT, COLL_FLOAT32, COLL_SUM, comm));
    RANK_CHECK(values[0] == RANKS * (RANKS - 1) / 2.0f);
  }
  return 0;
}

/* What the ranks of a test do. */
typedef struct flood {
  int (*work)(coll_comm *comm, int rank, int rounds);
  int rounds;
  int most_sleeps;
} flood;

static int flood_rank(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  const flood *f = arg;
  RANK_CHECK(f->work(comm, rank, 10) == 0); /* connects */
  const long thread = find_other_thread();
  RANK_CHECK(thread > 0);
  const long before = count_sleeps(thread);
  RANK_CHECK(f->work(comm, rank, f->rounds) == 0);
  const long sleeps = count_sleeps(thread) - before;
  if (sleeps >= f->most_sleeps)
    fprintf(stderr, "rank %d: the thread slept %ld times in %d rounds\n", rank, sleeps, f->rounds);
  RANK_CHECK(before >= 0 && sleeps < f->most_sleeps);
  return 0;
}

static void run_flood(flood f) {
  coll_config config = COLL_CONFIG_INIT;
  int results[RANKS];
  config.transport = "shm";
  config.progress = COLL_PROGRESS_ON;
  run_processes(RANKS, &config, flood_rank, &f, 50, results);
  for (int r = 0; r < RANKS; r++)
    cr_expect_eq(results[r], 0, "rank %d ended with %d", r, results[r]);
}

Test(flood, calls_do_not_wake_the_thread, .timeout = 60) {
  run_flood((flood){exchange, 20000, 10000});
}

Test(flood, blocking_calls_do_not_wake_the_thread, .timeout = 60) {
  run_flood((flood){reduce, 100, 50});
}
