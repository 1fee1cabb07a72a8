/* trace_file.h: the file of a trace: allocated at once, mapped, cut to its used length at the end.
 */
#ifndef COLLI_TRACE_TRACE_FILE_H
#define COLLI_TRACE_TRACE_FILE_H

#include "coll/coll.h"

typedef struct colli_trace_file {
  int fd;
  uint8_t *at; /* NULL: not open */
  size_t bytes, used;
} colli_trace_file;

/* Creates the file of a rank; see colli_trace_open(). */
coll_status colli_trace_file_open(colli_trace_file *file, const char *path, int rank, size_t bytes,
                                  coll_error *error);

/* Cuts the file to its used length and closes it. */
void colli_trace_file_close(colli_trace_file *file);

#endif
