/* test_sealed.c: sealed messages: any size in any pieces; altered, replayed, reflected, reordered,
 * cut and foreign bytes are noticed. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/net/sealed.h"

static const uint8_t secret[COLL_SECRET_BYTES] = {1, 2, 3};

/* Two ends whose bytes pass through a third party. */
typedef struct tapped {
  colli_sealed a, b;
  int tap_a, tap_b; /* what the third party reads from and writes to either end */
} tapped;

/* Moves some of what one end has sent to the other, never so much that this blocks. */
static void pass_on(int from, int to) {
  uint8_t bytes[4001];
  ssize_t got;
  for (int i = 0; i < 8 && (got = recv(from, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0; i++)
    cr_assert_eq(send(to, bytes, (size_t)got, 0), got);
}

/* Two ends after an honest handshake. */
static tapped make_tapped(void) {
  tapped t;
  int left[2], right[2], results[2] = {COLL_T_AGAIN, COLL_T_AGAIN};
  colli_auth connector, acceptor;
  cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, left), 0);
  cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, right), 0);
  t.tap_a = left[1];
  t.tap_b = right[0];
  colli_auth_connect(&connector, left[0], secret, COLLI_HELLO_CONTROL, 1, 0, 7, 0);
  colli_auth_accept(&acceptor, right[1], secret);
  while (results[0] == COLL_T_AGAIN) {
    results[0] = colli_auth_poll(&connector);
    pass_on(t.tap_a, t.tap_b);
    if (results[1] == COLL_T_AGAIN && (results[1] = colli_auth_poll(&acceptor)) == COLL_T_DONE)
      cr_assert_eq(colli_auth_answer(&acceptor, true), 0);
    pass_on(t.tap_b, t.tap_a);
  }
  cr_assert_eq(results[0], COLL_T_DONE);
  cr_assert_eq(results[1], COLL_T_DONE);
  colli_sealed_open(&t.a, &connector);
  colli_sealed_open(&t.b, &acceptor);
  return t;
}

static void close_tapped(tapped *t) {
  colli_sealed_close(&t->a);
  colli_sealed_close(&t->b);
  close(t->tap_a);
  close(t->tap_b);
}

/* One end sends a text; returns the bytes that arrive at the third party. */
static size_t send_text(colli_sealed *end, int tap, const char *text, uint8_t wire[256]) {
  size_t done = 0;
  cr_assert_eq(colli_sealed_push(end, text, strlen(text), &done), COLL_T_DONE);
  cr_assert_eq(done, COLLI_SEALED_BYTES(strlen(text)));
  cr_assert_eq(recv(tap, wire, 256, 0), (ssize_t)done);
  return done;
}

/* What one end makes of these bytes as a message of `bytes` bytes. */
static int receive(colli_sealed *end, int tap, const uint8_t *wire, size_t count, size_t bytes) {
  char text[256];
  size_t done = 0;
  cr_assert_eq(send(tap, wire, count, 0), (ssize_t)count);
  const int result = colli_sealed_pull(end, text, bytes, &done);
  cr_assert_eq(colli_sealed_pull(end, text, bytes, &done), result, "the result lasts");
  return result;
}

Test(sealed, messages_of_any_size_in_any_pieces) {
  static const size_t sizes[] = {0, 1, 31, 32, 33, 1000, 65537, 1 << 20};
  tapped t = make_tapped();
  for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
    size_t bytes = sizes[i], sent = 0, got = 0;
    uint8_t *out = malloc(bytes + 1), *in = calloc(1, bytes + 1);
    for (size_t k = 0; k < bytes; k++)
      out[k] = (uint8_t)(k * 7 + i);
    int pushed = COLL_T_AGAIN, pulled = COLL_T_AGAIN;
    while (pulled == COLL_T_AGAIN) {
      if (pushed == COLL_T_AGAIN)
        pushed = colli_sealed_push(&t.a, out, bytes, &sent);
      pass_on(t.tap_a, t.tap_b);
      pulled = colli_sealed_pull(&t.b, in, bytes, &got);
    }
    cr_assert_eq(pushed, COLL_T_DONE);
    cr_assert_eq(pulled, COLL_T_DONE, "%zu bytes: %d", bytes, pulled);
    cr_assert_arr_eq(in, out, bytes);
    cr_assert_eq(colli_sealed_pull(&t.b, in, bytes, &got), COLL_T_DONE, "once more does nothing");
    free(out);
    free(in);
  }
  close_tapped(&t);
}

Test(sealed, every_altered_bit_is_noticed) {
  uint8_t wire[256];
  for (size_t bit = 0; bit < 8 * COLLI_SEALED_BYTES(5); bit++) {
    tapped t = make_tapped();
    size_t count = send_text(&t.a, t.tap_a, "hello", wire);
    wire[bit / 8] ^= (uint8_t)(1u << bit % 8);
    cr_assert_eq(receive(&t.b, t.tap_b, wire, count, 5), EBADMSG, "bit %zu", bit);
    close_tapped(&t);
  }
}

Test(sealed, replayed_reflected_dropped_and_foreign_messages_are_noticed) {
  uint8_t first[256], second[256];
  tapped t = make_tapped();
  size_t count = send_text(&t.a, t.tap_a, "one", first);
  cr_assert_eq(receive(&t.b, t.tap_b, first, count, 3), COLL_T_DONE);
  cr_assert_eq(receive(&t.b, t.tap_b, first, count, 3), EBADMSG, "replayed");
  cr_assert_eq(receive(&t.a, t.tap_a, first, count, 3), EBADMSG, "reflected");
  close_tapped(&t);

  t = make_tapped();
  cr_assert_eq(receive(&t.b, t.tap_b, first, count, 3), EBADMSG, "of an earlier connection");
  close_tapped(&t);

  t = make_tapped();
  send_text(&t.a, t.tap_a, "one", first);
  send_text(&t.a, t.tap_a, "two", second);
  cr_assert_eq(receive(&t.b, t.tap_b, second, count, 3), EBADMSG, "its predecessor was dropped");
  close_tapped(&t);

  t = make_tapped();
  count = send_text(&t.a, t.tap_a, "12345678", first);
  cr_assert_eq(receive(&t.b, t.tap_b, first, count, 4), EBADMSG, "divided in another way");
  close_tapped(&t);
}

Test(sealed, the_end_of_the_stream_is_told_from_an_altered_message) {
  uint8_t wire[256];
  tapped t = make_tapped();
  size_t count = send_text(&t.a, t.tap_a, "hello", wire);
  cr_assert_eq(receive(&t.b, t.tap_b, wire, count - 1, 5), COLL_T_AGAIN);
  close_tapped(&t);

  t = make_tapped();
  char text[8];
  size_t done = 0;
  close(t.tap_b);
  cr_assert_eq(colli_sealed_pull(&t.b, text, 5, &done), ESHUTDOWN);
  t.tap_b = dup(t.tap_a);
  close_tapped(&t);
}

Test(sealed, closing_erases_the_keys) {
  static const uint8_t zero[COLLI_MAC_BYTES];
  tapped t = make_tapped();
  cr_assert_neq(memcmp(t.a.send_key, t.a.recv_key, sizeof(zero)), 0, "one key each direction");
  cr_assert_arr_eq(t.a.send_key, t.b.recv_key, sizeof(zero));
  close_tapped(&t);
  cr_assert_arr_eq(t.a.send_key, zero, sizeof(zero));
  cr_assert_arr_eq(t.a.recv_key, zero, sizeof(zero));
  cr_assert_eq(t.a.fd, -1);
  colli_sealed_close(&t.a); /* again does nothing */
}
