/* unix_socket.c: Unix sockets, and descriptors that pass through them. */
#include "libcoll/net/unix_socket.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/fork.h"

int colli_unix_listen(int backlog, struct sockaddr_un *address, socklen_t *bytes,
                      const char **syscall) {
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  *bytes = sizeof *address;
  *syscall = "socket";
  const int fd = COLLI_FD(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd < 0)
    return -1;
  int failed = bind(fd, (struct sockaddr *)address, sizeof(sa_family_t));
  *syscall = "bind";
  if (!failed) {
    failed = listen(fd, backlog);
    *syscall = "listen";
  }
  if (!failed) {
    failed = getsockname(fd, (struct sockaddr *)address, bytes);
    *syscall = "getsockname";
  }
  const size_t name_bytes = *bytes - offsetof(struct sockaddr_un, sun_path);
  if (!failed && (name_bytes < 2 || name_bytes > COLLI_UNIX_NAME)) {
    failed = -1;
    errno = ENAMETOOLONG;
  }
  if (!failed)
    return fd;
  const int error = errno;
  colli_fd_close(fd);
  errno = error;
  return -1;
}

bool colli_unix_is_same_user(int sock, uid_t uid, pid_t *pid) {
  struct ucred cred;
  socklen_t bytes = sizeof cred;
  if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) != 0)
    return false;
  *pid = cred.pid;
  errno = EACCES;
  return cred.uid == uid || cred.uid == geteuid();
}

int colli_unix_send(int sock, const void *message, size_t bytes, const int *fds, int count) {
  union {
    struct cmsghdr align;
    char space[CMSG_SPACE(COLLI_UNIX_FDS * sizeof(int))];
  } control;
  struct iovec part = {(void *)(uintptr_t)message, bytes};
  struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
  memset(&control, 0, sizeof control);
  if (count > 0) {
    header.msg_control = control.space;
    header.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&header);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
    memcpy(CMSG_DATA(cmsg), fds, (size_t)count * sizeof(int));
  }
  ssize_t sent;
  do {
    sent = sendmsg(sock, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0)
    return -1;
  if ((size_t)sent != bytes) {
    errno = EMSGSIZE;
    return -1;
  }
  return 0;
}

/* Takes the descriptors out of a received message; returns how many. */
static int take_fds(struct msghdr *header, int fds[COLLI_UNIX_FDS]) {
  int taken = 0;
  for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(header); cmsg; cmsg = CMSG_NXTHDR(header, cmsg)) {
    if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
      continue;
    size_t came = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < came && taken < COLLI_UNIX_FDS; i++, taken++) {
      memcpy(&fds[taken], CMSG_DATA(cmsg) + i * sizeof(int), sizeof(int));
      colli_fd_enlist(fds[taken]);
    }
  }
  return taken;
}

int colli_unix_recv(int sock, void *message, size_t bytes, int *fds, int count) {
  union {
    struct cmsghdr align;
    char space[CMSG_SPACE(COLLI_UNIX_FDS * sizeof(int))];
  } control;
  struct iovec part = {message, bytes};
  struct msghdr header = {.msg_iov = &part,
                          .msg_iovlen = 1,
                          .msg_control = control.space,
                          .msg_controllen = sizeof control.space};
  ssize_t got;
  int all[COLLI_UNIX_FDS], taken = 0;
  colli_fork_hold();
  do {
    got = recvmsg(sock, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got >= 0)
    taken = take_fds(&header, all);
  colli_fork_release();
  if (got < 0)
    return -1;
  bool fine = taken >= count && (size_t)got == bytes && !(header.msg_flags & MSG_CTRUNC);
  for (int i = 0; i < taken; i++) {
    if (fine && i < count)
      fds[i] = all[i];
    else
      colli_fd_close(all[i]);
  }
  if (fine)
    return 1;
  if (got == 0)
    return 0;
  errno = (size_t)got == bytes && (header.msg_flags & MSG_CTRUNC) ? EMFILE : EPROTO;
  return -1;
}
