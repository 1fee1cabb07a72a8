/* fail.h: one line that says why something failed. */
#ifndef TRAINER_FAIL_H
#define TRAINER_FAIL_H

#include <coll/coll.h>
#include <stdbool.h>

/* Functions that can fail return false and fill in one of these. The text has no line break. */
typedef struct fail {
  char text[800];
  bool everywhere; /* all ranks have the same text: only rank 0 prints it */
  bool lost;       /* a rank is lost: the others can continue without it (coll_comm_shrink) */
} fail;

/* Writes the text; always returns false, so that a caller can `return fail_set(...)`. */
bool fail_set(fail *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Out of memory for `what`. */
bool fail_memory(fail *why, const char *what);

/* A libcoll call failed: takes the communicator's error message. `doing`: what was being done. */
bool fail_coll(fail *why, const coll_comm *comm, coll_status status, const char *doing);

#endif
