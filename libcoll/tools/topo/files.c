/* files.c: files that coll_topo writes: whole, or not at all. */
#include "libcoll/tools/topo/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libcoll/base/file.h"

/* Whether a new file may take the place of what is there. It must not replace a device, a pipe, or
 * a link to a file. */
static bool is_replaceable(const char *path) {
  struct stat there;
  return lstat(path, &there) != 0 || S_ISREG(there.st_mode);
}

bool topo_file_open(topo_file *file, const char *path) {
  *file = (topo_file){.out = stdout, .path = path};
  if (strcmp(path, "-") == 0)
    return true;
  file->out = is_replaceable(path) ? colli_file_draft(path, file->draft, sizeof(file->draft))
                                   : fopen(path, "we");
  if (file->out == NULL)
    fprintf(stderr, "coll_topo: %s: %s\n", path, strerror(errno));
  return file->out != NULL;
}

/* Closes a file that has its own name: 0, or an errno. */
static int close_named(const topo_file *file) {
  const bool bad = ferror(file->out) != 0;
  if ((file->out == stdout ? fflush(file->out) : fclose(file->out)) != 0)
    return errno;
  return bad ? EIO : 0;
}

int topo_file_close(topo_file *file, bool made) {
  int failed = 0;
  if (file->draft[0] == '\0') {
    failed = close_named(file);
  } else if (made) {
    failed = colli_file_publish(file->out, file->draft, file->path);
  } else {
    (void)fclose(file->out);
    (void)unlink(file->draft);
  }
  if (failed)
    fprintf(stderr, "coll_topo: %s: cannot be written: %s\n", file->path, strerror(failed));
  return failed || !made;
}

bool topo_files_of_another(void) {
  const char *rank = getenv("COLL_RANK");
  return rank != NULL && strcmp(rank, "0") != 0;
}
