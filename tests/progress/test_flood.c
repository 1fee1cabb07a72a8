/*
 * test_flood.c: a program that calls often makes progress itself: its calls neither wake the
 * progress thread each time nor wait for it.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/proc/support_ranks.h"

enum { ROUNDS = 20000, RANKS = 4 };

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

static int flood_rank(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  RANK_CHECK(exchange(comm, rank, 10) == 0); /* connects */
  const long thread = find_other_thread();
  RANK_CHECK(thread > 0);
  const long before = count_sleeps(thread);
  RANK_CHECK(exchange(comm, rank, ROUNDS) == 0);
  const long sleeps = count_sleeps(thread) - before;
  if (sleeps >= ROUNDS / 2)
    fprintf(stderr, "rank %d: the thread slept %ld times in %d rounds\n", rank, sleeps, ROUNDS);
  RANK_CHECK(before >= 0 && sleeps < ROUNDS / 2);
  return 0;
}

Test(flood, calls_do_not_wake_the_thread, .timeout = 60) {
  coll_config config = COLL_CONFIG_INIT;
  int results[RANKS];
  config.transport = "shm";
  config.progress = COLL_PROGRESS_ON;
  run_processes(RANKS, &config, flood_rank, NULL, 50, results);
  for (int r = 0; r < RANKS; r++)
    cr_expect_eq(results[r], 0, "rank %d ended with %d", r, results[r]);
}
