/* support_bootstrap.h: threads or processes that run only the bootstrap. */
#ifndef TESTS_SUPPORT_BOOTSTRAP_H
#define TESTS_SUPPORT_BOOTSTRAP_H

#include <stdbool.h>

#include "libcoll/wireup/bootstrap.h"

/* One process (or thread) that takes part. */
typedef struct member {
  colli_id id;
  int rank, nranks;
  int timeout_ms;
  int delay_ms;
  int pid; /* what it says its process id is */
  coll_status status;
  coll_error error;
  uint64_t took_ms;
  bool sound; /* table and links are as they should be */
  const char *ifname;
} member;

/* Members 0 .. n-1 as they should be: of one id, whose listener is rank 0's. To be freed. */
member *make_members(int n, int timeout_ms);

/* Takes part once and leaves again; `arg` is a member. */
void *take_part(void *arg);

/* Lets all members take part as threads, but `absent` (-1: nobody is). At most 64. */
void run_members(member *members, int n, int absent);

#endif
