/* verbs_fault.h: what failed in the verbs transport, on its way to the error record. */
#ifndef COLLI_TRANSPORTS_VERBS_FAULT_H
#define COLLI_TRANSPORTS_VERBS_FAULT_H

#include "coll/coll.h"

#define VERBS_DETAIL_BYTES 400

typedef struct verbs_fault {
  coll_status status;
  int sys_errno;
  const char *syscall; /* the call that failed, or NULL */
  char detail[VERBS_DETAIL_BYTES];
} verbs_fault;

/* Fills in a fault with a printf-like sentence and returns its status. */
coll_status verbs_fault_set(verbs_fault *fault, coll_status status, const char *syscall,
                            int sys_errno, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

#endif
