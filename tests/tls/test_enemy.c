/*
 * test_enemy.c: the TCP transport with COLL_TLS=1 and an enemy between two ranks, who changes what
 * flows: data calls give COLL_ERR_AUTH, never wrong bytes.
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "coll/coll_transport.h"
#include "libcoll/base/clock.h"
#include "libcoll/net/door.h"
#include "transports/tcp/tcp.h"
#include "transports/tcp/tcp_internal.h"

#define BYTES 3000
#define TURNS 2000000

TestSuite(tls_enemy, .timeout = 120);

/* One of two ranks. */
typedef struct rank_end {
  coll_transport_env env;
  const char *tls;
  coll_endpoint *ep;
  coll_conn *conn;
  coll_status said;
  char why[512];
} rank_end;

/* What the enemy does with the next bytes from the sender. */
typedef enum trick { NOTHING, FLIP, CUT, REPLAY, DROP, REFLECT, INJECT, TRICKS } trick;

/* The two ranks, and the enemy's sockets. */
typedef struct scene {
  rank_end from, to;
  int listen_fd, from_fd, to_fd;
  struct sockaddr_in target;
  trick next;
  uint8_t last[65536]; /* what the sender sent before */
  size_t last_bytes;
  bool seen; /* the pattern of the data, as it is */
} scene;

static const uint8_t secret[COLL_SECRET_BYTES] = {5, 5, 5};
static const coll_tag tag = {{1, 2, 3}};

static uint64_t now(void *ctx) {
  (void)ctx;
  return colli_now_ns();
}

static void on_fail(void *ctx, const coll_transport_failure *failure) {
  rank_end *end = ctx;
  end->said = failure->status;
  snprintf(end->why, sizeof(end->why), "%s", failure->detail ? failure->detail : "");
}

/* A rank whose first message counts from its own address only, which the enemy's is not, soon sends
 * one that counts from anywhere. */
static const char *setting(void *ctx, const char *name) {
  if (strcmp(name, "COLL_TIMEOUT_MS") == 0)
    return "200";
  return strcmp(name, "COLL_TLS") == 0 ? ((rank_end *)ctx)->tls : "";
}

static void open_end(rank_end *end, int rank, const char *tls) {
  end->tls = tls;
  end->env = (coll_transport_env){.size = sizeof(end->env),
                                  .ctx = end,
                                  .now_ns = now,
                                  .fail = on_fail,
                                  .param = setting,
                                  .rank = rank,
                                  .nranks = 2,
                                  .host_id = 1,
                                  .comm_id = 4711,
                                  .secret = secret,
                                  .slot_bytes = 4096,
                                  .slot_count = 4,
                                  .ops = &tcp_transport};
  cr_assert_eq(tcp_transport.open(&end->env, &end->ep), COLL_T_DONE, "%s", end->why);
}

/* The enemy listens where rank 0 believes rank 1 to be. */
static void take_place(scene *s, uint8_t blob[COLL_BLOB_BYTES]) {
  tcp_blob *place = (tcp_blob *)blob;
  struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof(here);
  s->target = here;
  s->target.sin_port = htons(place->addrs[0].port);
  s->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  cr_assert_eq(bind(s->listen_fd, (struct sockaddr *)&here, length), 0);
  cr_assert_eq(listen(s->listen_fd, 8), 0);
  cr_assert_eq(getsockname(s->listen_fd, (struct sockaddr *)&here, &length), 0);
  place->count = 1;
  place->addrs[0] = (colli_addr){.family = 4, .prefix = 8, .port = ntohs(here.sin_port)};
  memcpy(place->addrs[0].ip, &here.sin_addr, 4);
}

