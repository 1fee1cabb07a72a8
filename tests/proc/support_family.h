/* support_family.h: operations that check whether a communicator works. They return 0 or fail like
 * rank functions. */
#ifndef TESTS_SUPPORT_FAMILY_H
#define TESTS_SUPPORT_FAMILY_H

#include <coll/coll.h>

/*
 * Runs an all-reduce, a broadcast, an all-gather and a ring of messages on `comm`, of `count`
 * elements that depend on `seed`; 0 if all is right. Blocking, on all ranks of comm.
 */
int family_exercise(coll_comm *comm, size_t count, unsigned seed);

/* A nonblocking all-reduce and its buffers. */
typedef struct family_pending {
  coll_comm *comm;
  coll_request *request;
  int *in, *out;
  size_t count;
  unsigned seed;
} family_pending;

/* Starts it; 0 if that went well. */
int family_start(family_pending *pending, coll_comm *comm, size_t count, unsigned seed);

/* Waits for it and checks the result; 0 if it is right. */
int family_finish(family_pending *pending);

#endif
