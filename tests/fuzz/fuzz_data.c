/*
 * fuzz_data.c: messages of a damaged or malicious rank in collectives, messages, rendezvous, puts
 * and splits. The ranks run a random program in a simulated world; of one of them, each message may
 * leave with another tag, size or payload, twice, not at all, or after some that nobody asked for.
 * Whatever arrives, the other ranks keep within their buffers, and each of their calls ends.
 */
#include "fuzz.h"
#include "libcoll/base/clock.h"
#include "libcoll/p2p/p2p_tag.h"
#include "support_mixed.h"
#include "transports/sim/sim_internal.h"

enum { SLOT_BYTES = 256, SLOTS = 4, KEPT = 8, EXTRA = 3, PUTS = 6, WINDOW = 1000 };
#define LIMIT_NS (1000 * COLLI_NS_PER_S)

/* What the evil rank does. */
static struct {
  const uint8_t *data;
  size_t bytes;
  int rank;
  bool sound; /* it makes no mistakes so far */
  const coll_transport_ops *inner;
  coll_transport_ops ops;
  coll_tag kept[KEPT]; /* of its messages so far */
  unsigned sent;
} evil;

static unsigned take(void) {
  uint8_t byte;
  fuzz_take(&evil.data, &evil.bytes, &byte, 1);
  return byte;
}

/* A wide number, mostly small or with one bit. */
static uint64_t take_number(void) {
  unsigned shape = take(), low = take();
  return shape % 4 == 0   ? low
         : shape % 4 == 1 ? UINT64_C(1) << low % 64
                          : (uint64_t)low * shape * 8;
}

/* Another tag: with changed bits, of another message, or of one of a kind. */
static void change_tag(coll_tag *tag, unsigned how) {
  switch (how % 4) {
  case 0:
    tag->word[take() % 3] ^= UINT64_C(1) << take() % 64;
    break;
  case 1:
    *tag = evil.kept[take() % KEPT];
    break;
  case 2:
    *tag = p2p_tag_make((int)take() % (P2P_KINDS + 1), (int)take(), (int)(take() % 32),
                        take_number(), (uint32_t)take_number() % 64);
    break;
  default: { /* of this kind, but another number or word */
    colli_p2p_header head;
    if (p2p_tag_read(tag, &head))
      *tag = p2p_tag_make(head.kind, head.tag, head.type, head.word ^ take_number(),
                          head.number + take() % 3);
    else
      tag->word[take() % 3] += take();
  }
  }
}

/* Sends a message that nobody asked for. */
static void send_extra(coll_conn *conn, const coll_tag *like) {
  uint8_t buf[SLOT_BYTES];
  coll_tag tag = *like;
  const unsigned how = take();
  size_t bytes = take_number() % (SLOT_BYTES + 1);
  change_tag(&tag, how);
  memset(buf, (int)how, sizeof buf);
  (void)evil.inner->send(conn, &tag, buf, bytes);
}

/* How the next message leaves: changes its tag, size and payload; whether it leaves at all. */
static bool change(coll_conn *conn, coll_tag *tag, uint8_t *payload, size_t *bytes) {
  const unsigned what = evil.bytes > 0 ? take() : 0;
  const coll_tag was = *tag;
  evil.kept[evil.sent++ % KEPT] = was;
  if (what == 0)
    return true;
  evil.sound = false;
  for (unsigned i = 0; i < (what >> 5) % (EXTRA + 1) && !((sim_side *)conn)->slot; i++)
    send_extra(conn, &was);
  if (what & 1)
    change_tag(tag, take());
  if (what & 2)
    *bytes = take_number() % (SLOT_BYTES + 1);
  if (what & 4)
    fuzz_take(&evil.data, &evil.bytes, payload, 1 + take() % 16);
  return what % 32 < 24;
}

/* coll_transport_ops.send of the evil rank */
static int evil_send(coll_conn *conn, const coll_tag *tag, const void *buf, size_t bytes) {
  uint8_t copy[SLOT_BYTES] = {0};
  coll_tag sent = *tag;
  const sim_side *side = (sim_side *)conn;
  if (side->credits == 0 || !side->ready)
    return evil.inner->send(conn, tag, buf, bytes);
  if (bytes > 0)
    memcpy(copy, buf, bytes);
  return change(conn, &sent, copy, &bytes) ? evil.inner->send(conn, &sent, copy, bytes)
                                           : COLL_T_DONE;
}

/* coll_transport_ops.slot_acquire: there is room for any message */
static int evil_acquire(coll_conn *conn, size_t bytes, void **buf) {
  (void)bytes;
  return evil.inner->slot_acquire(conn, SLOT_BYTES, buf);
}

