/* ask.c: asks a service; part of collctl, which trusts nothing that it gets. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "libcoll/base/fork.h"
#include "libcoll/status/copy.h"
#include "libcoll/status/service.h"

#define ANSWER_S     70                  /* for all; a desk gives up after 60 */
#define ANSWER_BYTES (UINT64_C(4) << 30) /* of all copies, since they are kept in memory */

/* Reads all of some bytes by that time. */
static bool read_all(int fd, void *to, size_t bytes, uint64_t until_ns) {
  for (size_t done = 0; done < bytes;) {
    uint64_t now_ns = colli_now_ns();
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    if (now_ns >= until_ns ||
        (poll(&ready, 1, (int)((until_ns - now_ns) / COLLI_NS_PER_MS) + 1) < 0 && errno != EINTR))
      return false;
    ssize_t got = recv(fd, (char *)to + done, bytes - done, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN))
      return false;
    done += got > 0 ? (size_t)got : 0;
  }
  return true;
}

/* Reads one copy of at most *room bytes: 1: found() was called, and *room is less; 0: it was
 * refused; -1: that was all, or no more comes. */
static int read_copy(int fd, uint64_t comm_id, uint64_t until_ns, uint64_t *room,
                     void (*found)(void *ctx, colli_status_head *copy), void *ctx) {
  uint64_t bytes;
  if (!read_all(fd, &bytes, sizeof(bytes), until_ns) || bytes == 0 ||
      bytes > COLLI_STATUS_COPY_MOST || bytes > *room)
    return -1;
  colli_status_head *copy = malloc(bytes < sizeof(*copy) ? sizeof(*copy) : bytes);
  if (!copy || !read_all(fd, copy, bytes, until_ns)) {
    free(copy);
    return -1;
  }
  if (colli_status_check(copy, bytes) || copy->comm_id != comm_id) {
    free(copy);
    return 0;
  }
  *room -= bytes;
  found(ctx, copy);
  return 1;
}

/* Connects with a desk, or returns -1. SO_SNDTIMEO is for connect(), which waits while too many
 * others do. */
static int dial_desk(const char *desk) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  size_t length = strnlen(desk, COLLI_STATUS_DESK - 1);
  memcpy(address.sun_path + 1, desk, length);
  length += offsetof(struct sockaddr_un, sun_path) + 1;
  const struct timeval patience = {.tv_sec = ANSWER_S};
  int fd = COLLI_FD(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0 &&
      connect(fd, (const struct sockaddr *)&address, (socklen_t)length) == 0)
    return fd;
  if (fd >= 0)
    colli_fd_close(fd);
  return -1;
}

int colli_status_ask(const char *desk, uint64_t comm_id,
                     void (*found)(void *ctx, colli_status_head *copy), void *ctx) {
  const uint64_t until_ns = colli_now_ns() + ANSWER_S * 1000 * COLLI_NS_PER_MS;
  uint64_t room = ANSWER_BYTES;
  int fd = dial_desk(desk);
  if (fd < 0)
    return -1;
  int count = 0;
  for (int i = 0; i < COLLI_STATUS_RANKS; i++) {
    int result = read_copy(fd, comm_id, until_ns, &room, found, ctx);
    if (result < 0)
      break;
    count += result;
  }
  colli_fd_close(fd);
  return count;
}
