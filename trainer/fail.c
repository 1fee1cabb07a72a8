/* fail.c: one line that says why something failed. */
#include "trainer/fail.h"

#include <stdarg.h>
#include <stdio.h>

bool fail_set(fail *why, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(why->text, sizeof(why->text), format, args);
  va_end(args);
  return false;
}

bool fail_memory(fail *why, const char *what) {
  return fail_set(
      why, "out of memory for %s: use a smaller model or batch, or fewer ranks per host", what);
}

bool fail_coll(fail *why, const coll_comm *comm, coll_status status, const char *doing) {
  coll_error error = COLL_ERROR_INIT;
  if (coll_last_error(comm, &error) != COLL_OK || error.status == COLL_OK)
    return fail_set(why, "%s: %s", doing, coll_status_name(status));
  why->lost = error.status == COLL_ERR_PEER_LOST || error.status == COLL_ERR_TIMEOUT;
  return fail_set(why, "%s: %s: %s", doing, coll_status_name(error.status), error.message);
}
