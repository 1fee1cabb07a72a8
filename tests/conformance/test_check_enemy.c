/*
 * test_check_enemy.c: what a checked connection makes of messages that an enemy has in hand:
 * altered, cut, replayed, reflected, taken from another connection or communicator, made up. The
 * transport below is a queue that the test fills.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "transports/check/check.h"

#define SLOT 256
#define MOST (SLOT + 64)

/* A message as the transport below carries it. */
typedef struct message {
  coll_tag tag;
  char payload[MOST];
  size_t bytes;
} message;

/* The connection below: what was sent last, and what comes next. */
typedef struct lower {
  coll_conn conn;
  message sent, comes;
  bool any;
} lower;

/* One rank. */
typedef struct rank_end {
  coll_transport_env env;
  check_table table;
  coll_endpoint *ep;
  coll_conn *conn;
  lower below;
  coll_status said;
  char why[512];
} rank_end;

static const uint8_t secret[COLL_SECRET_BYTES] = {5, 5, 5};
static uint8_t nonces[3][COLLI_NONCE_BYTES] = {{1}, {2}, {3}};

static void read_nonce(void *ctx, int rank, uint8_t nonce[COLLI_NONCE_BYTES]) {
  (void)ctx;
  memcpy(nonce, nonces[rank], COLLI_NONCE_BYTES);
}

static void on_fail(void *ctx, const coll_transport_failure *failure) {
  rank_end *end = ctx;
  end->said = failure->status;
  snprintf(end->why, sizeof(end->why), "%s", failure->detail);
}

static int lower_open(const coll_transport_env *env, coll_endpoint **ep) {
  *ep = env->ctx;
  return COLL_T_DONE;
}

static void lower_close(coll_endpoint *ep) {
  (void)ep;
}

static void lower_disconnect(coll_conn *conn) {
  (void)conn;
}

static int lower_acquire(coll_conn *conn, size_t bytes, void **buf) {
  cr_assert_leq(bytes, MOST);
  *buf = ((lower *)conn)->sent.payload;
  return COLL_T_DONE;
}

static int lower_commit(coll_conn *conn, const coll_tag *tag, size_t bytes) {
  ((lower *)conn)->sent.tag = *tag;
  ((lower *)conn)->sent.bytes = bytes;
  return COLL_T_DONE;
}

static int lower_sent(coll_conn *conn, uint64_t *count) {
  (void)conn;
  *count = 0;
  return COLL_T_DONE;
}

static int lower_peek(coll_conn *conn, coll_tag *got, const void **buf, size_t *bytes) {
  lower *l = (lower *)conn;
  if (!l->any)
    return COLL_T_AGAIN;
  *got = l->comes.tag;
  *buf = l->comes.payload;
  *bytes = l->comes.bytes;
  return COLL_T_DONE;
}

static int lower_release(coll_conn *conn) {
  ((lower *)conn)->any = false;
  return COLL_T_DONE;
}

static int lower_connect(coll_endpoint *ep, int peer, const uint8_t blob[COLL_BLOB_BYTES],
                         int channel, coll_conn **conn);

static coll_transport_ops lower_ops = {.size = sizeof(lower_ops),
                                       .abi = COLL_TRANSPORT_ABI,
                                       .name = "queue",
                                       .open = lower_open,
                                       .close = lower_close,
                                       .connect = lower_connect,
                                       .disconnect = lower_disconnect,
                                       .sent = lower_sent,
                                       .slot_acquire = lower_acquire,
                                       .slot_commit = lower_commit,
                                       .slot_peek = lower_peek,
                                       .slot_release = lower_release};

static int lower_connect(coll_endpoint *ep, int peer, const uint8_t blob[COLL_BLOB_BYTES],
                         int channel, coll_conn **conn) {
  rank_end *end = (rank_end *)ep;
  (void)blob;
  end->below.conn = (coll_conn){&lower_ops, peer, channel};
  *conn = &end->below.conn;
  return COLL_T_DONE;
}

