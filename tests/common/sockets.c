/* sockets.c: sockets for tests. */
#include "sockets.h"

#include <poll.h>
#include <stdlib.h>
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
