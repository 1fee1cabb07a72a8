/* shm_watch.c: descriptors that an endpoint watches, and doorbells. */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libcoll/base/fork.h"
#include "libcoll/net/sockets.h"

#include "transports/shm/shm_internal.h"

int shm_watch_add(shm_endpoint *ep, shm_watch *watch) {
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};
  return epoll_ctl(ep->epoll_fd, EPOLL_CTL_ADD, watch->fd, &event);
}

int shm_watch_move(shm_endpoint *ep, shm_watch *watch) {
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};
  return epoll_ctl(ep->epoll_fd, EPOLL_CTL_MOD, watch->fd, &event);
}

void shm_watch_close(shm_endpoint *ep, shm_watch *watch) {
  if (watch->fd >= 0) {
    /* A child that is being forked still holds the socket. Then closing it alone would neither
     * remove it from the epoll nor tell the peer. */
    (void)epoll_ctl(ep->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
    (void)shutdown(watch->fd, SHUT_RDWR);
    colli_fd_close(watch->fd);
    watch->fd = -1;
  }
}

/* Whether writing to a descriptor neither blocks nor raises a signal, as it would with a pipe. If
 * not, errno is EPROTO, or why that cannot be found out. */
static bool is_bell(int fd) {
  struct stat about;
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fstat(fd, &about) != 0)
    return false;
  errno = EPROTO;
  /* Files without a type are those that the kernel makes for eventfd() and the like. */
  return (flags & O_NONBLOCK) && (about.st_mode & S_IFMT) == 0;
}

coll_status shm_bell_check(const shm_handshake *hs, shm_fault *fault) {
  if (hs->local || is_bell(hs->bell_fd)) /* in the same process it is the other endpoint's own */
    return COLL_OK;
  if (colli_errno_is_shortage(errno))
    return shm_fault_set(fault, COLL_ERR_SYSTEM, "fstat", errno, "cannot look at a doorbell");
  return shm_fault_set(fault, COLL_ERR_PROTOCOL, NULL, 0,
                       "the peer passed something other than a doorbell; its process is damaged");
}

void shm_connect_fault(shm_fault *fault, int error) {
  if (colli_errno_is_shortage(error))
    shm_fault_set(fault, COLL_ERR_SYSTEM, "connect", error, "cannot connect a Unix socket");
  else
    shm_fault_set(fault, error == ECONNREFUSED ? COLL_ERR_PEER_LOST : COLL_ERR_SYSTEM, "connect",
                  error,
                  "nobody listens at the peer's Unix socket: its process has ended, or it is in "
                  "another network namespace (then set COLL_TRANSPORT=tcp)");
}
