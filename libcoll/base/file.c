/* file.c: opens, and replaces, files that settings name. */
#include "libcoll/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libcoll/base/prng.h"

int colli_file_open(const char *path, size_t most, char *why, size_t why_bytes) {
  struct stat info;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0 || fstat(fd, &info) != 0) {
    snprintf(why, why_bytes, "%s", strerror(errno));
  } else if (!S_ISREG(info.st_mode)) {
    snprintf(why, why_bytes, "it is not a regular file");
  } else if ((uint64_t)info.st_size > most) {
    snprintf(why, why_bytes, "it has %lld bytes, more than the %zu that are allowed",
             (long long)info.st_size, most);
  } else {
    return fd;
  }
  if (fd >= 0)
    close(fd);
  return -1;
}

FILE *colli_file_stream(const char *path, size_t most, char *why, size_t why_bytes) {
  int fd = colli_file_open(path, most, why, why_bytes);
  FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
  if (fd >= 0 && !file) {
    snprintf(why, why_bytes, "%s", strerror(errno));
    close(fd);
  }
  return file;
}

FILE *colli_file_draft(const char *path, char *draft, size_t bytes) {
  uint64_t suffix;
  int failed = colli_random_secret(&suffix, sizeof(suffix));
  if (!failed && snprintf(draft, bytes, "%s.%016" PRIx64, path, suffix) >= (int)bytes)
    failed = ENAMETOOLONG;
  if (failed) {
    errno = failed;
    return NULL;
  }
  /* Not mkstemp(): its files are private, whatever the umask is. */
  int fd = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
  if (fd >= 0 && !file) {
    int sys_errno = errno;
    close(fd);
    unlink(draft);
    errno = sys_errno;
  }
  return file;
}

int colli_file_publish(FILE *file, const char *draft, const char *path) {
  int failed = ferror(file) ? EIO : 0;
  if (fclose(file) != 0 && !failed)
    failed = errno;
  if (!failed && rename(draft, path) != 0)
    failed = errno;
  if (failed)
    unlink(draft);
  return failed;
}
