/* test_auth.c: the handshake, with honest peers, with other programs, and with attackers. */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/base/prng.h"
#include "libcoll/net/auth.h"
#include "libcoll/net/sockets.h"
#include "libcoll/wireup/resolve.h"
#include "sockets.h"
#include "waits.h"

static const uint8_t secret[COLL_SECRET_BYTES] = "0123456789abcdef0123456789abcde";
static const uint8_t other[COLL_SECRET_BYTES] = "0123456789abcdef0123456789abcdf";

/* A connected pair of nonblocking sockets: Unix, or TCP over loopback. */
static void make_pair(bool tcp, int fds[2]) {
  if (tcp)
    tcp_pair(fds);
  else
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
}

/* Drives two handshakes until neither makes progress; the acceptor answers `accepted`. */
static void run_both(colli_auth *connector, colli_auth *acceptor, bool accepted, int results[2]) {
  bool answered = false;
  results[0] = results[1] = COLL_T_AGAIN;
  for (int turn = 0; turn < 2000 && (results[0] == COLL_T_AGAIN || results[1] == COLL_T_AGAIN);
       turn++) {
    if (results[0] == COLL_T_AGAIN)
      results[0] = colli_auth_poll(connector);
    if (results[1] == COLL_T_AGAIN)
      results[1] = colli_auth_poll(acceptor);
    if (results[1] == COLL_T_DONE && !answered) {
      cr_assert_eq(colli_auth_answer(acceptor, accepted), 0);
      answered = true;
    }
    if (results[1] > 0)
      shutdown(acceptor->fd, SHUT_RDWR); /* as every caller would close it */
    struct pollfd fds[2] = {{.fd = results[0] == COLL_T_AGAIN ? connector->fd : -1},
                            {.fd = results[1] == COLL_T_AGAIN ? acceptor->fd : -1}};
    fds[0].events = colli_auth_events(connector);
    fds[1].events = colli_auth_events(acceptor);
    (void)poll(fds, 2, fds[0].fd < 0 && fds[1].fd < 0 ? 0 : 1000);
  }
}

Test(auth, known_answer) {
  /* HMAC-SHA-256 with a key of 32 bytes 0x0b over "Hi There", from another implementation. */
  static const uint8_t expected[COLLI_MAC_BYTES] = {0x19, 0x8a, 0x60, 0x7e, 0xb4, 0x4b, 0xfb, 0xc6,
                                                    0x99, 0x03, 0xa0, 0xf1, 0xcf, 0x2b, 0xbd, 0xc5,
                                                    0xba, 0x0a, 0xa3, 0xf3, 0xd9, 0xae, 0x3c, 0x1c,
                                                    0x7a, 0x3b, 0x16, 0x96, 0xa0, 0xb6, 0x8c, 0xf7};
  uint8_t key[COLL_SECRET_BYTES], mac[COLLI_MAC_BYTES];
  memset(key, 0x0b, sizeof(key));
  cr_assert(colli_hmac(key, "Hi There", 8, mac));
  cr_assert_arr_eq(mac, expected, sizeof(mac));
}

Test(auth, right_secret_and_nothing_read_beyond) {
  for (int tcp = 0; tcp < 2; tcp++) {
    int fds[2], results[2];
    char text[8] = "";
    colli_auth connector, acceptor;
    make_pair(tcp, fds);
    colli_auth_connect(&connector, fds[0], secret, COLLI_HELLO_DATA, 3, 5, 77, 9);
    colli_auth_accept(&acceptor, fds[1], secret);
    cr_assert_eq(colli_auth_events(&connector), POLLOUT);
    cr_assert_eq(colli_auth_events(&acceptor), POLLIN);
    run_both(&connector, &acceptor, true, results);
    cr_assert_eq(results[0], COLL_T_DONE);
    cr_assert_eq(results[1], COLL_T_DONE);
    cr_assert_eq(acceptor.hello.kind, COLLI_HELLO_DATA);
    cr_assert_eq(acceptor.hello.src_rank, 3);
    cr_assert_eq(acceptor.hello.dst_rank, 5);
    cr_assert_eq(acceptor.hello.comm_id, 77);
    cr_assert_eq(acceptor.hello.word, 9);
    for (int i = 0; i < 2; i++) { /* nothing is left in the socket in either direction */
      cr_assert_eq(send(fds[i], "hello", 5, 0), 5);
      struct pollfd pfd = {.fd = fds[1 - i], .events = POLLIN};
      poll(&pfd, 1, 1000);
      cr_assert_eq(recv(fds[1 - i], text, sizeof(text), 0), 5);
      cr_assert_str_eq(text, "hello");
    }
    close(fds[0]);
    close(fds[1]);
  }
}

