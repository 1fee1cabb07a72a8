/* report.c: turns a transport's report of a failure into an error record. */
#include "libcoll/comm/report.h"

#include <stdio.h>
#include <string.h>

#include "libcoll/base/error.h"

/* Overwrites family->reported; the peer is a rank of the family. */
void colli_family_report(void *ctx, const coll_transport_failure *failure) {
  colli_family *family = ctx;
  coll_error *record = &family->reported;
  colli_error_clear(record);
  record->status = failure->status;
  record->rank = family->rank;
  record->peer = failure->peer;
  record->channel = failure->channel;
  record->sys_errno = failure->sys_errno;
  if (failure->syscall)
    snprintf(record->syscall, sizeof(record->syscall), "%s", failure->syscall);
  size_t used = 0;
  if (failure->syscall && failure->sys_errno)
    used = (size_t)snprintf(record->message, sizeof(record->message), "%s: %s: ", failure->syscall,
                            strerror(failure->sys_errno));
  snprintf(record->message + used, sizeof(record->message) - used, "%s",
           failure->detail ? failure->detail : "the transport gave no reason");
  if (failure->peer < 0)
    family->own_fault = *record;
}
