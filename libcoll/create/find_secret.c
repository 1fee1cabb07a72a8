/* find_secret.c: takes the secret from a descriptor, a file or the environment. */
#include "libcoll/create/find_secret.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/base/file.h"
#include "libcoll/base/fork.h"

#define TEXT_AT    512 /* in the secret's page: text that is not parsed yet */
#define TEXT_BYTES 128 /* of it that are read: the digits, and some line ends */

#define ADVICE                                                                                     \
  "it takes 64 hexadecimal digits, the same on all ranks; make them with: openssl rand -hex 32"

/* The secret that this process has found. A later communicator needs it after its source is used
 * up, and nobody else could keep it, so this is the one variable of libcoll that is global. */
static struct {
  pthread_mutex_t mutex;
  colli_secret *secret;
} found = {PTHREAD_MUTEX_INITIALIZER, NULL};

/* Empties a variable, so that neither children nor /proc/self/environ show it. The entry stays,
 * because other threads may be reading the list of variables. */
static void empty_variable(const char *name) {
  size_t length = strlen(name);
  for (char **entry = environ; entry && *entry; entry++) {
    if (strncmp(*entry, name, length) != 0 || (*entry)[length] != '=')
      continue;
    char *value = *entry + length + 1;
    size_t bytes = strlen(value);
    /* putenv() may have been given a constant. The kernel's answer tells that without a signal. */
    for (size_t at = 0; at < bytes; at += 256)
      if (getrandom(value + at, bytes - at < 256 ? bytes - at : 256, GRND_NONBLOCK) < 0 &&
          errno == EFAULT) {
        *entry = (char *)""; /* ignored by getenv() and execve() alike */
        return;
      }
    explicit_bzero(value, bytes);
  }
}

/* Reads what a descriptor has, up to a line end, the end, or `bytes`. Returns 0 or an errno. */
static int read_text(int fd, uint64_t deadline_ns, char *text, size_t bytes) {
  size_t done = 0;
  while (done < bytes && !memchr(text, '\n', done)) {
    /* collrun's ranks share an open file, so they must not move its position. */
    ssize_t got = pread(fd, text + done, bytes - done, (off_t)done);
    if (got < 0 && errno == ESPIPE) {
      uint64_t now = colli_now_ns();
      struct pollfd ready = {.fd = fd, .events = POLLIN};
      int wait_ms = now < deadline_ns ? (int)((deadline_ns - now) / COLLI_NS_PER_MS + 1) : 0;
      int result = poll(&ready, 1, wait_ms);
      if (result == 0)
        return ETIMEDOUT;
      got = result < 0 ? -1 : read(fd, text + done, bytes - done);
    }
    if (got == 0)
      return 0;
    if (got < 0 && errno != EINTR && errno != EAGAIN)
      return errno;
    done += got > 0 ? (size_t)got : 0;
  }
  return 0;
}

/* Reads and parses a descriptor's text. 0 or an errno; EINVAL: it is no secret. */
static int read_secret(int fd, uint64_t deadline_ns, colli_secret *secret) {
  char *text = (char *)secret->bytes + TEXT_AT;
  int failed = read_text(fd, deadline_ns, text, TEXT_BYTES);
  if (failed == 0 && !colli_secret_parse(secret, text))
    failed = EINVAL;
  explicit_bzero(text, TEXT_BYTES);
  return failed;
}

/* Takes the secret from COLL_SECRET_FD. */
static coll_status take_descriptor(const colli_params *params, uint64_t deadline_ns,
                                   colli_secret *secret, coll_error *error) {
  const char *name = colli_param_table[COLLI_PARAM_SECRET_FD].name;
  int fd = (int)params->number[COLLI_PARAM_SECRET_FD];
  int failed = read_secret(fd, deadline_ns, secret);
  if (failed == EINVAL)
    return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                           "what can be read from %s=%d is no secret: " ADVICE, name, fd);
  if (failed == ETIMEDOUT)
    return colli_error_set(
        error, COLL_ERR_TIMEOUT, "create",
        "%s=%d: nobody wrote the secret into it in time (COLL_CREATE_TIMEOUT_MS)", name, fd);
  if (failed)
    return colli_error_sys(error, COLL_ERR_INVALID_USAGE, "create", "read", failed,
                           "%s=%d cannot be read; a program between the launcher and this one must "
                           "leave it open, and only one may read a pipe",
                           name, fd);
  colli_fd_close(fd);
  empty_variable(name);
  return COLL_OK;
}

