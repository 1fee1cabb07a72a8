/*
 * test_p2p_messages.c: point-to-point messages over a connection that the test writes to by hand:
 * such as no libcoll sends, which are reported and write nothing; bounds on what is queued.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/p2p/engine.h"
#include "libcoll/p2p/p2p_at_once.h"
#include "libcoll/p2p/p2p_tag.h"
#include "libcoll/p2p/window.h"

enum { SLOT = 64, MAX_MESSAGES = 200 };

/* A connection whose other end is the test. */
typedef struct fake_conn {
  coll_conn conn;
  coll_tag tags[MAX_MESSAGES];
  char data[MAX_MESSAGES][SLOT];
  size_t bytes[MAX_MESSAGES];
  int first, count; /* messages that wait to be received */
  coll_tag sent[MAX_MESSAGES];
  int nsent;
  int credit; /* messages that may still be sent */
  char slot[SLOT];
} fake_conn;

/* What the executor reported. */
typedef struct fake_world {
  colli_exec exec;
  colli_p2p p2p;
  colli_link links[2];
  colli_flight_rings flights;
  uint64_t sent_bytes;
  fake_conn conn;
  const char *broken;
  int unfit, failed;
} fake_world;

static fake_world *current;

static int fake_connect(colli_exec *exec, int peer, int channel, coll_conn **conn) {
  (void)exec;
  current->conn.conn.peer = peer;
  current->conn.conn.channel = channel;
  *conn = &current->conn.conn;
  return COLL_T_DONE;
}

static int fake_send(coll_conn *conn, const coll_tag *tag, const void *buf, size_t bytes) {
  fake_conn *fake = (fake_conn *)conn;
  (void)buf, (void)bytes;
  if (fake->credit == 0)
    return COLL_T_AGAIN;
  fake->credit--;
  fake->sent[fake->nsent++] = *tag;
  return COLL_T_DONE;
}

static int fake_acquire(coll_conn *conn, size_t bytes, void **buf) {
  fake_conn *fake = (fake_conn *)conn;
  cr_assert(bytes <= SLOT);
  *buf = fake->slot;
  return fake->credit ? COLL_T_DONE : COLL_T_AGAIN;
}

static int fake_commit(coll_conn *conn, const coll_tag *tag, size_t bytes) {
  return fake_send(conn, tag, NULL, bytes);
}

static int fake_sent(coll_conn *conn, uint64_t *count) {
  *count = (uint64_t)((fake_conn *)conn)->nsent;
  return COLL_T_DONE;
}

static int fake_peek(coll_conn *conn, coll_tag *tag, const void **buf, size_t *bytes) {
  fake_conn *fake = (fake_conn *)conn;
  if (fake->first == fake->count)
    return COLL_T_AGAIN;
  *tag = fake->tags[fake->first];
  *buf = fake->data[fake->first];
  *bytes = fake->bytes[fake->first];
  return COLL_T_DONE;
}

static int fake_release(coll_conn *conn) {
  ((fake_conn *)conn)->first++;
  return COLL_T_DONE;
}

static const coll_transport_ops fake_ops = {.caps = COLL_CAP_SHARED_MEMORY,
                                            .send = fake_send,
                                            .sent = fake_sent,
                                            .slot_acquire = fake_acquire,
                                            .slot_commit = fake_commit,
                                            .slot_peek = fake_peek,
                                            .slot_release = fake_release};

static void on_mismatch(void *ctx, coll_request *op, int peer, const coll_tag *got, size_t bytes) {
  (void)ctx, (void)op, (void)peer, (void)got, (void)bytes;
  cr_assert_fail("point-to-point messages have no such mismatches");
}

static void on_failed(void *ctx, coll_request *op, int peer, int channel, int step,
                      coll_status status) {
  (void)op, (void)peer, (void)channel, (void)step, (void)status;
  ((fake_world *)ctx)->failed++;
}

