/* base.c: failures, and files in memory. */
#include "trainer/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

bool succeeded(fail *why, const coll_comm *comm, coll_status status, const char *doing) {
  coll_error error = COLL_ERROR_INIT;
  if (status == COLL_OK)
    return true;
  if (coll_last_error(comm, &error) != COLL_OK || error.status == COLL_OK)
    return fail_set(why, "%s: %s", doing, coll_status_name(status));
  why->lost = error.status == COLL_ERR_PEER_LOST || error.status == COLL_ERR_TIMEOUT;
  return fail_set(why, "%s: %s: %s", doing, coll_status_name(error.status), error.message);
}

bool file_path(char path[PATH_MAX], const char *folder, const char *name, fail *why) {
  int length = snprintf(path, PATH_MAX, "%s/%s", folder, name);
  return (length >= 0 && length < PATH_MAX) ||
         fail_set(why, "%.200s...: the path is too long", folder);
}

bool file_map(file_bytes *file, const char *path, fail *why) {
  struct stat st;
  void *data = MAP_FAILED;
  /* Nonblocking: opening a named pipe must not hang. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  *file = (file_bytes){.data = NULL};
  if (fd < 0)
    return fail_set(why, "%s: %s", path, strerror(errno));
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
    fail_set(why, "%s: not a regular file", path);
  else if (st.st_size == 0)
    fail_set(why, "%s: empty: truncated or never written", path);
  else if ((data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0)) == MAP_FAILED)
    fail_set(why, "%s: mmap: %s", path, strerror(errno));
  else
    *file = (file_bytes){.data = data, .bytes = (size_t)st.st_size, .mapped = true};
  close(fd);
  return file->mapped;
}

void file_free(file_bytes *file) {
  if (file->mapped)
    munmap(file->data, file->bytes);
  else
    free(file->data);
  *file = (file_bytes){.data = NULL};
}
