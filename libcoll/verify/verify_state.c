/* verify_state.c: records the verifier's objections. */
#include "libcoll/verify/verify_state.h"

#include <stdarg.h>
#include <stdio.h>

/* Notes the first objection. */
bool colli_vobject(colli_verifier *v, int rank, int step, int pass, const char *format, ...) {
  if (v->status != COLL_OK)
    return false;
  v->status = COLL_ERR_INTERNAL;
  size_t used = 0;
  if (v->why_bytes == 0)
    return false;
  if (step >= 0)
    used = (size_t)snprintf(v->why, v->why_bytes, "rank %d, step %d, pass %d: ", rank, step, pass);
  else
    used = (size_t)snprintf(v->why, v->why_bytes, "rank %d: ", rank);
  if (used >= v->why_bytes)
    return false;
  va_list args;
  va_start(args, format);
  vsnprintf(v->why + used, v->why_bytes - used, format, args);
  va_end(args);
  return false;
}

/* Notes that memory ran out. */
bool colli_vno_memory(colli_verifier *v) {
  if (v->status == COLL_OK)
    v->status = COLL_ERR_NO_MEMORY;
  return false;
}
