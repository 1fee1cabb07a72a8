/* support_ranks.h: runs one function on many ranks, as threads or as processes. */
#ifndef TESTS_SUPPORT_RANKS_H
#define TESTS_SUPPORT_RANKS_H

#include <coll/coll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

/* One rank's work; returns 0, or a failure code from 1 to 125. */
typedef int (*rank_fn)(coll_comm *comm, int rank, int nranks, void *arg);

/*
 * Runs fn on `nranks` threads over coll_comm_create_local; each destroys its communicator. Returns
 * 0 if all returned 0, else the lowest rank's other value, or -1 if creation failed.
 */
int run_threads(int nranks, const coll_config *config, rank_fn fn, void *arg);

/*
 * Runs fn in `nranks` forked processes, with coll_unique_id and coll_comm_create. TEST_MAKER in the
 * environment: the rank that makes the id (% nranks), instead of 0. Waits at most
 * limit_s seconds, or until only stopped processes are left, and then kills those. results[r]
 * (results may be NULL) is rank r's exit status, 128 + signal, or 124 if it had to be killed.
 * Returns 0 if all are 0, else the lowest rank's other value.
 */
int run_processes(int nranks, const coll_config *config, rank_fn fn, void *arg, int limit_s,
                  int *results);

/* How many transports a test of two tries: one if TEST_TRANSPORT replaces both. */
int transports_tried(void);

/* Runs fn with 1, 1 + step, ... up to `most` threads, and then with that many processes, over both
 * transports, with and without the progress thread. 0 if all returned 0. */
int run_in_all_ways(int most, int step, int processes, rank_fn fn, void *arg);

/* Seconds of a monotonic clock. */
double now_s(void);

/*
 * The virtual machine of tests/vm sets TEST_SLOW to how many times slower it is. slow_ms() scales a
 * wait that a test makes on purpose; run_processes() scales limit_s the same way. slow_s() scales a
 * limit that no correct run comes near, by the square: that costs no time, and the machine below
 * may be busy.
 */
double slow_s(double seconds);
int slow_ms(int ms);

/* Zeroed memory that ranks share, as processes too; it is never given back. */
void *shared_memory(size_t bytes);

/*
 * Who is in a call: each rank says so right before it, and others wait until it waits there, i.e.
 * its thread sleeps. In shared_memory().
 */
typedef struct callers {
  atomic_int thread[16];
} callers;

/* This rank makes the call next. */
void enters_call(callers *c, int rank);

/* Whether that rank waits in the call; whether all ranks do but one (-1: all). */
bool waits_in_call(callers *c, int rank);
bool all_wait_in_call(callers *c, int nranks, int but);

/* The number of open descriptors of this process. */
int count_fds(void);

/* Fails a rank function, and prints where. */
#define RANK_CHECK(condition)                                                                      \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, rank, #condition);               \
      return 1;                                                                                    \
    }                                                                                              \
  } while (0)

/* The same for a call that must give COLL_OK; prints the communicator's record. */
#define RANK_OK(call)                                                                              \
  do {                                                                                             \
    coll_status status_ = (call);                                                                  \
    if (status_ != COLL_OK) {                                                                      \
      coll_error error_ = COLL_ERROR_INIT;                                                         \
      coll_last_error(comm, &error_);                                                              \
      fprintf(stderr, "%s:%d: rank %d: %s: %s: %s\n", __FILE__, __LINE__, rank, #call,             \
              coll_status_name(status_), error_.message);                                          \
      return 1;                                                                                    \
    }                                                                                              \
  } while (0)

#endif
