/*
 * fuzz_shm.c: a member of the job that maps the segment of a connection writes what it likes into
 * it, between any calls of the other side: heads, notes, credits, offered work, answers. The other
 * side reads and writes all memory that it is given.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "libcoll/base/fork.h"
#include "libcoll/base/shared.h"
#include "transports/shm/shm.h"
#include "transports/shm/shm_internal.h"

enum { SLOT_BYTES = 4096, SLOTS = 4, REGION = 7, REGION_BYTES = 65536, STEPS = 200, CALLS = 11 };

/* A rank: rank 0 is sound, rank 1 is not. */
typedef struct side {
  coll_transport_env env;
  coll_endpoint *ep;
  coll_conn *conn;
  uint8_t *memory; /* its region */
  int fd;
} side;

static uint64_t now_of(void *ctx) {
  (void)ctx;
  static uint64_t now;
  return now += 1000000;
}

static void note_failure(void *ctx, const coll_transport_failure *failure) {
  (void)ctx, (void)failure;
}

static const char *no_setting(void *ctx, const char *name) {
  (void)ctx, (void)name;
  return "";
}

static void open_side(side *s, int rank) {
  static const uint8_t secret[COLL_SECRET_BYTES] = "both know it";
  colli_shared_fault fault;
  s->env = (coll_transport_env){.size = sizeof(s->env),
                                .now_ns = now_of,
                                .fail = note_failure,
                                .param = no_setting,
                                .rank = rank,
                                .nranks = 2,
                                .host_id = 1,
                                .comm_id = 1,
                                .secret = secret,
                                .slot_bytes = SLOT_BYTES,
                                .slot_count = SLOTS};
  s->fd = colli_shared_create(REGION_BYTES, &fault);
  s->memory = s->fd < 0 ? NULL : colli_shared_map(s->fd, REGION_BYTES, true);
  if (!s->memory || shm_transport.open(&s->env, &s->ep) != COLL_OK ||
      shm_transport.region_add(s->ep, REGION, s->memory, REGION_BYTES, s->fd) != COLL_OK)
    abort();
}

/* Connects both. In one process doorbells and descriptors go another way: hides that. */
static void connect_sides(side sides[2]) {
  for (int r = 0; r < 2; r++) {
    uint8_t blob[COLL_BLOB_BYTES];
    shm_transport.describe(sides[!r].ep, blob);
    if (shm_transport.connect(sides[r].ep, !r, blob, 0, &sides[r].conn) != COLL_OK)
      abort();
  }
  shm_conn *conns[2] = {(shm_conn *)sides[0].conn, (shm_conn *)sides[1].conn};
  while ((conns[0]->gate | conns[1]->gate) != 0)
    for (int r = 0; r < 2; r++)
      shm_transport.progress(sides[r].ep);
  for (int r = 0; r < 2; r++) {
    conns[r]->local = false;
    conns[r]->bell_fd = COLLI_FD(dup(conns[r]->bell_fd));
  }
}

static void close_side(side *s) {
  shm_transport.disconnect(s->conn);
  shm_transport.close(s->ep);
  munmap(s->memory, REGION_BYTES);
  colli_fd_close(s->fd);
}

/* Reads all bytes of a message or payload. */
static void read_all(const void *buf, size_t bytes) {
  const volatile uint8_t *data = buf;
  for (size_t i = 0; i < bytes; i++)
    (void)data[i];
}

/* Does offered work as the executor would, if it makes sense. */
static void work_on(coll_conn *conn) {
  coll_work work;
  if (shm_transport.claim_work(conn, &work) != COLL_T_DONE)
    return;
  if (work.bytes > SLOT_BYTES)
    abort();
  read_all(work.payload, work.bytes);
  if (work.own)
    read_all(work.own, work.bytes);
  memset(work.to, 1, work.bytes);
  if (work.to2)
    memset(work.to2, 2, work.bytes);
  shm_transport.finish_work(conn, &work);
}

/* Offers work on the messages that come next. */
static void offer(side *s, unsigned choice) {
  coll_work_offer what = {.kind = choice,
                          .to_region = REGION,
                          .own_region = choice & 1 ? REGION : 0,
                          .skip = choice >> 1 & 3,
                          .to = s->memory + (choice & 4 ? 30000 : 0),
                          .own = s->memory + 40000,
                          .bytes = 4096,
                          .slice = 2048};
  shm_transport.offer_work(s->conn, &what);
}