/* coll_transport_ops.slot_commit; what is to be lost comes as an empty message */
static int evil_commit(coll_conn *conn, const coll_tag *tag, size_t bytes) {
  coll_tag sent = *tag;
  void *payload;
  int status = evil.inner->slot_acquire(conn, SLOT_BYTES, &payload);
  if (status != COLL_T_DONE)
    return status;
  if (!change(conn, &sent, payload, &bytes))
    bytes = 0;
  return evil.inner->slot_commit(conn, &sent, bytes);
}

/* coll_transport_ops.connect */
static int evil_connect(coll_endpoint *ep, int peer, const uint8_t blob[COLL_BLOB_BYTES],
                        int channel, coll_conn **conn) {
  int status = evil.inner->connect(ep, peer, blob, channel, conn);
  if (status == COLL_T_DONE && ep->env->rank == evil.rank)
    (*conn)->ops = &evil.ops;
  return status;
}

/* A decorated transport. */
static const coll_transport_ops *corrupt(const coll_transport_ops *inner) {
  evil.inner = inner;
  evil.ops = *inner;
  evil.ops.connect = evil_connect;
  evil.ops.send = evil_send;
  evil.ops.slot_acquire = evil_acquire;
  evil.ops.slot_commit = evil_commit;
  return &evil.ops;
}

/* A call that failed says why. */
static void judge(void *ctx, int rank, const coll_comm *comm, coll_status status) {
  coll_error error = COLL_ERROR_INIT;
  (void)ctx, (void)rank;
  coll_last_error(comm, &error);
  if (evil.sound || status == COLL_OK || error.status == COLL_OK || !error.message[0])
    abort();
}

/* Puts and signals around a ring, with blocking and long messages between. */
static coll_status run_window(coll_comm *comm, int rank, int nranks, uint8_t *memory) {
  coll_window *window = NULL;
  const int next = (rank + 1) % nranks, before = (rank + nranks - 1) % nranks;
  uint8_t data[2 * WINDOW] = {0};
  coll_request *request = NULL;
  coll_status status = coll_window_create(comm, memory, WINDOW, &window);
  for (int i = 0; i < PUTS && status == COLL_OK; i++)
    status = coll_put(data, (size_t)(i * 70), COLL_INT8, i % 2 ? next : before, (size_t)i * 100,
                      window, comm);
  if (status == COLL_OK)
    status = coll_signal(next, window, comm);
  if (status == COLL_OK)
    status = coll_wait_signal(before, 1, window, comm);
  if (status == COLL_OK)
    status = coll_isend(data, sizeof data, COLL_INT8, next, 3, comm, &request);
  if (status == COLL_OK)
    status = coll_recv(memory, WINDOW, COLL_INT8, COLL_ANY_SOURCE, 3, NULL, comm);
  if (request) {
    coll_status sent = coll_wait(&request, -1);
    status = status == COLL_OK ? sent : status;
  }
  coll_status destroyed = window ? coll_window_destroy(&window) : COLL_OK;
  return status == COLL_OK ? destroyed : status;
}

static int window_main(coll_comm *comm, int rank, int nranks, void *arg) {
  uint8_t *memory = malloc(WINDOW);
  (void)arg;
  if (!memory)
    abort();
  (void)run_window(comm, rank, nranks, memory);
  free(memory);
  return 0;
}

static int mixed_main(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)mixed_run(comm, rank, nranks, arg);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static mixed_plan plan;
  world w;
  memset(&evil, 0, sizeof evil);
  evil.data = data;
  evil.bytes = bytes;
  evil.sound = true;
  const unsigned how = take();
  const int nranks = 2 + (int)(how >> 2) % 4;
  evil.rank = (int)(how >> 4) % nranks;
  plan = (mixed_plan){.seed = take(), .failed = judge};
  plan.config = (world_config){.sim = {.seed = 1 + plan.seed, .nranks = nranks, .alpha_ns = 1000},
                               .transport = corrupt(how & 1 ? &sim_slot_transport : &sim_transport),
                               .slot_bytes = SLOT_BYTES,
                               .slot_count = SLOTS,
                               .timeout_ms = 100};
  if (!world_open(&w, &plan.config))
    abort();
  if (!world_run_fibers(&w, how & 2 ? window_main : mixed_main, &plan, LIMIT_NS))
    abort(); /* a call did not end */
  for (int r = 0; r < nranks && !(how & 2); r++)
    mixed_leave(&plan.ranks[r]);
  world_close(&w);
  for (int r = 0; r < nranks && !(how & 2); r++)
    mixed_free(&plan.ranks[r]);
  return 0;
}