static void on_unfit(void *ctx, const colli_post *recv, int peer, const colli_p2p_header *head) {
  (void)recv, (void)peer, (void)head;
  ((fake_world *)ctx)->unfit++;
}

static void on_broken(void *ctx, coll_request *op, int peer, const char *detail) {
  (void)op;
  cr_assert(peer == 1);
  ((fake_world *)ctx)->broken = detail;
}

static const colli_exec_events events = {on_mismatch, on_failed};
static const colli_p2p_events p2p_events = {on_unfit, on_broken};

/* Rank 0 of two. */
static fake_world *open_world(void) {
  fake_world *w = calloc(1, sizeof(*w));
  w->conn.conn.ops = &fake_ops;
  w->conn.credit = 100;
  w->links[1].ops = &fake_ops;
  w->links[1].sent_bytes = &w->sent_bytes;
  w->exec = (colli_exec){.nranks = 2, .links = w->links, .slot_bytes = SLOT, .ctx = w};
  w->exec.events = &events;
  w->exec.connect = fake_connect;
  w->exec.flights.rings = &w->flights;
  cr_assert(colli_p2p_init(&w->p2p, &w->exec, &p2p_events));
  return current = w;
}

static void close_world(fake_world *w) {
  colli_engine_cancel(&w->exec, &w->p2p, COLL_ERR_ABORTED);
  colli_p2p_free(&w->p2p);
  free(w);
}

/* Sends a message as the other rank would. */
static void deliver_message(fake_world *w, int kind, int tag, uint64_t word, uint32_t number,
                            size_t bytes) {
  int at = w->conn.count++;
  coll_tag t = {{word, (uint64_t)(uint32_t)tag << 32,
                 (uint64_t)COLLI_SENDRECV | (uint64_t)COLL_UINT8 << 8 | (uint64_t)kind << 16 |
                     (uint64_t)number << 24}};
  t.word[1] |= p2p_tag_check(&t);
  w->conn.tags[at] = t;
  w->conn.bytes[at] = bytes;
  memset(w->conn.data[at], 'x', SLOT);
}

/* Starts a receive of `capacity` bytes at most. */
static void post_receive(fake_world *w, colli_p2p_op *op, coll_message *message, char *buf,
                         size_t capacity, int source, int tag) {
  *op = (colli_p2p_op){.request = {.coll = COLLI_SENDRECV, .name = "recv"}, .nposts = 1};
  op->post[0] = (colli_post){.op = op,
                             .kind = COLLI_POST_RECV,
                             .peer = source,
                             .tag = tag,
                             .type = COLL_UINT8,
                             .count = capacity,
                             .bytes = capacity,
                             .expected = p2p_tag_expected(tag, COLL_UINT8, capacity),
                             .message = message,
                             .buf = buf};
  colli_p2p_start(&w->p2p, op);
}

/* A window of 16 bytes in the middle of 48. */
static coll_window *add_window(fake_world *w, char *memory) {
  coll_window *window = calloc(1, sizeof(*window));
  memset(memory, '.', 48);
  window->nranks = 2;
  window->left = 1;
  window->base = memory + 16;
  window->bytes = 16;
  window->sizes = calloc(2, sizeof(*window->sizes));
  window->signals = calloc(2, sizeof(*window->signals));
  window->ended = calloc(2, sizeof(*window->ended));
  window->ends = calloc(2, sizeof(*window->ends));
  colli_p2p_add_window(&w->p2p, window);
  return window;
}

/* Counts unwritten bytes in a window's memory and around it. */
static int count_dots(const char *memory) {
  int count = 0;
  for (int i = 0; i < 48; i++)
    count += memory[i] == '.';
  return count;
}

