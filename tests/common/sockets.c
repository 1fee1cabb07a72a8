/* sockets.c: sockets for tests. */
#include "sockets.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "libcoll/net/sockets.h"

void tcp_pair(int fds[2]) {
  int listener;
  colli_addr addr = {.family = 4, .ip = {127, 0, 0, 1}};
  coll_error error = COLL_ERROR_INIT;
  if (colli_net_listen("", &listener, &addr.port, &error) != COLL_OK)
    abort();
  fds[0] = colli_net_connect(&addr);
  poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 2000);
  fds[1] = colli_net_accept(listener);
  if (fds[0] < 0 || fds[1] < 0)
    abort();
  close(listener);
}

bool tcp_peer(int fd, char text[INET6_ADDRSTRLEN]) {
  struct sockaddr_in6 peer = {0};
  int protocol = 0;
  socklen_t bytes = sizeof(peer), word = sizeof(protocol);
  if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &word) != 0 || protocol != IPPROTO_TCP ||
      getpeername(fd, (struct sockaddr *)&peer, &bytes) != 0)
    return false;
  const void *address = peer.sin6_family == AF_INET6
                            ? (const void *)&peer.sin6_addr
                            : &((const struct sockaddr_in *)&peer)->sin_addr;
  return inet_ntop(peer.sin6_family, address, text, INET6_ADDRSTRLEN) != NULL;
}