static void open_end(rank_end *end, int rank, int peer, int channel, colli_data_check kind) {
  memset(end, 0, sizeof(*end));
  const coll_transport_ops *ops = colli_check_over(&lower_ops, kind, read_nonce, &end->table);
  end->env = (coll_transport_env){.size = sizeof(end->env),
                                  .ctx = end,
                                  .fail = on_fail,
                                  .rank = rank,
                                  .nranks = 3,
                                  .comm_id = 4711,
                                  .secret = secret,
                                  .slot_bytes = SLOT,
                                  .slot_count = 4,
                                  .ops = ops};
  cr_assert_eq(ops->open(&end->env, &end->ep), COLL_T_DONE);
  cr_assert_eq(ops->connect(end->ep, peer, (uint8_t[COLL_BLOB_BYTES]){0}, channel, &end->conn),
               COLL_T_DONE);
}

static void close_end(rank_end *end) {
  end->conn->ops->disconnect(end->conn);
  end->table.ops.close(end->ep);
}

/* Sends a message of 40 bytes that are all `number`. */
static message send_one(rank_end *from, uint64_t number) {
  char payload[40];
  memset(payload, (int)number, sizeof(payload));
  cr_assert_eq(
      from->conn->ops->send(from->conn, &(coll_tag){{number, 2, 3}}, payload, sizeof(payload)),
      COLL_T_DONE);
  return from->below.sent;
}

/* What the receiver says to a message that arrives. */
static int arrives(rank_end *to, const message *m, uint64_t number) {
  char payload[40];
  coll_tag got;
  size_t bytes;
  to->below.comes = *m;
  to->below.any = true;
  return to->conn->ops->recv(to->conn, &(coll_tag){{number, 2, 3}}, payload, sizeof(payload), &got,
                             &bytes);
}

/* A receiver that has got nothing yet refuses a message, says why, and keeps to it. */
static void refused(colli_data_check kind, const message *m, const char *why) {
  int wanted = kind == COLLI_DATA_CHECK_MAC ? COLL_ERR_AUTH : COLL_ERR_PROTOCOL;
  rank_end to;
  open_end(&to, 1, 0, 5, kind);
  cr_expect_eq(arrives(&to, m, 0), wanted, "%s", why);
  cr_expect_eq((int)to.said, wanted);
  cr_expect(strstr(to.why, why) && strstr(to.why, "from rank 0 to rank 1 over queue, channel 5"),
            "%s", to.why);
  uint64_t count;
  void *slot;
  cr_expect_eq(to.conn->ops->slot_acquire(to.conn, 1, &slot), wanted);
  cr_expect_eq(to.conn->ops->sent(to.conn, &count), wanted);
  close_end(&to);
}

/* The connection of ranks 0 and 1 on channel 5, as seen by rank 0. */
static void open_sender(rank_end *from, colli_data_check kind) {
  open_end(from, 0, 1, 5, kind);
}

static const colli_data_check kinds[] = {COLLI_DATA_CHECK_CRC32C, COLLI_DATA_CHECK_MAC};

Test(data_check, good) {
  for (int k = 0; k < 2; k++) {
    rank_end from, to;
    open_sender(&from, kinds[k]);
    open_end(&to, 1, 0, 5, kinds[k]);
    for (uint64_t i = 0; i < 5; i++) {
      message m = send_one(&from, i);
      cr_assert_eq(arrives(&to, &m, i), COLL_T_DONE);
    }
    message m = send_one(&from, 5); /* a real disagreement is one */
    cr_assert_eq(arrives(&to, &m, 6), COLL_ERR_MISMATCH);
    close_end(&from);
    close_end(&to);
  }
}

Test(data_check, every_bit) {
  for (int k = 0; k < 2; k++) {
    rank_end from;
    open_sender(&from, kinds[k]);
    message m = send_one(&from, 0);
    for (size_t bit = 0; bit < 8 * (sizeof(coll_tag) + m.bytes); bit++) {
      size_t byte = bit / 8;
      message bad = m;
      char *at = byte < sizeof(coll_tag) ? (char *)&bad.tag + byte
                                         : bad.payload + (byte - sizeof(coll_tag));
      *at = (char)(*at ^ 1 << bit % 8);
      refused(kinds[k], &bad, "altered");
    }
    close_end(&from);
  }
}