Test(p2p_messages, puts_stay_inside_their_window) {
  static const struct {
    uint64_t offset;
    size_t bytes;
    bool fits;
  } cases[] = {{0, 16, true},
               {15, 1, true},
               {16, 0, true},
               {0, 17, false},
               {16, 1, false},
               {17, 0, false},
               {0xffffffffffff, 1, false},
               {0xfffffffffff0, 64, false}};
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    fake_world *w = open_world();
    char memory[48], buf[8];
    colli_p2p_op op;
    add_window(w, memory);
    post_receive(w, &op, NULL, buf, 0, 1, 5); /* opens the connection */
    deliver_message(w, P2P_PUT, 0, cases[i].offset, 0, cases[i].bytes);
    colli_engine_progress(&w->exec, &w->p2p);
    cr_assert_eq(w->broken == NULL, cases[i].fits, "case %zu: %s", i, w->broken);
    cr_assert_eq(count_dots(memory), 48 - (cases[i].fits ? (int)cases[i].bytes : 0), "case %zu", i);
    cr_assert(memory[15] == '.' && memory[32] == '.');
    close_world(w);
  }
}

Test(p2p_messages, puts_to_a_window_that_has_ended) {
  for (int kind = P2P_PUT; kind <= P2P_END; kind++) {
    for (int removed = 0; removed < 2; removed++) {
      fake_world *w = open_world();
      char memory[48], buf[8];
      colli_p2p_op op;
      coll_window *window = add_window(w, memory);
      post_receive(w, &op, NULL, buf, 0, 1, 5);
      deliver_message(w, P2P_SIGNAL, 0, 0, 0, 0);
      deliver_message(w, P2P_END, 0, 0, 0, 0);
      colli_engine_progress(&w->exec, &w->p2p);
      cr_assert(!w->broken && window->signals[1] == 1 && window->left == 0);
      if (removed)
        colli_p2p_remove_window(&w->p2p, window);
      deliver_message(w, kind, 0, 0, 0, kind == P2P_PUT ? 4 : 0);
      colli_engine_progress(&w->exec, &w->p2p);
      cr_assert(w->broken && strstr(w->broken, "window"));
      cr_assert_eq(count_dots(memory), 48);
      close_world(w);
    }
  }
}

/* Malformed messages, and slices and clear-to-sends that belong to no message. */
Test(p2p_messages, malformed_ones_are_reported) {
  for (int i = 0; i < 12; i++) {
    fake_world *w = open_world();
    char buf[3 * SLOT + 1] = {0};
    colli_p2p_op op;
    coll_message message;
    post_receive(w, &op, &message, buf, 3 * SLOT, COLL_ANY_SOURCE, 5);
    bool begun = i >= 7;
    if (begun) {
      deliver_message(w, P2P_RENDEZVOUS, 5, 2 * SLOT, 9, SLOT);
      colli_engine_progress(&w->exec, &w->p2p);
      cr_assert(!w->broken && w->conn.nsent == 1 && !op.request.done);
      cr_assert((w->conn.sent[0].word[2] >> 16 & 0xff) == P2P_CLEAR_TO_SEND);
      cr_assert((uint32_t)(w->conn.sent[0].word[2] >> 24) == 9);
    }
    static const struct {
      int kind, tag;
      uint64_t word;
      uint32_t number;
      size_t bytes;
    } wrong[] = {{P2P_EAGER, 5, 10, 0, 9},
                 {P2P_EAGER, 5, 9, 0, 10},
                 {P2P_RENDEZVOUS, 5, SLOT, 1, SLOT},
                 {P2P_RENDEZVOUS, 5, 2 * SLOT, 1, 0},
                 {P2P_CLEAR_TO_SEND, 0, 0, 1, 0},
                 {P2P_SLICE, 0, SLOT, 9, 1},
                 {P2P_KINDS, 5, 0, 0, 0},
                 {P2P_TARGET, 0, SLOT, 9, 1}, /* none was offered */
                 {P2P_SLICE, 0, SLOT, 8, 1},
                 {P2P_SLICE, 0, SLOT - 1, 9, 1},
                 {P2P_SLICE, 0, SLOT, 9, 0},
                 {P2P_SLICE, 0, 0, 9, 1}};
    deliver_message(w, wrong[i].kind, wrong[i].tag, wrong[i].word, wrong[i].number, wrong[i].bytes);
    colli_engine_progress(&w->exec, &w->p2p);
    cr_assert(w->broken, "case %d", i);
    cr_assert(buf[begun ? SLOT : 0] == 0 && !op.request.done, "case %d", i);
    close_world(w);
  }
}

