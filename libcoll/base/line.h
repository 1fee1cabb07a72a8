/* line.h: a text that is built piece by piece in a buffer, and cut at the buffer's end. */
#ifndef COLLI_BASE_LINE_H
#define COLLI_BASE_LINE_H

#include <stddef.h>

typedef struct colli_line {
  char *text; /* of `bytes` bytes, with a zero behind the first `used` ones */
  size_t bytes, used;
} colli_line;

/* Appends a piece, as printf() does. */
void colli_line_add(colli_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