Test(auth, data_may_follow_at_once) {
  int fds[2], result;
  char text[8] = "";
  colli_auth connector, acceptor;
  make_pair(false, fds);
  colli_auth_connect(&connector, fds[0], secret, COLLI_HELLO_DATA, 0, 1, 7, 0);
  colli_auth_accept(&acceptor, fds[1], secret);
  colli_auth_poll(&connector);
  colli_auth_poll(&acceptor);
  colli_auth_poll(&connector);
  cr_assert_eq(send(fds[0], "early", 5, 0), 5); /* behind the proof, before the answer */
  cr_assert_eq(colli_auth_poll(&acceptor), COLL_T_DONE);
  cr_assert_eq(colli_auth_answer(&acceptor, true), 0);
  cr_assert_eq(send(fds[1], "reply", 5, 0), 5);
  while ((result = colli_auth_poll(&connector)) == COLL_T_AGAIN) {
  }
  cr_assert_eq(result, COLL_T_DONE);
  cr_assert_eq(recv(fds[1], text, sizeof(text), 0), 5);
  cr_assert_str_eq(text, "early");
  cr_assert_eq(recv(fds[0], text, sizeof(text), 0), 5);
  cr_assert_str_eq(text, "reply");
}

Test(auth, wrong_secret_is_found_by_both) {
  for (int tcp = 0; tcp < 2; tcp++) {
    int fds[2], results[2];
    colli_auth connector, acceptor;
    make_pair(tcp, fds);
    colli_auth_connect(&connector, fds[0], other, COLLI_HELLO_CHECKIN, 3, 0, 77, 0);
    colli_auth_accept(&acceptor, fds[1], secret);
    cr_assert_null(memmem(&acceptor, sizeof(acceptor), secret, sizeof(secret)), "a copy");
    run_both(&connector, &acceptor, true, results);
    cr_assert_eq(results[0], COLL_ERR_AUTH);
    cr_assert_eq(results[1], COLL_ERR_AUTH);
    cr_assert_eq(colli_auth_poll(&connector), COLL_ERR_AUTH, "the error lasts");
    cr_assert_null(connector.secret);
    close(fds[0]);
    close(fds[1]);
  }
}

Test(auth, refused_by_a_caller_that_wants_another_rank) {
  int fds[2], results[2];
  colli_auth connector, acceptor;
  make_pair(true, fds);
  colli_auth_connect(&connector, fds[0], secret, COLLI_HELLO_CONTROL, 3, 4, 77, 0);
  colli_auth_accept(&acceptor, fds[1], secret);
  run_both(&connector, &acceptor, false, results);
  cr_assert_eq(results[1], COLL_T_DONE);
  cr_assert_eq(acceptor.hello.dst_rank, 4);
  cr_assert_eq(results[0], COLL_ERR_PEER_LOST);
  shutdown(fds[1], SHUT_RDWR);
  int status = colli_auth_poll(&connector);
  cr_assert_eq(status, COLL_ERR_PEER_LOST);
}

/* What an acceptor returns after these bytes; if `then_close`, the other side closes afterwards. */
static int accept_bytes(const void *bytes, size_t count, bool then_close) {
  int fds[2];
  colli_auth acceptor;
  make_pair(false, fds);
  colli_auth_accept(&acceptor, fds[1], secret);
  cr_assert_eq(send(fds[0], bytes, count, 0), (ssize_t)count);
  if (then_close)
    close(fds[0]);
  int result = colli_auth_poll(&acceptor);
  for (int i = 0; i < 3 && result == COLL_T_AGAIN; i++)
    result = colli_auth_poll(&acceptor);
  if (!then_close)
    close(fds[0]);
  close(fds[1]);
  return result;
}

Test(auth, random_bytes_to_the_acceptor) {
  colli_prng prng = {20260101};
  for (int round = 0; round < 500; round++) {
    uint64_t junk[64];
    for (size_t i = 0; i < 64; i++)
      junk[i] = colli_prng_next(&prng);
    size_t bytes = 8 + colli_prng_below(&prng, sizeof(junk) - 8);
    cr_assert_eq(accept_bytes(junk, bytes, round % 2), COLL_ERR_PROTOCOL, "round %d", round);
  }
  cr_assert_eq(accept_bytes("GET / HTTP/1.0\r\n\r\n", 18, false), COLL_ERR_PROTOCOL);
}

