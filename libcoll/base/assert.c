/* assert.c: the end of a program in which an invariant does not hold. */
#include "libcoll/base/assert.h"

#ifdef COLLI_ASSERTS

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void colli_assert_failed(const char *file, int line, const char *function, const char *condition,
                         int rank) {
  char text[512], who[32] = "";
  if (rank >= 0)
    snprintf(who, sizeof(who), "rank %d, ", rank);
  int length = snprintf(text, sizeof(text),
                        "libcoll: %s:%d: %s%s: does not hold: %s; this is a defect of libcoll\n",
                        file, line, who, function, condition);
  if (length > 0 && write(STDERR_FILENO, text,
                          (size_t)length < sizeof(text) ? (size_t)length : sizeof(text) - 1) < 0)
    abort(); /* nobody reads it */
  abort();
}

#endif
