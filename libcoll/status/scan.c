/* scan.c: finds the status pages of this host. The kernel decides whose: /proc/PID/fd is open to
 * the same user, and to root. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libcoll/base/fork.h"
#include "libcoll/status/copy.h"

#define LINK_TEXT "/memfd:" COLLI_STATUS_NAME " (deleted)"

/* What a process does, as in proc(5), and its number as it sees itself. False: it is gone. */
static bool look_at_process(int pid, uint8_t *state, int *own_pid) {
  char path[40], text[4096];
  snprintf(path, sizeof(path), "/proc/%d/status", pid);
  int fd = COLLI_FD(open(path, O_RDONLY | O_CLOEXEC));
  if (fd < 0)
    return false;
  ssize_t bytes = read(fd, text, sizeof(text) - 1);
  colli_fd_close(fd);
  if (bytes <= 0)
    return false;
  text[bytes] = '\0';
  const char *at = strstr(text, "\nState:\t");
  *state = at ? (uint8_t)at[8] : '?';
  *own_pid = pid;
  at = strstr(text, "\nNSpid:");
  for (const char *end = at ? strchr(at + 1, '\n') : NULL; end && at < end;) {
    char *next;
    long number = strtol(at + (*at == '\n' ? 7 : 0), &next, 10);
    if (next == at || next > end)
      break;
    *own_pid = (int)number; /* the last one is of the innermost namespace */
    at = next;
    while (at < end && (*at == '\t' || *at == ' '))
      at++;
  }
  return true;
}

/* Opens a folder, or returns NULL with errno. A rank's service does so, too: fork() must know. */
static DIR *open_folder(const char *path) {
  int fd = COLLI_FD(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
  if (fd >= 0 && !folder) {
    int error = errno;
    colli_fd_close(fd);
    errno = error;
  }
  return folder;
}

static void close_folder(DIR *folder) {
  colli_fork_hold();
  colli_fd_delist(dirfd(folder));
  closedir(folder);
  colli_fork_release();
}

/* Opens a descriptor of another process, if it is a status page; else -1. */
static int open_page(int folder_fd, const char *name) {
  char target[sizeof(LINK_TEXT) + 1];
  struct stat info;
  ssize_t length = readlinkat(folder_fd, name, target, sizeof(target));
  if (length != sizeof(LINK_TEXT) - 1 || memcmp(target, LINK_TEXT, sizeof(LINK_TEXT) - 1) != 0 ||
      fstatat(folder_fd, name, &info, 0) != 0 || !S_ISREG(info.st_mode))
    return -1;
  return COLLI_FD(openat(folder_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

int colli_status_scan_until(int pid, void (*found)(void *ctx, colli_status_head *copy),
                            bool (*enough)(const void *ctx), void *ctx) {
  char path[40];
  snprintf(path, sizeof(path), "/proc/%d/fd", pid);
  DIR *folder = open_folder(path);
  if (!folder)
    return -1;
  int count = 0;
  struct dirent *entry;
  while (!(enough && enough(ctx)) && (entry = readdir(folder)) != NULL) {
    int fd = open_page(dirfd(folder), entry->d_name);
    if (fd < 0)
      continue;
    colli_status_head *copy;
    int own_pid;
    uint8_t state;
    (void)colli_status_copy(fd, &copy);
    colli_fd_close(fd);
    /* A child that was not made by fork() has its parent's descriptors. */
    if (copy && look_at_process(pid, &state, &own_pid) && own_pid == copy->pid) {
      copy->seen_pid = pid;
      copy->state = state;
      found(ctx, copy);
      count++;
    } else {
      free(copy);
    }
  }
  close_folder(folder);
  return count;
}

int colli_status_scan_process(int pid, void (*found)(void *ctx, colli_status_head *copy),
                              void *ctx) {
  return colli_status_scan_until(pid, found, NULL, ctx);
}

int colli_status_scan(void (*found)(void *ctx, colli_status_head *copy), void *ctx) {
  DIR *folder = open_folder("/proc");
  if (!folder)
    return errno;
  for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
    char *end;
    long pid = strtol(entry->d_name, &end, 10);
    if (pid > 0 && pid <= INT_MAX && !*end)
      (void)colli_status_scan_process((int)pid, found, ctx);
  }
  close_folder(folder);
  return 0;
}
