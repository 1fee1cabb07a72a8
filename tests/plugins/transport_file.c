/*
 * transport_file.c: a small transport as a plug-in; see docs/transports.md. A connection is a file
 * in /dev/shm that both ranks map: each has a side of it, with a ring of messages that the other
 * one reads. Nothing wakes a rank that sleeps, so arm() says that it must not.
 */
#include <coll/coll_transport.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* Its payload follows, at 64 bytes. */
typedef struct message {
  _Alignas(64) coll_tag tag;
  uint64_t bytes;
} message;

/* What one rank writes of the file. */
typedef struct side {
  _Alignas(64) uint8_t secret[COLL_SECRET_BYTES];
  atomic_int ready, closed;     /* ready: the secret is there */
  _Atomic uint64_t sent, taken; /* messages put into its ring, and taken from the other one's */
} side;

struct coll_endpoint {
  const coll_transport_env *env;
  uint64_t name; /* random */
};

typedef struct file_conn {
  coll_conn conn;
  const coll_transport_env *env;
  char name[64];
  void *map;
  size_t message_bytes, side_bytes;
  side *mine, *theirs;
} file_conn;

static int file_open(const coll_transport_env *env, coll_endpoint **ep) {
  *ep = malloc(sizeof(**ep));
  if (!*ep)
    return COLL_ERR_NO_MEMORY;
  (*ep)->env = env;
  return getrandom(&(*ep)->name, 8, 0) == 8 ? COLL_OK : COLL_ERR_SYSTEM;
}

static void file_close(coll_endpoint *ep) {
  free(ep);
}

static int file_describe(coll_endpoint *ep, uint8_t blob[COLL_BLOB_BYTES]) {
  memset(blob, 0, COLL_BLOB_BYTES);
  memcpy(blob, "file-1", 7);
  memcpy(blob + 8, &ep->env->host_id, 8);
  memcpy(blob + 16, &ep->name, 8);
  return COLL_OK;
}

static int file_reach(const uint8_t *a, const uint8_t *b, coll_link *link) {
  const int same = memcmp(a, "file-1", 7) == 0 && memcmp(a, b, 16) == 0;
  *link = (coll_link){.alpha_ns = 500, .ns_per_byte = 0.1};
  snprintf(link->reason, sizeof(link->reason), same ? "same host" : "other host");
  return same;
}

static int fail(const file_conn *c, coll_status status, const char *detail) {
  coll_transport_failure failure = {status, c->conn.peer, c->conn.channel, .detail = detail};
  c->env->fail(c->env->ctx, &failure);
  return (int)status;
}

/* Opens the file, which either rank may make; another user's will not do. */
static void *map_file(const char *name, size_t bytes) {
  struct stat info;
  void *map = MAP_FAILED;
  int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
  if (fd >= 0 && fstat(fd, &info) == 0 && info.st_uid == geteuid() &&
      ftruncate(fd, (off_t)bytes) == 0)
    map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0)
    close(fd);
  return map;
}

static int file_connect(coll_endpoint *ep, int peer, const uint8_t *blob, int channel,
                        coll_conn **conn) {
  const coll_transport_env *env = ep->env;
  const int high = env->rank > peer;
  uint64_t name;
  file_conn *c = calloc(1, sizeof(*c));
  if (!c)
    return COLL_ERR_NO_MEMORY;
  *c = (file_conn){.conn = {coll_transport_plugin(), peer, channel}, .env = env};
  c->message_bytes = sizeof(message) + (env->slot_bytes + 63) / 64 * 64;
  c->side_bytes = sizeof(side) + env->slot_count * c->message_bytes;
  memcpy(&name, blob + 16, 8);
  snprintf(c->name, sizeof(c->name), "/coll-%016" PRIx64 "-%d", name ^ ep->name, channel);
  c->map = map_file(c->name, 2 * c->side_bytes);
  if (c->map == MAP_FAILED) {
    fail(c, COLL_ERR_SYSTEM, "a file in /dev/shm cannot be made or mapped");
    free(c);
    return COLL_ERR_SYSTEM;
  }
  c->mine = (side *)((char *)c->map + (size_t)high * c->side_bytes);
  c->theirs = (side *)((char *)c->map + (size_t)!high * c->side_bytes);
  memcpy(c->mine->secret, env->secret, COLL_SECRET_BYTES);
  atomic_store(&c->mine->ready, 1);
  *conn = &c->conn;
  return COLL_OK;
}

static void file_disconnect(coll_conn *conn) {
  file_conn *c = (file_conn *)conn;
  atomic_store(&c->mine->closed, 1);
  shm_unlink(c->name);
  munmap(c->map, 2 * c->side_bytes);
  free(c);
}