Test(auth, wrong_version_magic_and_kind) {
  colli_auth model;
  int fds[2];
  make_pair(false, fds);
  colli_auth_connect(&model, fds[0], secret, COLLI_HELLO_DATA, 0, 1, 7, 0);
  cr_assert_eq(accept_bytes(&model.hello, sizeof(model.hello), false), COLL_T_AGAIN);
  for (size_t byte = 0; byte < 8; byte++) {
    colli_hello hello = model.hello;
    ((uint8_t *)&hello)[byte] ^= 0x40;
    cr_assert_eq(accept_bytes(&hello, sizeof(hello), false), COLL_ERR_PROTOCOL, "byte %zu", byte);
    cr_assert_eq(accept_bytes(&hello, 8, false), COLL_ERR_PROTOCOL, "noticed from the head alone");
  }
}

Test(auth, a_hello_that_was_altered) {
  colli_auth model;
  int fds[2];
  make_pair(false, fds);
  colli_auth_connect(&model, fds[0], secret, COLLI_HELLO_DATA, 0, 1, 7, 0);
  for (size_t byte = 8; byte < sizeof(model.hello); byte++) {
    colli_hello hello = model.hello;
    ((uint8_t *)&hello)[byte] ^= 0x40;
    cr_assert_eq(accept_bytes(&hello, sizeof(hello), false), COLL_ERR_AUTH, "byte %zu", byte);
  }
}

Test(auth, every_truncation_is_noticed) {
  colli_auth model;
  int fds[2];
  make_pair(false, fds);
  colli_auth_connect(&model, fds[0], secret, COLLI_HELLO_DATA, 0, 1, 7, 0);
  for (size_t bytes = 0; bytes < sizeof(model.hello); bytes++) {
    cr_assert_eq(accept_bytes(&model.hello, bytes, true), COLL_ERR_PEER_LOST, "%zu", bytes);
    cr_assert_eq(accept_bytes(&model.hello, bytes, false), COLL_T_AGAIN, "%zu", bytes);
  }
}

Test(auth, random_bytes_to_the_connector) {
  colli_prng prng = {7};
  for (int round = 0; round < 200; round++) {
    int fds[2], result;
    uint64_t junk[20];
    colli_auth connector;
    make_pair(false, fds);
    colli_auth_connect(&connector, fds[0], secret, COLLI_HELLO_DATA, 0, 1, 7, 0);
    colli_auth_poll(&connector);
    for (size_t i = 0; i < 20; i++)
      junk[i] = colli_prng_next(&prng);
    cr_assert_eq(send(fds[1], junk, sizeof(junk), 0), (ssize_t)sizeof(junk));
    while ((result = colli_auth_poll(&connector)) == COLL_T_AGAIN) {
    }
    cr_assert_eq(result, COLL_ERR_AUTH);
    close(fds[0]);
    close(fds[1]);
  }
}

Test(auth, an_invalid_answer) {
  int fds[2];
  colli_auth connector, acceptor;
  make_pair(false, fds);
  colli_auth_connect(&connector, fds[0], secret, COLLI_HELLO_DATA, 0, 1, 7, 0);
  colli_auth_accept(&acceptor, fds[1], secret);
  colli_auth_poll(&connector);
  colli_auth_poll(&acceptor);
  colli_auth_poll(&connector);
  cr_assert_eq(send(fds[1], "\7", 1, 0), 1);
  cr_assert_eq(colli_auth_poll(&connector), COLL_ERR_PROTOCOL);
}

Test(auth, a_recorded_handshake_is_worth_nothing) {
  int fds[2], results[2];
  colli_auth connector, acceptor;
  make_pair(false, fds);
  colli_auth_connect(&connector, fds[0], secret, COLLI_HELLO_DATA, 0, 1, 7, 0);
  colli_auth_accept(&acceptor, fds[1], secret);
  run_both(&connector, &acceptor, true, results);
  cr_assert_eq(results[0], COLL_T_DONE);
  uint8_t recorded[sizeof(colli_hello) + COLLI_MAC_BYTES];
  memcpy(recorded, &connector.hello, sizeof(colli_hello));
  memcpy(recorded + sizeof(colli_hello), acceptor.buf,
         COLLI_MAC_BYTES); /* its proof, as it was sent */
  cr_assert_eq(accept_bytes(recorded, sizeof(recorded), false), COLL_ERR_AUTH);
}

