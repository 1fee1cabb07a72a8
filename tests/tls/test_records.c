/*
 * test_records.c: TLS on a connection: bytes of any number in any pieces; what an enemy between the
 * ends alters, cuts, replays, reflects, drops or makes up is noticed before anybody sees a byte.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "extent.h"
#include "libcoll/base/prng.h"
#include "tests/tls/support_tapped.h"

#define TEXT "a message that nobody else shall read"
#define WIRE 512

TestSuite(tls, .timeout = 120);

/* Sends and receives `bytes` bytes in random pieces, through an enemy who only looks. */
static void transfer(tapped *t, const uint8_t *bytes, uint8_t *copy, size_t count, bool to_acceptor,
                     colli_prng *prng) {
  colli_tls *from = to_acceptor ? t->connector : t->acceptor;
  colli_tls *to = to_acceptor ? t->acceptor : t->connector;
  const int in = to_acceptor ? t->to_connector : t->to_acceptor;
  const int out = to_acceptor ? t->to_acceptor : t->to_connector;
  size_t sent = 0, got = 0, least = 0; /* least: was offered before, and is under way */
  while (got < count) {
    size_t offered = (size_t)colli_prng_below(prng, count - sent + 1);
    offered = offered > least ? offered : least;
    size_t first = (size_t)colli_prng_below(prng, offered + 1);
    struct iovec pieces[3] = {{(void *)(bytes + sent), first},
                              {NULL, 0},
                              {(void *)(bytes + sent + first), offered - first}};
    ssize_t n = colli_tls_send(from, pieces, 3);
    cr_assert(n >= 0 || errno == EAGAIN, "%s", strerror(errno));
    sent += n > 0 ? (size_t)n : 0;
    least = offered - (n > 0 ? (size_t)n : 0);
    uint8_t wire[5000];
    ssize_t moved = recv(in, wire, 1 + colli_prng_below(prng, sizeof(wire)), MSG_DONTWAIT);
    if (moved > 0)
      tapped_send(out, wire, (size_t)moved);
    size_t room =
        count - got < 1000 ? count - got : 1 + (size_t)colli_prng_below(prng, count - got);
    int result = tapped_receive(to, copy + got, room);
    cr_assert(result > 0 || result == -EAGAIN, "%d", result);
    got += result > 0 ? (size_t)result : 0;
  }
  cr_assert_eq(sent, count);
  cr_assert_eq(memcmp(bytes, copy, count), 0);
}