/* One call of a side; returns what the call did. */
static int make_call(side *s, unsigned call, unsigned choice) {
  const coll_tag tag = {{choice & 3, 2, 3}};
  const size_t bytes = (size_t)choice * 16 + 1;
  char buf[SLOT_BYTES + 1];
  coll_tag got;
  size_t got_bytes;
  const void *slot;
  void *room;
  uint64_t count;
  int result;
  switch (call) {
  case 0:
    return shm_transport.recv(s->conn, &tag, buf, bytes < SLOT_BYTES ? bytes : SLOT_BYTES, &got,
                              &got_bytes);
  case 1:
    if ((result = shm_transport.slot_peek(s->conn, &got, &slot, &got_bytes)) != COLL_T_DONE)
      return result;
    if (got_bytes > SLOT_BYTES)
      abort();
    read_all(slot, got_bytes);
    return shm_transport.slot_release(s->conn);
  case 2:
    return shm_transport.send(s->conn, &tag, memset(buf, 1, sizeof buf), bytes % SLOT_BYTES);
  case 3:
    if ((result = shm_transport.slot_acquire(s->conn, bytes % SLOT_BYTES, &room)) != COLL_T_DONE)
      return result;
    memset(room, 3, bytes % SLOT_BYTES);
    return shm_transport.slot_commit(s->conn, &tag, bytes % SLOT_BYTES);
  case 4:
    return shm_transport.sent(s->conn, &count);
  case 5:
    return shm_transport.send_ref(s->conn, &tag, REGION, s->memory + bytes, 2048);
  case 6:
    offer(s, choice);
    return COLL_OK;
  case 7:
    work_on(s->conn);
    return COLL_OK;
  case 8:
    shm_transport.arm(s->ep);
    shm_transport.disarm(s->ep);
    return COLL_OK;
  case 9:
    shm_transport.unfinished_work(s->ep, REGION, &got_bytes, &(size_t){0});
    return COLL_OK;
  default:
    return shm_transport.progress(s->ep) < 0 ? COLL_ERR_INTERNAL : COLL_OK;
  }
}

/* The other member writes into the segment, usually where sides, work and heads are. */
static void spoil(const shm_segment *segment, const uint8_t **data, size_t *bytes) {
  uint32_t at;
  uint64_t value;
  uint8_t width;
  fuzz_take(data, bytes, &width, 1);
  fuzz_take(data, bytes, &at, 2 + (width >> 6 == 3));
  fuzz_take(data, bytes, &value, width & 1 ? 4 : 8);
  at %= width >> 6 == 3 ? (uint32_t)segment->bytes - 8 : SHM_PAGE - 8;
  memcpy((char *)segment->memory + at, &value, width & 1 ? 4 : 8);
}

/* A descriptor comes, as if for a region that is offered. */
static void pass_descriptor(shm_conn *conn, const side *from, unsigned choice) {
  if (conn->offered_fd < 0)
    conn->offered_fd = COLLI_FD(choice & 1 ? dup(from->fd) : dup(STDERR_FILENO));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  side sides[2];
  open_side(&sides[0], 0);
  open_side(&sides[1], 1);
  connect_sides(sides);
  shm_conn *sound = (shm_conn *)sides[0].conn;
  for (int i = 0; i < STEPS && bytes > 0; i++) {
    uint8_t step[2];
    fuzz_take(&data, &bytes, step, sizeof step);
    unsigned what = step[0] % 32;
    if (what < CALLS) {
      if (make_call(&sides[0], what, step[1]) > 0)
        break; /* it has found the damage, and makes no more calls */
    } else if (what < 2 * CALLS) {
      (void)make_call(&sides[1], what - CALLS, step[1]);
    } else if (what == 2 * CALLS) {
      pass_descriptor(sound, &sides[1], step[1]);
    } else {
      spoil(&sound->segment, &data, &bytes);
    }
  }
  close_side(&sides[0]);
  close_side(&sides[1]);
  return 0;
}