/* Takes the secret from COLL_SECRET_FILE, which must be private. */
static coll_status take_file(const char *path, colli_secret *secret, coll_error *error) {
  char why[160];
  struct stat info;
  int fd = colli_file_open(path, 4096, why, sizeof(why)), failed = 0;
  if (fd >= 0 && fstat(fd, &info) != 0) {
    snprintf(why, sizeof(why), "%s", strerror(errno));
    failed = errno;
  } else if (fd >= 0 && info.st_uid != geteuid() && info.st_uid != 0) {
    failed = EPERM;
    snprintf(why, sizeof(why), "it belongs to another user (%u)", info.st_uid);
  } else if (fd >= 0 && (info.st_mode & 077) != 0) {
    failed = EPERM;
    snprintf(why, sizeof(why), "other users may read or write it (mode %o); chmod 600 it",
             info.st_mode & 0777);
  } else if (fd >= 0 && (failed = read_secret(fd, 0, secret)) != 0) {
    snprintf(why, sizeof(why), "%s", failed == EINVAL ? ADVICE : strerror(failed));
  }
  if (fd >= 0)
    colli_fd_close(fd);
  if (fd >= 0 && failed == 0)
    return COLL_OK;
  return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                         "COLL_SECRET_FILE=%s cannot be used: %s", path, why);
}

/* Takes the secret from COLL_SECRET. */
static coll_status take_variable(const char *text, colli_secret *secret, coll_error *error) {
  if (colli_secret_parse(secret, text))
    return COLL_OK;
  return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create", "COLL_SECRET: " ADVICE);
}

/* Takes the secret from the first source that is set, into a fresh page. */
static coll_status take_secret(const colli_params *params, uint64_t deadline_ns,
                               colli_secret *secret, coll_error *error) {
  const char *path = params->text[COLLI_PARAM_SECRET_FILE], *text = getenv("COLL_SECRET");
  if (*params->text[COLLI_PARAM_SECRET_FD])
    return take_descriptor(params, deadline_ns, secret, error);
  if (*path)
    return take_file(path, secret, error);
  if (text && *text)
    return take_variable(text, secret, error);
  /* A forked child finds its parent's secret erased. */
  if (found.secret && colli_secret_present(found.secret->bytes)) {
    memcpy(secret->bytes, found.secret->bytes, COLL_SECRET_BYTES);
    return COLL_OK;
  }
  return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                         "there is no secret: set COLL_SECRET_FILE or COLL_SECRET. " ADVICE);
}

/* Makes a secret the one that this process keeps, unless it is already. Uses up the reference. */
static void keep_secret(colli_secret *secret) {
  if (found.secret && memcmp(found.secret->bytes, secret->bytes, COLL_SECRET_BYTES) == 0) {
    colli_secret_release(secret);
    return;
  }
  colli_secret_release(found.secret);
  found.secret = secret;
}

coll_status colli_find_secret(const colli_params *params, uint64_t deadline_ns,
                              colli_secret **secret, coll_error *error) {
  colli_secret *fresh = colli_secret_create();
  *secret = NULL;
  if (!fresh)
    return colli_error_sys(error, COLL_ERR_NO_MEMORY, "create", "mmap", errno,
                           "cannot allocate a page for the secret; see ulimit -v");
  pthread_mutex_lock(&found.mutex);
  coll_status status = take_secret(params, deadline_ns, fresh, error);
  if (status == COLL_OK) {
    empty_variable("COLL_SECRET"); /* also if another source came first */
    keep_secret(fresh);
    *secret = colli_secret_acquire(found.secret);
  } else {
    colli_secret_release(fresh);
  }
  pthread_mutex_unlock(&found.mutex);
  return status;
}

bool colli_secret_given(const colli_params *params) {
  const char *text = getenv("COLL_SECRET");
  pthread_mutex_lock(&found.mutex);
  bool kept = found.secret && colli_secret_present(found.secret->bytes);
  pthread_mutex_unlock(&found.mutex);
  return kept || *params->text[COLLI_PARAM_SECRET_FD] || *params->text[COLLI_PARAM_SECRET_FILE] ||
         (text && *text);
}
