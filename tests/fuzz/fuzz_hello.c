/* fuzz_hello.c: what a stranger says at a door, and what an impostor answers a rank. */
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "libcoll/net/auth.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static const uint8_t secret[COLL_SECRET_BYTES] = "nobody outside can know this one";
  for (int side = 0; side < 2; side++) {
    int fds[2];
    colli_auth auth;
    if (bytes > 60000 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0)
      return 0;
    if (side == 0)
      colli_auth_accept(&auth, fds[0], secret);
    else
      colli_auth_connect(&auth, fds[0], secret, COLLI_HELLO_DATA, 1, 0, 7, 0);
    if (bytes && send(fds[1], data, bytes, MSG_NOSIGNAL) < 0)
      abort();
    shutdown(fds[1], SHUT_WR);
    for (int i = 0; i < 4; i++)
      if (colli_auth_poll(&auth) == COLL_T_DONE)
        abort(); /* without the secret */
    close(fds[0]);
    close(fds[1]);
  }
  return 0;
}