Test(auth, a_mirrored_proof_is_worth_nothing) {
  /* An attacker sends the acceptor's own proof back to it. */
  int fds[2];
  colli_auth model, acceptor;
  uint8_t challenge[COLLI_NONCE_BYTES + COLLI_MAC_BYTES];
  make_pair(false, fds);
  colli_auth_connect(&model, fds[0], secret, COLLI_HELLO_DATA, 0, 1, 7, 0);
  colli_auth_accept(&acceptor, fds[1], secret);
  cr_assert_eq(send(fds[0], &model.hello, sizeof(model.hello), 0), (ssize_t)sizeof(model.hello));
  cr_assert_eq(colli_auth_poll(&acceptor), COLL_T_AGAIN);
  cr_assert_eq(recv(fds[0], challenge, sizeof(challenge), 0), (ssize_t)sizeof(challenge));
  cr_assert_eq(send(fds[0], challenge + COLLI_NONCE_BYTES, COLLI_MAC_BYTES, 0), COLLI_MAC_BYTES);
  cr_assert_eq(colli_auth_poll(&acceptor), COLL_ERR_AUTH);
}

Test(auth, a_changed_hello_is_noticed) {
  for (size_t byte = 8; byte < sizeof(colli_hello); byte += 5) {
    int fds[2], middle[2], results[2] = {COLL_T_AGAIN, COLL_T_AGAIN};
    colli_auth connector, acceptor;
    make_pair(false, fds);
    make_pair(false, middle);
    colli_auth_connect(&connector, fds[0], secret, COLLI_HELLO_DATA, 0, 1, 7, 0);
    colli_auth_accept(&acceptor, middle[1], secret);
    colli_auth_poll(&connector);
    uint8_t bytes[256];
    ssize_t got = recv(fds[1], bytes, sizeof(bytes), 0);
    bytes[byte] ^= 1;
    cr_assert_eq(send(middle[0], bytes, (size_t)got, 0), got);
    for (int turn = 0; turn < 10; turn++) {
      if (results[1] == COLL_T_AGAIN)
        results[1] = colli_auth_poll(&acceptor);
      if ((got = recv(middle[0], bytes, sizeof(bytes), 0)) > 0)
        cr_assert_eq(send(fds[1], bytes, (size_t)got, MSG_NOSIGNAL), got);
      if (results[0] == COLL_T_AGAIN)
        results[0] = colli_auth_poll(&connector);
      if ((got = recv(fds[1], bytes, sizeof(bytes), 0)) > 0)
        cr_assert_eq(send(middle[0], bytes, (size_t)got, MSG_NOSIGNAL), got);
    }
    cr_assert_eq(results[0], COLL_ERR_AUTH, "byte %zu", byte);
    cr_assert_eq(results[1], COLL_ERR_AUTH, "byte %zu", byte);
    for (int i = 0; i < 2; i++) {
      close(fds[i]);
      close(middle[i]);
    }
  }
}

Test(auth, silence_ends_at_the_deadline) {
  int fds[2];
  colli_auth acceptor, connector;
  make_pair(false, fds);
  colli_auth_accept(&acceptor, fds[1], secret);
  colli_auth_connect(&connector, fds[0], secret, COLLI_HELLO_DATA, 0, 1, 7, 0);
  uint64_t wait_ns = acceptor.deadline_ns - colli_now_ns();
  cr_assert_leq(wait_ns, COLLI_AUTH_DEADLINE_MS * COLLI_NS_PER_MS);
  cr_assert_gt(wait_ns, (COLLI_AUTH_DEADLINE_MS - 2000) * COLLI_NS_PER_MS);
  cr_assert_eq(colli_auth_poll(&acceptor), COLL_T_AGAIN);
  acceptor.deadline_ns = connector.deadline_ns = colli_now_ns() - 1;
  cr_assert_eq(colli_auth_poll(&acceptor), COLL_ERR_TIMEOUT);
  cr_assert_eq(colli_auth_poll(&connector), COLL_ERR_TIMEOUT);
}

Test(auth, a_closed_socket_raises_no_signal) {
  for (int tcp = 0; tcp < 2; tcp++) {
    int fds[2], result;
    colli_auth connector, acceptor;
    make_pair(tcp, fds);
    close(fds[1]);
    colli_auth_connect(&connector, fds[0], secret, COLLI_HELLO_DATA, 0, 1, 7, 0);
    while ((result = colli_auth_poll(&connector)) == COLL_T_AGAIN) {
    }
    cr_assert_eq(result, COLL_ERR_PEER_LOST);
    colli_auth_accept(&acceptor, fds[0], secret);
    cr_assert_eq(colli_auth_answer(&acceptor, true), -1);
    close(fds[0]);
  }
}
