/* verbs_fault.c: fills in what failed. */
#include "transports/verbs/verbs_fault.h"

#include <stdarg.h>
#include <stdio.h>

coll_status verbs_fault_set(verbs_fault *fault, coll_status status, const char *syscall,
                            int sys_errno, const char *format, ...) {
  fault->status = status;
  fault->syscall = syscall;
  fault->sys_errno = sys_errno;
  va_list args;
  va_start(args, format);
  vsnprintf(fault->detail, sizeof(fault->detail), format, args);
  va_end(args);
  return status;
}
