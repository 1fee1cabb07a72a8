/* file.c: a whole file in memory. */
#include "trainer/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool file_map(file_bytes *file, const char *path, fail *why) {
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  *file = (file_bytes){.data = NULL};
  if (fd < 0)
    return fail_set(why, "%s: %s", path, strerror(errno));
  bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
  if (!ok)
    fail_set(why, "%s: not a regular file", path);
  else if (st.st_size == 0)
    ok = fail_set(why, "%s: empty", path);
  void *data = ok ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
  if (ok && data == MAP_FAILED)
    ok = fail_set(why, "%s: mmap: %s", path, strerror(errno));
  if (ok)
    *file = (file_bytes){.data = data, .bytes = (size_t)st.st_size, .mapped = true};
  close(fd);
  return ok;
}

void file_free(file_bytes *file) {
  if (file->mapped)
    munmap(file->data, file->bytes);
  else
    free(file->data);
  *file = (file_bytes){.data = NULL};
}