Test(p2p_messages, a_slice_beyond_the_message) {
  fake_world *w = open_world();
  char buf[3 * SLOT] = {0};
  colli_p2p_op op;
  coll_message message;
  post_receive(w, &op, &message, buf, 3 * SLOT, 1, COLL_ANY_TAG);
  deliver_message(w, P2P_RENDEZVOUS, 6, SLOT + 10, 2, SLOT);
  deliver_message(w, P2P_SLICE, 0, SLOT, 2, 11);
  colli_engine_progress(&w->exec, &w->p2p);
  colli_engine_progress(&w->exec, &w->p2p);
  cr_assert(w->broken && buf[SLOT] == 0 && !op.request.done);
  close_world(w);
}

/* A change of any single bit of a tag is detected. */
Test(p2p_messages, damaged_tags_are_reported) {
  for (int bit = 0; bit < 192; bit++) {
    fake_world *w = open_world();
    char buf[SLOT];
    colli_p2p_op op;
    post_receive(w, &op, NULL, buf, 8, 1, 5);
    deliver_message(w, P2P_EAGER, 5, 8, 0, 8);
    w->conn.tags[0].word[bit / 64] ^= 1ull << (bit % 64);
    colli_engine_progress(&w->exec, &w->p2p);
    cr_assert(w->broken && !op.request.done, "bit %d", bit);
    close_world(w);
  }
}

/* Unexpected messages are queued up to a bound; the rest stays on the connection. */
Test(p2p_messages, unexpected_ones_are_bounded) {
  fake_world *w = open_world();
  static colli_p2p_op ops[MAX_MESSAGES];
  char buf[SLOT];
  post_receive(w, &ops[0], NULL, buf, 1, 1, 1000);
  for (int i = 0; i < COLLI_UNEXPECTED_MAX + 10; i++)
    deliver_message(w, P2P_EAGER, i, 1, 0, 1);
  for (int i = 0; i < 5; i++)
    colli_engine_progress(&w->exec, &w->p2p);
  cr_assert_eq(w->conn.first, COLLI_UNEXPECTED_MAX);
  for (int i = 1; i <= 3; i++) /* the newest, which is still on the connection, last */
    post_receive(w, &ops[i], NULL, buf, 1, 1, i == 3 ? COLLI_UNEXPECTED_MAX : 2 * i);
  for (int i = 0; i < 2; i++) /* after an expected message, unexpected ones wait for the next */
    colli_engine_progress(&w->exec, &w->p2p);
  cr_assert(ops[1].request.done && ops[2].request.done && ops[3].request.done &&
            !ops[0].request.done);
  cr_assert_eq(w->conn.first, COLLI_UNEXPECTED_MAX + 3);
  for (int i = 4; i < COLLI_UNEXPECTED_MAX + 11; i++)
    post_receive(w, &ops[i], NULL, buf, 1, COLL_ANY_SOURCE, COLL_ANY_TAG);
  for (int i = 0; i < 5; i++)
    colli_engine_progress(&w->exec, &w->p2p);
  for (int i = 4; i < COLLI_UNEXPECTED_MAX + 11; i++)
    cr_assert(ops[i].request.done, "receive %d", i);
  cr_assert(!w->broken && !w->unfit && !w->failed);
  close_world(w);
}