static void open_scene(scene *s, const char *from_tls, const char *to_tls) {
  uint8_t blobs[2][COLL_BLOB_BYTES];
  memset(s, 0, sizeof(*s));
  s->from_fd = s->to_fd = -1;
  open_end(&s->from, 0, from_tls);
  open_end(&s->to, 1, to_tls);
  tcp_transport.describe(s->from.ep, blobs[0]);
  tcp_transport.describe(s->to.ep, blobs[1]);
  take_place(s, blobs[1]);
  cr_assert_eq(tcp_transport.connect(s->from.ep, 1, blobs[1], 0, &s->from.conn), COLL_T_DONE);
  cr_assert_eq(tcp_transport.connect(s->to.ep, 0, blobs[0], 0, &s->to.conn), COLL_T_DONE);
}

static void close_scene(scene *s) {
  tcp_transport.disconnect(s->from.conn);
  tcp_transport.disconnect(s->to.conn);
  close(s->from_fd);
  close(s->to_fd);
  tcp_transport.close(s->from.ep);
  tcp_transport.close(s->to.ep);
  close(s->listen_fd);
}

/* The enemy sends; the other side may have closed. */
static void put(int fd, const void *bytes, size_t count) {
  for (size_t done = 0; done < count;) {
    ssize_t sent = send(fd, (const char *)bytes + done, count - done, MSG_NOSIGNAL);
    if (sent < 0)
      return;
    done += (size_t)sent;
  }
}

/* The enemy passes on what the sender sent, in its own way. */
static void play(scene *s, uint8_t *bytes, size_t count) {
  const trick what = s->next;
  s->next = NOTHING;
  if (what == FLIP)
    bytes[count / 2] ^= 4;
  if (what == REFLECT)
    put(s->from_fd, bytes, count);
  if (what == REPLAY)
    put(s->to_fd, s->last, s->last_bytes);
  if (what == INJECT)
    put(s->to_fd,
        (const uint8_t[]){23, 3, 3, 0, 17, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9}, 22);
  if (what != DROP)
    put(s->to_fd, bytes, what == CUT ? count - 7 : count);
}

/* Lets both ranks and the enemy work. */
static void turn(scene *s) {
  static uint8_t bytes[65536];
  int fd = accept(s->listen_fd, NULL, NULL);
  if (fd >= 0) {
    close(s->from_fd); /* the rank dials again */
    close(s->to_fd);
    s->from_fd = fd;
    s->to_fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(connect(s->to_fd, (struct sockaddr *)&s->target, sizeof(s->target)), 0);
  }
  tcp_transport.progress(s->from.ep);
  tcp_transport.progress(s->to.ep);
  ssize_t got = s->from_fd < 0 ? 0 : recv(s->from_fd, bytes, sizeof(bytes), MSG_DONTWAIT);
  if (got > 0) {
    s->seen |= memmem(bytes, (size_t)got, "0123456789abcdef", 16) != NULL;
    play(s, bytes, (size_t)got);
    memcpy(s->last, bytes, (size_t)got);
    s->last_bytes = (size_t)got;
  }
  got = s->to_fd < 0 ? 0 : recv(s->to_fd, bytes, sizeof(bytes), MSG_DONTWAIT);
  if (got > 0)
    put(s->from_fd, bytes, (size_t)got);
}

/* Sends a message, which may no longer be possible. */
static void send_one(scene *s, const char *message) {
  int status = COLL_T_AGAIN;
  for (int i = 0; i < TURNS && status == COLL_T_AGAIN; i++, turn(s))
    status = tcp_transport.send(s->from.conn, &tag, message, BYTES);
}

/* What the receiver gets. It may ask in either way. */
static int receive_one(scene *s, bool peeks, char *message) {
  coll_tag got;
  size_t got_bytes;
  int status = COLL_T_AGAIN;
  for (int i = 0; i < TURNS && status == COLL_T_AGAIN; i++) {
    const void *slot;
    turn(s);
    status = peeks ? tcp_transport.slot_peek(s->to.conn, &got, &slot, &got_bytes)
                   : tcp_transport.recv(s->to.conn, &tag, message, BYTES, &got, &got_bytes);
    if (peeks && status == COLL_T_DONE) {
      memcpy(message, slot, got_bytes);
      tcp_transport.slot_release(s->to.conn);
    }
  }
  return status;
}

