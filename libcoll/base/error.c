/* error.c: filling in the public error record. */
#include "libcoll/base/error.h"
#include "libcoll/base/libc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void colli_error_clear(coll_error *error) {
  *error = (coll_error)COLL_ERROR_INIT;
}

/* Clears a record and fills in the fields that both kinds of failure have. */
static void fill_record(coll_error *error, coll_status status, const char *operation,
                        const char *message) {
  colli_error_clear(error);
  error->status = status;
  snprintf(error->operation, sizeof(error->operation), "%s", operation ? operation : "");
  snprintf(error->message, sizeof(error->message), "%s", message);
}

coll_status colli_error_set(coll_error *error, coll_status status, const char *operation,
                            const char *format, ...) {
  if (!error)
    return status;
  /* The arguments may point into the record, so the text is formatted elsewhere first. */
  char text[sizeof(error->message)];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  fill_record(error, status, operation, text);
  return status;
}

coll_status colli_error_sys(coll_error *error, coll_status status, const char *operation,
                            const char *syscall, int sys_errno, const char *format, ...) {
  if (!error)
    return status;
  char text[sizeof(error->message)], reason[96];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  /* A long message is truncated to make room for the reason. */
  snprintf(reason, sizeof(reason), " (%.32s: %.48s)", syscall,
           strerrordesc_np(sys_errno) ?: "unknown error");
  size_t used = strlen(text), most = sizeof(text) - 1 - strlen(reason);
  strcpy(text + (used < most ? used : most), reason);
  fill_record(error, status, operation, text);
  error->sys_errno = sys_errno;
  snprintf(error->syscall, sizeof(error->syscall), "%s", syscall);
  return status;
}

void colli_error_terminate(coll_error *error) {
  error->size = sizeof(*error);
  error->operation[sizeof(error->operation) - 1] = 0;
  error->syscall[sizeof(error->syscall) - 1] = 0;
  error->host[sizeof(error->host) - 1] = 0;
  error->peer_host[sizeof(error->peer_host) - 1] = 0;
  error->message[sizeof(error->message) - 1] = 0;
}

void colli_error_copy(coll_error *to, const coll_error *from) {
  size_t size = to->size;
  size_t known = size < sizeof(*from) ? size : sizeof(*from);
  if (known <= sizeof(size))
    return;
  memcpy((char *)to + sizeof(size), (const char *)from + sizeof(size), known - sizeof(size));
}