/* DONE: the peer is there; AGAIN: not yet; or an error. */
static int check_peer(const file_conn *c, int may_be_closed) {
  if (!atomic_load(&c->theirs->ready))
    return COLL_T_AGAIN;
  if (memcmp(c->theirs->secret, c->env->secret, COLL_SECRET_BYTES) != 0)
    return fail(c, COLL_ERR_AUTH, "the other side of the file has another secret");
  if (!may_be_closed && atomic_load(&c->theirs->closed))
    return fail(c, COLL_ERR_PEER_LOST, "the peer has closed its side of the file");
  return COLL_T_DONE;
}

static message *message_at(const file_conn *c, side *of, uint64_t number) {
  return (message *)((char *)(of + 1) + number % c->env->slot_count * c->message_bytes);
}

static int file_slot_acquire(coll_conn *conn, size_t bytes, void **buf) {
  const file_conn *c = (file_conn *)conn;
  const uint64_t sent = atomic_load(&c->mine->sent);
  int status = check_peer(c, 0);
  (void)bytes; /* a slot has room for slot_bytes */
  *buf = message_at(c, c->mine, sent) + 1;
  if (status == COLL_T_DONE && sent - atomic_load(&c->theirs->taken) == c->env->slot_count)
    return COLL_T_AGAIN;
  return status;
}

static int file_slot_commit(coll_conn *conn, const coll_tag *tag, size_t bytes) {
  const file_conn *c = (file_conn *)conn;
  message *next = message_at(c, c->mine, atomic_load(&c->mine->sent));
  next->tag = *tag;
  next->bytes = bytes;
  atomic_fetch_add(&c->mine->sent, 1);
  return COLL_T_DONE;
}

static int file_send(coll_conn *conn, const coll_tag *tag, const void *buf, size_t bytes) {
  void *slot;
  int status = file_slot_acquire(conn, bytes, &slot);
  if (status != COLL_T_DONE)
    return status;
  memcpy(slot, buf, bytes);
  return file_slot_commit(conn, tag, bytes);
}

static int file_sent(coll_conn *conn, uint64_t *count) {
  *count = atomic_load(&((file_conn *)conn)->mine->sent);
  return COLL_OK;
}

static int file_slot_peek(coll_conn *conn, coll_tag *got, const void **buf, size_t *bytes) {
  const file_conn *c = (file_conn *)conn;
  const uint64_t taken = atomic_load(&c->mine->taken);
  const int closed = atomic_load(&c->theirs->closed); /* read first: what was sent is delivered */
  const int empty = atomic_load(&c->theirs->sent) == taken;
  const message *next = message_at(c, c->theirs, taken);
  int status = check_peer(c, !closed || !empty);
  if (status != COLL_T_DONE || empty)
    return status != COLL_T_DONE ? status : COLL_T_AGAIN;
  *got = next->tag;
  *bytes = next->bytes;
  *buf = next + 1;
  return COLL_T_DONE;
}

static int file_slot_release(coll_conn *conn) {
  atomic_fetch_add(&((file_conn *)conn)->mine->taken, 1);
  return COLL_T_DONE;
}

static int file_recv(coll_conn *conn, const coll_tag *expect, void *buf, size_t bytes,
                     coll_tag *got, size_t *got_bytes) {
  const void *from;
  int status = file_slot_peek(conn, got, &from, got_bytes);
  if (status != COLL_T_DONE)
    return status;
  if (memcmp(got, expect, sizeof(*got)) != 0 || *got_bytes != bytes)
    return COLL_ERR_MISMATCH;
  memcpy(buf, from, bytes);
  return file_slot_release(conn);
}

/* Data calls do all the work: nothing is left for these. */
static int file_progress(coll_endpoint *ep) {
  return ep == NULL;
}

static int file_wait_fd(coll_endpoint *ep) {
  return ep ? -1 : 0; /* there is no descriptor to sleep on, */
}

static int file_arm(coll_endpoint *ep) {
  return ep != NULL; /* so libcoll must not sleep */
}

static void file_nothing(coll_endpoint *ep) {
  (void)ep;
}

static const coll_transport_ops table = {
    .size = sizeof(coll_transport_ops),
    .abi = COLL_TRANSPORT_ABI,
    .caps = COLL_CAP_SPIN | COLL_CAP_SHARED_MEMORY,
    .name = "file",
    .open = file_open,
    .close = file_close,
    .describe = file_describe,
    .reach = file_reach,
    .connect = file_connect,
    .disconnect = file_disconnect,
    .send = file_send,
    .sent = file_sent,
    .slot_acquire = file_slot_acquire,
    .slot_commit = file_slot_commit,
    .recv = file_recv,
    .slot_peek = file_slot_peek,
    .slot_release = file_slot_release,
    .progress = file_progress,
    .wait_fd = file_wait_fd,
    .arm = file_arm,
    .disarm = file_nothing,
    .wake = file_nothing,
};

const coll_transport_ops *coll_transport_plugin(void) {
  return &table;
}
