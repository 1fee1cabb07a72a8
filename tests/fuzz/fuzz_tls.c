/* fuzz_tls.c: what an attacker between two ranks sends in place of their TLS handshake, and after
 * it. */
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "libcoll/net/tls.h"

/* Lets two honest ends shake hands on a pair of sockets, and frees the first one. */
static void shake_honestly(int fd, colli_tls *tls, const uint8_t *key) {
  colli_tls *other = colli_tls_open(fd, true, false, key);
  int results[2] = {-1, -1};
  if (!other)
    abort();
  for (int i = 0; i < 8 && (results[0] || results[1]); i++) {
    results[0] = colli_tls_shake(other);
    results[1] = colli_tls_shake(tls);
  }
  if (results[0] || results[1])
    abort();
  colli_tls_close(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static const uint8_t key[COLLI_TLS_KEY_BYTES] = "nobody between can know this one";
  for (int stage = 0; stage < 3; stage++) { /* acceptor; connector; acceptor after the handshake */
    int fds[2];
    char byte;
    struct iovec iov = {&byte, 1};
    if (bytes > 60000 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0)
      return 0;
    colli_tls *tls = colli_tls_open(fds[0], stage == 1, false, key);
    if (!tls)
      abort();
    if (stage == 2)
      shake_honestly(fds[1], tls, key);
    if (bytes && send(fds[1], data, bytes, MSG_NOSIGNAL) < 0)
      abort();
    shutdown(fds[1], SHUT_WR);
    for (int i = 0; i < 4; i++)
      if ((stage < 2 && colli_tls_shake(tls) == 0) || colli_tls_recv(tls, &iov, 1) > 0)
        abort(); /* without the key */
    colli_tls_close(tls);
    close(fds[0]);
    close(fds[1]);
  }
  return 0;
}
