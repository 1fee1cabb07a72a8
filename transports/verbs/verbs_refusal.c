/* verbs_refusal.c: why no port can be a rail: the reason of the one that came furthest. */
#include <stdarg.h>
#include <stdio.h>

#include "transports/verbs/verbs_device_internal.h"

void verbs_refuse(verbs_refusal *refusal, verbs_refusal_stage stage, coll_status status,
                  const char *syscall, int sys_errno, const char *format, ...) {
  refusal->ports = (int)stage == refusal->stage ? refusal->ports + 1 : refusal->ports;
  if ((int)stage <= refusal->stage)
    return;
  char text[VERBS_DETAIL_BYTES];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  refusal->stage = (int)stage;
  refusal->ports = 1;
  verbs_fault_set(&refusal->fault, status, syscall, sys_errno, "%s", text);
}
