/* support_tapped.c: two ends of a connection with TLS, and an enemy between them. */
#include "tests/tls/support_tapped.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint8_t key[COLLI_TLS_KEY_BYTES] = {7, 7, 7};
static const uint8_t other_key[COLLI_TLS_KEY_BYTES] = {7, 7, 8};

/* Two connected sockets with room for what the tests send. */
static void make_pair(int *end, int *enemy) {
  int fds[2];
  const int room = 4 << 20;
  cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  for (int i = 0; i < 2; i++)
    cr_assert_eq(setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
  *end = fds[0];
  *enemy = fds[1];
}

static tapped open_with(const uint8_t acceptor_key[COLLI_TLS_KEY_BYTES]) {
  tapped t;
  make_pair(&t.connector_fd, &t.to_connector);
  make_pair(&t.acceptor_fd, &t.to_acceptor);
  t.connector = colli_tls_open(t.connector_fd, true, false, key);
  t.acceptor = colli_tls_open(t.acceptor_fd, false, true, acceptor_key);
  cr_assert(t.connector && t.acceptor);
  return t;
}

tapped tapped_open(void) {
  return open_with(key);
}

tapped tapped_open_strangers(void) {
  return open_with(other_key);
}

/* Passes on what one end has sent: how many bytes. */
static size_t pass_on(int from, int to, tapped_enemy enemy, void *arg, size_t at) {
  uint8_t bytes[4096];
  ssize_t got = recv(from, bytes, sizeof(bytes), MSG_DONTWAIT);
  if (got <= 0)
    return 0;
  if (enemy)
    enemy(arg, bytes, (size_t)got, at);
  send(to, bytes, (size_t)got, MSG_NOSIGNAL);
  return (size_t)got;
}

size_t tapped_shake(tapped *t, tapped_enemy enemy, void *arg, int results[2]) {
  size_t total = 0, moved = 1;
  for (int idle = 0; idle < 2; idle = moved ? 0 : idle + 1) {
    results[0] = colli_tls_shake(t->connector);
    results[1] = colli_tls_shake(t->acceptor);
    moved = pass_on(t->to_connector, t->to_acceptor, enemy, arg, total);
    moved += pass_on(t->to_acceptor, t->to_connector, enemy, arg, total + moved);
    total += moved;
  }
  return total;
}

tapped tapped_shaken(void) {
  tapped t = tapped_open();
  int results[2];
  tapped_shake(&t, NULL, NULL, results);
  cr_assert_eq(results[0], COLL_T_DONE);
  cr_assert_eq(results[1], COLL_T_DONE);
  return t;
}

void tapped_close(tapped *t) {
  colli_tls_close(t->connector);
  colli_tls_close(t->acceptor);
  close(t->connector_fd);
  close(t->acceptor_fd);
  close(t->to_connector);
  close(t->to_acceptor);
}

size_t tapped_record(colli_tls *from, int enemy, const void *bytes, size_t count, uint8_t *wire,
                     size_t most) {
  struct iovec iov = {(void *)bytes, count};
  cr_assert_eq(colli_tls_send(from, &iov, 1), (ssize_t)count);
  ssize_t got = recv(enemy, wire, most, MSG_DONTWAIT);
  cr_assert_gt(got, (ssize_t)count);
  return (size_t)got;
}

void tapped_send(int enemy, const void *bytes, size_t count) {
  cr_assert_eq(send(enemy, bytes, count, MSG_NOSIGNAL), (ssize_t)count);
}

int tapped_receive(colli_tls *to, void *bytes, size_t count) {
  struct iovec iov = {bytes, count};
  ssize_t got = colli_tls_recv(to, &iov, 1);
  return got < 0 ? -errno : (int)got;
}
