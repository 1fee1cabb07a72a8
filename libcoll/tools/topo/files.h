/* files.h: files that coll_topo writes: whole, or not at all. */
#ifndef COLLI_TOOLS_TOPO_FILES_H
#define COLLI_TOOLS_TOPO_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

typedef struct topo_file {
  FILE *out;
  const char *path;     /* "-": standard output */
  char draft[PATH_MAX]; /* its name until it is complete; "": it has no other name */
} topo_file;

/* Begins to write a file. False once it has printed why not. */
bool topo_file_open(topo_file *file, const char *path);

/* Ends it; if not `made`, what was there before stays. The exit status, once it has printed what
 * the system says against it. */
int topo_file_close(topo_file *file, bool made);

/* Whether rank 0 of a collrun's run writes what this process would write as well. */
bool topo_files_of_another(void);

#endif
