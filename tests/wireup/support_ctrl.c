/* support_ctrl.c: the sockets of control links. */
#include "support_ctrl.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "libcoll/net/sockets.h"
#include "libcoll/wireup/resolve.h"

void ctrl_pair(int fds[2]) {
  int listener, count;
  uint16_t port;
  colli_addr addr;
  coll_error error = COLL_ERROR_INIT;
  cr_assert_eq(colli_net_listen("", &listener, &port, &error), COLL_OK);
  colli_net_parse("127.0.0.1:1", 0, &addr, 1, &count, &error);
  addr.port = port;
  fds[0] = colli_net_connect(&addr);
  struct pollfd pfd = {.fd = listener, .events = POLLIN};
  poll(&pfd, 1, 2000);
  fds[1] = colli_net_accept(listener);
  cr_assert(fds[0] >= 0 && fds[1] >= 0);
  close(listener);
}

colli_sealed ctrl_unkeyed(int fd) {
  return (colli_sealed){.fd = fd, .send_key = {1}, .recv_key = {1}};
}
