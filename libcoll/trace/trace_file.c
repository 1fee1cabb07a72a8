/* trace_file.c: creates, allocates and maps the file of a trace. */
#include "libcoll/trace/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "libcoll/base/fork.h"

#define MOST_FILES 1000 /* of one name */

/* Writes the name of a rank's file; false if it is too long. */
static bool expand(const char *path, int rank, char name[PATH_MAX]) {
  const char *mark = strstr(path, "%r");
  int used = mark ? snprintf(name, PATH_MAX, "%.*s%d%s", (int)(mark - path), path, rank, mark + 2)
                  : snprintf(name, PATH_MAX, "%s.%d", path, rank);
  return used + 8 < PATH_MAX; /* room for a number */
}

/* Creates a file that does not exist, with a number behind its name if need be: its descriptor, or
 * -1 with errno. */
static int create_new(char name[PATH_MAX]) {
  size_t length = strlen(name);
  for (int number = 1; number <= MOST_FILES; number++) {
    if (number > 1)
      snprintf(name + length, PATH_MAX - length, ".%d", number);
    int fd = COLLI_FD(open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (fd >= 0 || errno != EEXIST)
      return fd;
  }
  errno = EEXIST;
  return -1;
}

/* Allocates the file's blocks: 0, or an errno. More than the limit on files would be a signal. */
static int allocate(int fd, size_t bytes) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes)
    return EFBIG;
  return posix_fallocate(fd, 0, (off_t)bytes);
}

coll_status colli_trace_file_open(colli_trace_file *file, const char *path, int rank, size_t bytes,
                                  coll_error *error) {
  char name[PATH_MAX];
  *file = (colli_trace_file){.fd = -1, .bytes = bytes};
  if (!expand(path, rank, name))
    return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                           "COLL_TRACE=%.100s...: the path is too long", path);
  file->fd = create_new(name);
  if (file->fd < 0)
    return colli_error_sys(error, COLL_ERR_SYSTEM, "create", "open", errno,
                           "COLL_TRACE=%s: cannot create %s; name a file in a directory that "
                           "exists and can be written to, on every host",
                           path, name);
  int failed = allocate(file->fd, bytes);
  const char *call = "posix_fallocate";
  void *at = MAP_FAILED;
  if (!failed) {
    call = "mmap";
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file->fd, 0);
    failed = at == MAP_FAILED ? errno : 0;
  }
  if (!failed) {
    file->at = at;
    return COLL_OK;
  }
  unlink(name);
  colli_fd_close(file->fd);
  file->fd = -1;
  return colli_error_sys(error, COLL_ERR_SYSTEM, "create", call, failed,
                         "COLL_TRACE=%s: cannot allocate %zu bytes for %s; name a file on a disk "
                         "with more room, or set COLL_TRACE_BYTES",
                         path, bytes, name);
}

void colli_trace_file_close(colli_trace_file *file) {
  if (!file->at)
    return;
  munmap(file->at, file->bytes);
  if (ftruncate(file->fd, (off_t)file->used) != 0)
    file->used = file->bytes; /* its rest is padding, which readers skip */
  colli_fd_close(file->fd);
  file->at = NULL;
}