/* A message that fills the oldest receive from its source still goes to an older one from any. */
Test(p2p_messages, what_fills_a_receive_keeps_the_order) {
  static const struct {
    int source[2], tag[2], taker;
  } cases[] = {{{1, 1}, {5, 5}, 0},
               {{1, 1}, {COLL_ANY_TAG, 5}, 0},
               {{COLL_ANY_SOURCE, 1}, {5, 5}, 0},
               {{COLL_ANY_SOURCE, 1}, {6, 5}, 1}};
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    fake_world *w = open_world();
    char buf[2][8] = {{0}};
    colli_p2p_op op[2];
    coll_message message[2] = {{-9, -9, 99, COLL_INT8}, {-9, -9, 99, COLL_INT8}};
    post_receive(w, &op[0], &message[0], buf[0], 8, cases[i].source[0], cases[i].tag[0]);
    post_receive(w, &op[1], &message[1], buf[1], 8, cases[i].source[1], cases[i].tag[1]);
    deliver_message(w, P2P_EAGER, 5, 8, 0, 8);
    colli_engine_progress(&w->exec, &w->p2p);
    for (int k = 0; k < 2; k++) {
      const bool took = cases[i].taker == k;
      cr_assert(op[k].request.done == took && buf[k][7] == (took ? 'x' : 0), "case %zu", i);
      cr_assert(message[k].source == (took ? 1 : -9) && message[k].tag == (took ? 5 : -9));
      cr_assert_eq(message[k].count, took ? 8u : 99u, "case %zu", i);
    }
    cr_assert(!w->broken && !w->unfit && !w->failed);
    close_world(w);
  }
}

/* No sender's: the tag that fills a receive with another length, and that of "any tag". */
Test(p2p_messages, what_fills_a_receive_has_its_length) {
  for (size_t bytes = 7; bytes <= 9; bytes++) {
    const int tag = bytes == 8 ? COLL_ANY_TAG : 5;
    fake_world *w = open_world();
    char buf[SLOT] = {0};
    colli_p2p_op op;
    post_receive(w, &op, NULL, buf, 8, 1, tag);
    deliver_message(w, P2P_EAGER, tag, 8, 0, bytes);
    colli_engine_progress(&w->exec, &w->p2p);
    cr_assert(w->broken && !op.request.done && buf[0] == 0);
    close_world(w);
  }
}

/* A receive of up to 8 bytes that has no post. */
static bool receive_at_once(fake_world *w, int tag, coll_message *message, char *buf) {
  colli_p2p_wanted wanted = {.buf = buf,
                             .count = 8,
                             .message = message,
                             .type = COLL_UINT8,
                             .source = 1,
                             .tag = tag,
                             .expected = p2p_tag_expected(tag, COLL_UINT8, 8)};
  return colli_p2p_recv_at_once(&w->p2p, &wanted);
}

/* Without a post a message is received only if it is the next one, an eager one that fits. */
Test(p2p_messages, a_receive_at_once) {
  static const struct {
    int kind, tag;
    uint64_t count;
    bool exact, taken;
  } cases[] = {{P2P_EAGER, 5, 8, true, true},
               {P2P_EAGER, 5, 8, false, true},
               {P2P_EAGER, 5, 3, false, true},
               {P2P_EAGER, 5, 3, true, false},
               {P2P_EAGER, 5, 9, false, false},
               {P2P_EAGER, 6, 8, true, false},
               {P2P_EAGER, COLL_ANY_TAG, 8, true, false}, /* nobody's */
               {P2P_RENDEZVOUS, 5, SLOT + 1, false, false},
               {P2P_CLEAR_TO_SEND, 5, 0, false, false}};
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    fake_world *w = open_world();
    char buf[SLOT] = {0};
    colli_p2p_op op;
    coll_message message = {-9, -9, 99, COLL_INT8};
    post_receive(w, &op, NULL, buf, 0, 1, 1); /* opens the connection */
    deliver_message(w, P2P_EAGER, 1, 0, 0, 0);
    cr_assert(!receive_at_once(w, 5, NULL, buf)); /* behind the posted one, which it polled */
    cr_assert(op.request.done && w->conn.first == 1);
    size_t bytes = cases[i].count < SLOT ? cases[i].count : SLOT;
    deliver_message(w, cases[i].kind, cases[i].tag, cases[i].count, 0, bytes);
    const int tag = cases[i].tag == COLL_ANY_TAG ? COLL_ANY_TAG : 5;
    bool taken = receive_at_once(w, tag, cases[i].exact ? NULL : &message, buf);
    bool told = taken && !cases[i].exact;
    cr_assert(taken == cases[i].taken && w->conn.first == 1 + taken, "case %zu", i);
    cr_assert(buf[0] == (taken ? 'x' : 0) && message.count == (told ? cases[i].count : 99));
    cr_assert(message.source == (told ? 1 : -9) && message.tag == (told ? 5 : -9));
    cr_assert(!w->broken && !w->unfit && !w->failed);
    close_world(w);
  }
}