Test(tls, bytes_of_any_number_in_any_pieces) {
  static const size_t counts[] = {1, 2, 1000, 16383, 16384, 16385, 32768, 100001, 3000000};
  const size_t most = 3000000;
  colli_prng prng = {4};
  uint8_t *bytes = malloc(most), *copy = malloc(most);
  cr_assert(bytes && copy);
  for (size_t i = 0; i < most; i++)
    bytes[i] = (uint8_t)(i * 7 + i / 251);
  tapped t = tapped_shaken();
  const int room = 20000; /* so that sends have to wait */
  cr_assert_eq(setsockopt(t.connector_fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
  cr_assert_eq(setsockopt(t.acceptor_fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
  for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
    transfer(&t, bytes, copy, counts[i], i % 2 == 0, &prng);
    cr_assert(colli_tls_renew(t.connector), "a new key changes nothing");
    transfer(&t, bytes, copy, counts[i], i % 2 != 0, &prng);
  }
  tapped_close(&t);
  free(bytes);
  free(copy);
}

Test(tls, nobody_can_read_it) {
  uint8_t wire[WIRE];
  tapped t = tapped_shaken();
  size_t count = tapped_record(t.connector, t.to_connector, TEXT, sizeof(TEXT), wire, WIRE);
  cr_assert_null(memmem(wire, count, TEXT, 8));
  char text[sizeof(TEXT)];
  tapped_send(t.to_acceptor, wire, count);
  cr_assert_eq(tapped_receive(t.acceptor, text, sizeof(text)), (int)sizeof(text));
  cr_assert_str_eq(text, TEXT);
  tapped_close(&t);
}

/* An end must refuse what it has got, at the latest when more arrives, and keep refusing. */
static void refuses(tapped *t, const char *why, size_t where) {
  static const uint8_t more[40000];
  uint8_t byte[1];
  int result = tapped_receive(t->acceptor, byte, 1);
  if (result == -EAGAIN) { /* it waits for the rest of a record */
    struct iovec iov = {(void *)more, sizeof(more)};
    uint8_t wire[8192];
    ssize_t got;
    colli_tls_send(t->connector, &iov, 1);
    while ((got = recv(t->to_connector, wire, sizeof(wire), MSG_DONTWAIT)) > 0)
      send(t->to_acceptor, wire, (size_t)got, MSG_NOSIGNAL);
    result = tapped_receive(t->acceptor, byte, 1);
  }
  cr_assert_eq(result, -EBADMSG, "%s, %zu: %d", why, where, result);
  cr_assert_eq(tapped_receive(t->acceptor, byte, 1), -EBADMSG);
  struct iovec iov = {byte, 1};
  cr_assert_eq(colli_tls_send(t->acceptor, &iov, 1), -1);
  cr_assert_eq(errno, EBADMSG);
  tapped_close(t);
}

Test(tls, every_altered_bit) {
  size_t bits = 8;
  for (size_t bit = 0; bit < bits; bit += extent(5, 1, 41)) {
    uint8_t wire[WIRE];
    tapped t = tapped_shaken();
    size_t count = tapped_record(t.connector, t.to_connector, TEXT, sizeof(TEXT), wire, WIRE);
    bits = 8 * count;
    wire[bit / 8] ^= (uint8_t)(1 << bit % 8);
    tapped_send(t.to_acceptor, wire, count);
    refuses(&t, "bit", bit);
  }
}

Test(tls, every_cut) {
  size_t count = 2;
  for (size_t left = 1; left < count; left += extent(3, 1, 11)) {
    uint8_t wire[WIRE];
    tapped t = tapped_shaken();
    count = tapped_record(t.connector, t.to_connector, TEXT, sizeof(TEXT), wire, WIRE);
    tapped_send(t.to_acceptor, wire, left);
    refuses(&t, "cut to", left);
  }
}

Test(tls, replayed_dropped_swapped_reflected_foreign_and_made_up) {
  uint8_t first[WIRE], second[WIRE], foreign[WIRE], text[sizeof(TEXT)];
  for (int what = 0; what < 6; what++) {
    tapped t = tapped_shaken(), u = tapped_shaken();
    size_t count = tapped_record(t.connector, t.to_connector, TEXT, sizeof(TEXT), first, WIRE);
    size_t same = tapped_record(t.connector, t.to_connector, TEXT, sizeof(TEXT), second, WIRE);
    cr_assert_eq(same, count);
    cr_assert_eq(tapped_record(u.connector, u.to_connector, TEXT, sizeof(TEXT), foreign, WIRE),
                 count);
    if (what == 0) {
      tapped_send(t.to_acceptor, first, count);
      cr_assert_eq(tapped_receive(t.acceptor, text, sizeof(text)), (int)sizeof(text));
      tapped_send(t.to_acceptor, first, count);
    } else if (what == 1 || what == 2) {
      tapped_send(t.to_acceptor, second, count);
      if (what == 2)
        tapped_send(t.to_acceptor, first, count);
    } else if (what == 3) { /* the acceptor's own */
      tapped_record(t.acceptor, t.to_acceptor, TEXT, sizeof(TEXT), first, WIRE);
      tapped_send(t.to_acceptor, first, count);
    } else if (what == 4) {
      tapped_send(t.to_acceptor, foreign, count);
    } else {
      tapped_send(t.to_acceptor, TEXT, sizeof(TEXT));
    }
    refuses(&t, "kind", (size_t)what);
    tapped_close(&u);
  }
}

/* One flipped bit. */
typedef struct flip {
  size_t byte;
  int bit;
} flip;

static void flip_bit(void *arg, uint8_t *bytes, size_t count, size_t at) {
  const flip *f = arg;
  if (f->byte >= at && f->byte < at + count)
    bytes[f->byte - at] ^= (uint8_t)(1 << f->bit);
}

/* Flipped bits of a handshake leave no two ends that believe each other. Some bits mean nothing
 * (the version in the head of the first record), but then the ends must agree on a connection. */
Test(tls, every_altered_byte_of_the_handshake) {
  size_t total = 1, harmless = 0, failed = 0;
  for (flip f = {0, 0}; f.byte < total;
       f.byte += (size_t)extent(3, 1, 17), f.bit = (f.bit + 1) % 8) {
    tapped t = tapped_open();
    int results[2];
    total = tapped_shake(&t, flip_bit, &f, results);
    for (int i = 0; i < 2; i++)
      cr_assert(results[i] == COLL_T_DONE || results[i] == COLL_T_AGAIN || results[i] == EBADMSG,
                "byte %zu: %d", f.byte, results[i]);
    if (results[0] == COLL_T_DONE && results[1] == COLL_T_DONE) {
      uint8_t wire[WIRE], text[sizeof(TEXT)];
      size_t count = tapped_record(t.connector, t.to_connector, TEXT, sizeof(TEXT), wire, WIRE);
      tapped_send(t.to_acceptor, wire, count);
      cr_assert_eq(tapped_receive(t.acceptor, text, sizeof(text)), (int)sizeof(text));
      harmless++;
    } else {
      failed++;
    }
    tapped_close(&t);
  }
  cr_assert_gt(failed, 20 * harmless, "%zu failed, %zu did not", failed, harmless);
}

Test(tls, another_key) {
  tapped t = tapped_open_strangers();
  int results[2];
  tapped_shake(&t, NULL, NULL, results);
  cr_assert_eq(results[0], EBADMSG);
  cr_assert_eq(results[1], EBADMSG);
  tapped_close(&t);
}

Test(tls, random_bytes) {
  colli_prng prng = {11};
  for (int round = 0; round < 200; round++) {
    tapped t = tapped_open();
    uint8_t junk[600], byte;
    size_t count = 1 + (size_t)colli_prng_below(&prng, sizeof(junk));
    for (size_t i = 0; i < count; i++)
      junk[i] = (uint8_t)colli_prng_next(&prng);
    if (round % 2 && count > 5) /* the head of a handshake record */
      memcpy(junk, (const uint8_t[]){22, 3, 3, 0, (uint8_t)(count - 5 < 256 ? count - 5 : 255)}, 5);
    tapped_send(t.to_acceptor, junk, count);
    tapped_send(t.to_connector, junk, count);
    for (int i = 0; i < 2; i++) {
      int result = tapped_receive(i ? t.connector : t.acceptor, &byte, 1);
      cr_assert(result == -EBADMSG || result == -EAGAIN, "round %d: %d", round, result);
    }
    tapped_close(&t);
  }
}

/* A process that was killed says nothing, and may leave half a record: its end, no forgery. */
Test(tls, the_end_of_the_peer) {
  uint8_t wire[WIRE], text[sizeof(TEXT)];
  for (int half = 0; half < 2; half++) {
    tapped t = tapped_shaken();
    size_t count = tapped_record(t.connector, t.to_connector, TEXT, sizeof(TEXT), wire, WIRE);
    tapped_send(t.to_acceptor, wire, half ? count / 2 : count);
    cr_assert_eq(shutdown(t.to_acceptor, SHUT_WR), 0);
    if (!half)
      cr_assert_eq(tapped_receive(t.acceptor, text, sizeof(text)), (int)sizeof(text));
    cr_assert_eq(tapped_receive(t.acceptor, text, sizeof(text)), 0);
    cr_assert_eq(tapped_receive(t.acceptor, text, sizeof(text)), 0, "it lasts");
    close(t.to_acceptor); /* no SIGPIPE comes of sending, only an error */
    struct iovec iov = {text, sizeof(text)};
    cr_assert_eq(colli_tls_send(t.acceptor, &iov, 1), -1);
    cr_assert_eq(errno, EPIPE);
    t.to_acceptor = dup(t.to_connector);
    tapped_close(&t);
  }
  tapped t = tapped_open();
  close(t.to_acceptor);
  cr_assert_eq(colli_tls_shake(t.acceptor), ESHUTDOWN, "before the handshake");
  t.to_acceptor = dup(t.to_connector);
  tapped_close(&t);
}

/* Somebody without the key who speaks TLS, with a certificate or without. */
static void meet_openssl(bool as_server, bool certificate) {
  tapped t = tapped_open();
  SSL_CTX *context = SSL_CTX_new(TLS_method());
  if (certificate) {
    EVP_PKEY *pkey = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(cert), 0);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, pkey);
    cr_assert(X509_sign(cert, pkey, EVP_sha256()));
    cr_assert_eq(SSL_CTX_use_certificate(context, cert), 1);
    cr_assert_eq(SSL_CTX_use_PrivateKey(context, pkey), 1);
    X509_free(cert);
    EVP_PKEY_free(pkey);
  }
  SSL *ssl = SSL_new(context);
  const int fd = as_server ? t.to_connector : t.to_acceptor;
  SSL_CTX_free(context);
  cr_assert_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
  SSL_set_fd(ssl, fd);
  if (as_server)
    SSL_set_accept_state(ssl);
  else
    SSL_set_connect_state(ssl);
  int result = COLL_T_AGAIN;
  for (int turn = 0; turn < 8 && result == COLL_T_AGAIN; turn++) {
    result = colli_tls_shake(as_server ? t.connector : t.acceptor);
    SSL_do_handshake(ssl);
  }
  cr_assert_eq(result, EBADMSG);
  SSL_free(ssl);
  tapped_close(&t);
}

Test(tls, a_certificate_is_no_proof) {
  meet_openssl(true, true);
  meet_openssl(true, false);
  meet_openssl(false, true);
  meet_openssl(false, false);
}
