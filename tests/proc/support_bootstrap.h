/* support_bootstrap.h: threads or processes that run only the bootstrap. */
#ifndef TESTS_SUPPORT_BOOTSTRAP_H
#define TESTS_SUPPORT_BOOTSTRAP_H

#include <stdatomic.h>
#include <stdbool.h>

#include "libcoll/base/log.h"
#include "libcoll/wireup/bootstrap/bootstrap.h"

/* One process or thread that takes part in a bootstrap. */
typedef struct member {
  colli_id id;
  int rank, nranks;
  int timeout_ms;
  bool (*begins)(void *arg); /* it comes late: once this is so; NULL: at once */
  void *arg;
  int pid; /* the process id that it claims to have */
  colli_log_level log_level;
  atomic_int thread; /* that takes part */
  atomic_bool over;
  coll_status status;
  coll_error error;
  uint64_t took_ms;
  bool sound; /* table and links are correct */
  const char *ifname;
  bool damaged; /* its record is impossible */
} member;

/* Makes correct members 0 .. n-1 of one id, whose listener belongs to rank 0. The caller frees
 * them. */
member *make_members(int n, int timeout_ms);

/* Makes rank `maker` the one that has made the id, and listens; its pid is 4711. The others do not
 * know who it is. */
void give_listener(member *members, int n, int maker);

/* Takes part in a bootstrap and leaves; `arg` is a member. */
void *take_part(void *arg);

/* Conditions on another member (`arg`): it has begun and waits; it has taken part. */
bool member_waits(void *arg);
bool member_is_over(void *arg);

/* Runs all members but `absent` (-1: all) as threads. At most 64. */
void run_members(member *members, int n, int absent);

/* Runs three members, of which rank 1 meets rank 0 through somebody who changes the byte at `place`
 * of the stream to or from rank 0. The caller frees them. */
member *run_through_proxy(bool to_root, size_t place, int timeout_ms);

#endif
