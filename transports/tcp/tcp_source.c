/* tcp_source.c: descriptors that the endpoint's epoll descriptor watches. */
#include <sys/epoll.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/fork.h"
#include "transports/tcp/tcp_internal.h"

/* Has epoll watch a source for `events` (0: for nothing any more): false with errno. */
bool tcp_source_watch(tcp_endpoint *ep, tcp_source *source, uint32_t events) {
  if (events == source->watched)
    return true;
  COLLI_ASSERT(source->fd >= 0);
  int op = !source->watched ? EPOLL_CTL_ADD : !events ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
  struct epoll_event event = {.events = events, .data.ptr = source};
  if (epoll_ctl(ep->epoll_fd, op, source->fd, &event) != 0)
    return false;
  source->watched = events;
  return true;
}

/* Closes a source's descriptor, if it has one. */
void tcp_source_close(tcp_endpoint *ep, tcp_source *source) {
  if (source->fd < 0)
    return;
  tcp_source_watch(ep, source, 0);
  colli_fd_close(source->fd);
  *source = (tcp_source){.fd = -1};
}
