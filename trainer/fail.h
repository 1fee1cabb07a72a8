/* fail.h: the one-line story of why something cannot go on. */
#ifndef TRAINER_FAIL_H
#define TRAINER_FAIL_H

#include <coll/coll.h>
#include <stdbool.h>

/* Functions that can fail return false and fill one of these; the text has no line break. */
typedef struct fail {
  char text[800];
  bool everywhere; /* every rank found the same: one of them says it */
  bool lost;       /* a rank is gone: the others can go on without it (coll_comm_shrink) */
} fail;

/* Writes the text; always returns false, so that a caller can `return fail_set(...)`. */
bool fail_set(fail *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Memory for `what` could not be had. */
bool fail_memory(fail *why, const char *what);

/* A libcoll call failed: takes the message of the communicator's record. */
bool fail_coll(fail *why, const coll_comm *comm, coll_status status, const char *doing);

#endif
