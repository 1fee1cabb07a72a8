/* shm_watch.c: descriptors that an endpoint watches. */
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/base/fork.h"

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
