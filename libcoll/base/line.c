/* line.c: a text that is built piece by piece. */
#include "libcoll/base/line.h"

#include <stdarg.h>
#include <stdio.h>

void colli_line_add(colli_line *line, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int wrote = vsnprintf(line->text + line->used, line->bytes - line->used, format, args);
  va_end(args);
  line->used += wrote > 0 ? (size_t)wrote : 0;
  if (line->used >= line->bytes)
    line->used = line->bytes - 1;
}