/* Nothing overtakes a posted receive, one from any source, or an unexpected message. */
Test(p2p_messages, a_receive_at_once_waits_its_turn) {
  for (int before = 0; before < 3; before++) {
    fake_world *w = open_world();
    char first[8] = {0}, second[8] = {0};
    colli_p2p_op op;
    post_receive(w, &op, NULL, first, 8, before == 1 ? COLL_ANY_SOURCE : 1, before == 2 ? 7 : 5);
    if (before == 2) { /* the message is unexpected */
      deliver_message(w, P2P_EAGER, 5, 8, 0, 8);
      colli_engine_progress(&w->exec, &w->p2p);
    }
    cr_assert(!receive_at_once(w, 5, NULL, second));
    deliver_message(w, P2P_EAGER, before == 2 ? 7 : 5, 8, 0, 8);
    cr_assert(!receive_at_once(w, 5, NULL, second));
    colli_engine_progress(&w->exec, &w->p2p);
    cr_assert(op.request.done && first[0] == 'x' && second[0] == 0, "case %d", before);
    close_world(w);
  }
}

/* Nothing overtakes a send that waits, and what has no credit is left to an operation. */
Test(p2p_messages, a_send_at_once) {
  fake_world *w = open_world();
  char buf[2 * SLOT] = {0};
  colli_p2p_op op = {.request = {.coll = COLLI_SENDRECV, .name = "send"}, .nposts = 1};
  op.post[0] = (colli_post){.op = &op,
                            .kind = COLLI_POST_SEND,
                            .peer = 1,
                            .type = COLL_UINT8,
                            .count = 1,
                            .bytes = 1,
                            .buf = buf};
  coll_tag tag = p2p_tag_make(P2P_EAGER, 3, COLL_UINT8, 8, 0);
  cr_assert(!colli_p2p_send_at_once(&w->p2p, 1, &tag, buf, 8)); /* no connection yet */
  colli_p2p_start(&w->p2p, &op);
  cr_assert(!colli_p2p_send_at_once(&w->p2p, 1, &tag, buf, 8)); /* behind the other one */
  colli_engine_progress(&w->exec, &w->p2p);
  cr_assert(op.request.done && w->conn.nsent == 1);
  cr_assert(!colli_p2p_send_at_once(&w->p2p, 1, &tag, buf, SLOT + 1));
  cr_assert(colli_p2p_send_at_once(&w->p2p, 1, &tag, buf, 8));
  cr_assert(w->conn.nsent == 2 && memcmp(&w->conn.sent[1], &tag, sizeof(tag)) == 0);
  w->conn.credit = 0;
  cr_assert(!colli_p2p_send_at_once(&w->p2p, 1, &tag, buf, 8));
  cr_assert(w->conn.nsent == 2 && w->p2p.busy == 0);
  close_world(w);
}
