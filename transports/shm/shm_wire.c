/* shm_wire.c: blobs and messages with descriptors. */
#include "transports/shm/shm_wire.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/fork.h"

int shm_blob_read(const uint8_t raw[COLL_BLOB_BYTES], shm_blob *blob) {
  memcpy(blob, raw, sizeof *blob);
  if (blob->magic != SHM_MAGIC || blob->name_bytes < 2 || blob->name_bytes > SHM_ABSTRACT_MAX ||
      blob->name[0] != 0)
    return -1;
  return 0;
}

socklen_t shm_blob_address(const shm_blob *blob, struct sockaddr_un *address) {
  memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  memcpy(address->sun_path, blob->name, blob->name_bytes);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + blob->name_bytes);
}

bool shm_is_same_user(int sock, const shm_blob *self, bool *local) {
  struct ucred cred;
  socklen_t bytes = sizeof cred;
  if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) != 0)
    return false;
  *local = cred.pid == self->pid;
  errno = EACCES;
  return cred.uid == self->uid || cred.uid == geteuid();
}

int shm_send_fds(int sock, const void *message, size_t bytes, const int *fds, int count) {
  union {
    struct cmsghdr align;
    char space[CMSG_SPACE(SHM_MAX_FDS * sizeof(int))];
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
static int take_fds(struct msghdr *header, int fds[SHM_MAX_FDS]) {
  int taken = 0;
  for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(header); cmsg; cmsg = CMSG_NXTHDR(header, cmsg)) {
    if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
      continue;
    size_t came = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < came && taken < SHM_MAX_FDS; i++, taken++) {
      memcpy(&fds[taken], CMSG_DATA(cmsg) + i * sizeof(int), sizeof(int));
      colli_fd_enlist(fds[taken]);
    }
  }
  return taken;
}

int shm_recv_fds(int sock, void *message, size_t bytes, int *fds, int count) {
  union {
    struct cmsghdr align;
    char space[CMSG_SPACE(SHM_MAX_FDS * sizeof(int))];
  } control;
  struct iovec part = {message, bytes};
  struct msghdr header = {.msg_iov = &part,
                          .msg_iovlen = 1,
                          .msg_control = control.space,
                          .msg_controllen = sizeof control.space};
  ssize_t got;
  int all[SHM_MAX_FDS], taken = 0;
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