static void fill(char *message) {
  for (int i = 0; i < BYTES; i++)
    message[i] = "0123456789abcdef"[i % 16];
}

static void tricked(trick what, bool peeks) {
  static scene s;
  char message[BYTES], copy[BYTES];
  fill(message);
  open_scene(&s, "1", "1");
  for (int i = 0; i < 2; i++) {
    send_one(&s, message);
    cr_assert_eq(receive_one(&s, peeks, copy), COLL_T_DONE, "%s", s.to.why);
    cr_assert_eq(memcmp(message, copy, BYTES), 0);
  }
  s.next = what;
  memset(copy, 0, sizeof(copy));
  for (int i = 0; i < 4; i++) /* so that something follows what was cut or dropped */
    send_one(&s, message);
  if (what == REFLECT) { /* its victim is the sender */
    coll_tag got;
    size_t bytes;
    int status = COLL_T_AGAIN;
    for (int i = 0; i < TURNS && status == COLL_T_AGAIN; i++, turn(&s))
      status = tcp_transport.recv(s.from.conn, &tag, copy, BYTES, &got, &bytes);
    cr_assert_eq(status, COLL_ERR_AUTH);
    cr_assert_eq(s.from.said, COLL_ERR_AUTH);
  } else {
    cr_assert_eq(receive_one(&s, peeks, copy), COLL_ERR_AUTH, "trick %d", what);
    cr_assert_eq(s.to.said, COLL_ERR_AUTH);
    cr_assert_not_null(strstr(s.to.why, "TLS"), "%s", s.to.why);
    cr_assert_eq(receive_one(&s, !peeks, copy), COLL_ERR_AUTH, "it lasts");
  }
  for (int i = 0; i < BYTES; i++)
    cr_assert(copy[i] == 0, "a byte came through");
  cr_assert_not(s.seen, "the data can be read on the way");
  close_scene(&s);
}

Test(tls_enemy, flipped) {
  tricked(FLIP, false);
  tricked(FLIP, true);
}

Test(tls_enemy, cut) {
  tricked(CUT, false);
  tricked(CUT, true);
}

Test(tls_enemy, replayed) {
  tricked(REPLAY, false);
  tricked(REPLAY, true);
}

Test(tls_enemy, dropped) {
  tricked(DROP, false);
  tricked(DROP, true);
}

Test(tls_enemy, reflected) {
  tricked(REFLECT, false);
}

Test(tls_enemy, made_up) {
  tricked(INJECT, false);
  tricked(INJECT, true);
}

/* Without TLS the same enemy reads everything: so the test would notice. */
Test(tls_enemy, without_tls_it_can_be_read) {
  static scene s;
  char message[BYTES], copy[BYTES];
  fill(message);
  open_scene(&s, "", "0");
  send_one(&s, message);
  cr_assert_eq(receive_one(&s, false, copy), COLL_T_DONE);
  cr_assert(s.seen);
  close_scene(&s);
}

Test(tls_enemy, only_one_side_has_it) {
  for (int from = 0; from < 2; from++) {
    static scene s;
    char copy[BYTES];
    open_scene(&s, from ? "1" : "0", from ? "0" : "1");
    coll_tag got;
    size_t bytes;
    int status = COLL_T_AGAIN;
    for (int i = 0; i < TURNS && status == COLL_T_AGAIN; i++, turn(&s))
      status = tcp_transport.recv(s.from.conn, &tag, copy, BYTES, &got, &bytes);
    cr_assert_eq(status, COLL_ERR_MISMATCH, "%s", s.from.why);
    cr_assert_not_null(strstr(s.from.why, "COLL_TLS"), "%s", s.from.why);
    close_scene(&s);
  }
}