Test(data_check, every_length) {
  for (int k = 0; k < 2; k++) {
    rank_end from;
    open_sender(&from, kinds[k]);
    message m = send_one(&from, 0);
    for (size_t bytes = 0; bytes < MOST; bytes++) {
      message bad = m;
      bad.bytes = bytes;
      if (bytes != m.bytes)
        refused(kinds[k], &bad, bytes < 24 ? "cut" : "altered");
    }
    close_end(&from);
  }
}

Test(data_check, order) {
  for (int k = 0; k < 2; k++) {
    int wanted = k ? COLL_ERR_AUTH : COLL_ERR_PROTOCOL;
    rank_end from, to;
    open_sender(&from, kinds[k]);
    message first = send_one(&from, 0), second = send_one(&from, 1);
    refused(kinds[k], &second, "message 1 came first");
    open_end(&to, 1, 0, 5, kinds[k]);
    cr_assert_eq(arrives(&to, &first, 0), COLL_T_DONE);
    cr_assert_eq(arrives(&to, &first, 0), wanted);
    cr_assert(strstr(to.why, "message 1 from") && strstr(to.why, "message 0 came again"), "%s",
              to.why);
    close_end(&from);
    close_end(&to);
  }
}

/* Messages of another channel, and this rank's own; with a mac also those of another communicator
 * with the same secret. */
Test(data_check, misdirected) {
  for (int k = 0; k < 2; k++) {
    rank_end other;
    open_end(&other, 0, 1, 6, kinds[k]);
    message m = send_one(&other, 0);
    refused(kinds[k], &m, "altered");
    close_end(&other);
    open_end(&other, 1, 0, 5, kinds[k]);
    m = send_one(&other, 0);
    refused(kinds[k], &m, "altered");
    close_end(&other);
  }
  for (int rank = 0; rank < 2; rank++) {
    rank_end old;
    open_sender(&old, COLLI_DATA_CHECK_MAC);
    message m = send_one(&old, 0);
    nonces[rank][7] ^= 1;
    refused(COLLI_DATA_CHECK_MAC, &m, "altered");
    close_end(&old);
  }
}

/* Who does not know the secret cannot make up a message. */
Test(data_check, made_up) {
  rank_end from;
  open_sender(&from, COLLI_DATA_CHECK_MAC);
  message m = send_one(&from, 0);
  memset(m.payload + m.bytes - 16, 0, 16);
  refused(COLLI_DATA_CHECK_MAC, &m, "altered");
  rank_end stranger;
  open_sender(&stranger, COLLI_DATA_CHECK_CRC32C);
  m = send_one(&stranger, 0);
  refused(COLLI_DATA_CHECK_MAC, &m, "altered");
  close_end(&from);
  close_end(&stranger);
}

/* Who can write where a device has put a message changes nothing once it was checked. */
Test(data_check, changed_after_the_check) {
  rank_end from, to;
  open_sender(&from, COLLI_DATA_CHECK_MAC);
  lower_ops.caps = COLL_CAP_DEVICE;
  open_end(&to, 1, 0, 5, COLLI_DATA_CHECK_MAC);
  message m = send_one(&from, 7);
  to.below.comes = m;
  to.below.any = true;
  for (int i = 0; i < 2; i++) {
    coll_tag got;
    const void *payload;
    size_t bytes;
    cr_assert_eq(to.conn->ops->slot_peek(to.conn, &got, &payload, &bytes), COLL_T_DONE);
    cr_assert_eq(memcmp(payload, m.payload, 40), 0);
    cr_assert(bytes == 40 && got.word[0] == 7);
    memset(&to.below.comes, 0, sizeof(to.below.comes));
    cr_assert_eq(memcmp(payload, m.payload, 40), 0);
  }
  close_end(&from);
  close_end(&to);
}
