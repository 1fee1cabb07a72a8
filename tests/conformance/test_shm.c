/* test_shm.c: the conformance suite on the shared-memory transport. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "tests/conformance/support_conformance.h"
#include "tests/conformance/support_world.h"
#include "transports/shm/shm.h"
#include "transports/shm/shm_wire.h"

/* The abstract Unix socket of the endpoint behind a blob. */
static bool listener(const uint8_t raw[COLL_BLOB_BYTES], struct sockaddr_storage *addr,
                     socklen_t *length) {
  shm_blob blob;
  struct sockaddr_un address;
  if (shm_blob_read(raw, &blob) != 0)
    return false;
  *length = shm_blob_address(&blob, &address);
  memset(addr, 0, sizeof *addr);
  memcpy(addr, &address, sizeof address);
  return true;
}

static const conf_transport transport = {.ops = &shm_transport, .listener = listener};

CONFORMANCE(shm, &transport)

/* Messages that are long enough to be referred to. */
Test(shm, long_messages, .timeout = 60) {
  conf_memory_traffic(&(conf_transport){.ops = &shm_transport, .slot_bytes = 65536});
}

/*
 * A peer may leave because of the very message that is just being published: seeing it gone right
 * after that is no failure of this send. Only the next one is one too many.
 */
Test(shm, last_message_of_a_leaver) {
  conf_world *world = conf_begin(&transport, 2, -1);
  conf_end a, b;
  conf_pair(world, 0, 1, 0, &a, &b);
  conf_disconnect(&a);
  char buf[64] = {0};
  cr_assert_eq(conf_try_send(&b, CONF_SEND, 3, buf, sizeof(buf)), COLL_T_DONE);
  cr_assert_eq(conf_try_send(&b, CONF_SEND, 4, buf, sizeof(buf)), COLL_ERR_PEER_LOST);
  conf_disconnect(&b);
  conf_finish(world);
}

/* What a connection says that nobody answers: an error, or nothing yet. */
static int hear(conf_end *end) {
  char buf[8];
  return conf_try_recv(end, CONF_PEEK, 1, buf, sizeof(buf));
}

/* Knowing the secret is not enough: the hello must be for this rank of this communicator. */
Test(shm, hello_for_others, .timeout = 60) {
  conf_world *world = conf_begin(&transport, 3, -1);
  world->rank[0].env.comm_id++;
  conf_end astray = conf_connect(world, 0, 2, 0), unmet = conf_connect(world, 2, 0, 0);
  cr_assert_eq(conf_receive_error(world, &astray), COLL_ERR_PEER_LOST);
  cr_assert_eq(hear(&unmet), COLL_T_AGAIN);
  conf_disconnect(&astray);
  conf_disconnect(&unmet);
  world->rank[0].env.comm_id--;

  memcpy(world->rank[1].blob, world->rank[2].blob, COLL_BLOB_BYTES);
  astray = conf_connect(world, 0, 1, 0);
  unmet = conf_connect(world, 2, 0, 0);
  cr_assert_eq(conf_receive_error(world, &astray), COLL_ERR_PEER_LOST);
  cr_assert_eq(hear(&unmet), COLL_T_AGAIN);
  conf_disconnect(&astray);
  conf_disconnect(&unmet);
  conf_finish(world);
}

static uint64_t an_hour_later(void *ctx) {
  (void)ctx;
  return conf_real_ns() + 3600 * COLLI_NS_PER_S;
}

/* A peer may compute for any length of time before it looks for dialers. */
Test(shm, patient_dialer, .timeout = 60) {
  conf_world *world = conf_begin(&transport, 2, -1);
  conf_end a = conf_connect(world, 0, 1, 0);
  world->rank[0].env.now_ns = an_hour_later;
  for (int i = 0; i < 100; i++)
    cr_assert_geq(world->ops->progress(world->rank[0].ep), 0);
  cr_assert_eq(hear(&a), COLL_T_AGAIN);
  conf_end b = conf_connect(world, 1, 0, 0);
  conf_exchange(world, &a, CONF_SEND, &b, CONF_RECV, 1, 16);
  cr_assert_eq(world->rank[0].failures + world->rank[1].failures, 0);
  conf_disconnect(&a);
  conf_disconnect(&b);
  conf_finish(world);
}

/* A silent dialer does not keep a descriptor of this rank open forever. */
Test(shm, silent_stranger, .timeout = 60) {
  conf_world *world = conf_begin(&transport, 1, -1);
  struct sockaddr_storage addr;
  socklen_t length;
  cr_assert(listener(world->rank[0].blob, &addr, &length));
  int fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  cr_assert_eq(connect(fd, (struct sockaddr *)&addr, length), 0);
  /* The challenge comes first. */
  char byte;
  conf_rounds(world);
  while (recv(fd, &byte, 1, 0) == 1)
    ;
  cr_assert_eq(errno, EAGAIN, "a stranger is given time to speak");
  world->rank[0].env.now_ns = an_hour_later;
  conf_rounds(world);
  cr_assert_eq(recv(fd, &byte, 1, 0), 0, "a silent stranger's connection is closed");
  cr_assert_eq(world->rank[0].failures, 0);
  close(fd);
  conf_finish(world);
}

/* A connection of a stranger to rank 0. */
static int come_as_stranger(const conf_world *world) {
  struct sockaddr_storage addr;
  socklen_t length;
  cr_assert(listener(world->rank[0].blob, &addr, &length));
  int fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  cr_assert_eq(connect(fd, (struct sockaddr *)&addr, length), 0);
  return fd;
}

/* Whether a stranger's connection was closed. */
static bool is_turned_away(int fd) {
  char bytes[100];
  ssize_t got;
  while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0)
    ;
  return got == 0 || errno == ECONNRESET;
}

/* A clock that a test sets. */
static uint64_t ahead_ns;

static uint64_t now_ahead(void *ctx) {
  (void)ctx;
  return colli_now_ns() + ahead_ns;
}

/* The handshake as a whole has a deadline: single bytes do not renew it. */
Test(shm, slow_stranger, .timeout = 60) {
  static const uint8_t hello[] = {'C', 'L', 'i', 'h'};
  conf_world *world = conf_begin(&transport, 1, -1);
  world->rank[0].env.now_ns = now_ahead;
  int fd = come_as_stranger(world);
  for (int i = 0; i < 3; i++) {
    cr_assert_eq(send(fd, &hello[i], 1, MSG_NOSIGNAL), 1);
    conf_rounds(world);
    cr_assert(!is_turned_away(fd), "after %d bytes", i);
    ahead_ns += 2 * COLLI_NS_PER_S;
  }
  conf_rounds(world);
  cr_expect(is_turned_away(fd));
  cr_expect_eq(world->rank[0].failures, 0);
  close(fd);
  conf_finish(world);
}

/* Strangers are few, the oldest leaves first; a rank that has to leave with them dials again. */
Test(shm, many_strangers, .timeout = 60) {
  enum { MANY = 400 };
  int fds[MANY], left = 0;
  conf_world *world = conf_begin(&transport, 2, -1);
  const coll_transport_ops *ops = world->ops;
  world->rank[1].env.now_ns = now_ahead;
  conf_end a = conf_connect(world, 0, 1, 0), b = conf_connect(world, 1, 0, 0);
  for (int i = 0; i < 100; i++) /* rank 1 accepts, and rank 0 computes */
    cr_assert_geq(ops->progress(world->rank[1].ep), 0);
  struct sockaddr_storage addr;
  socklen_t length;
  cr_assert(listener(world->rank[1].blob, &addr, &length));
  for (int i = 0; i < MANY; i++) {
    fds[i] = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    cr_assert_eq(connect(fds[i], (struct sockaddr *)&addr, length), 0);
    ahead_ns += 10 * COLLI_NS_PER_MS;
    cr_assert_geq(ops->progress(world->rank[1].ep), 0);
  }
  for (int i = 0; i < 100; i++) {
    ahead_ns += COLLI_NS_PER_MS;
    cr_assert_geq(ops->progress(world->rank[1].ep), 0);
  }
  for (int i = 0; i < MANY; i++)
    left += !is_turned_away(fds[i]);
  cr_expect_gt(left, 0);
  cr_expect_lt(left, 100);
  cr_expect(is_turned_away(fds[0]));
  cr_expect(!is_turned_away(fds[MANY - 1]));
  conf_exchange(world, &a, CONF_SEND, &b, CONF_RECV, 1, 16);
  cr_expect_eq(world->rank[0].failures + world->rank[1].failures, 0);
  for (int i = 0; i < MANY; i++)
    close(fds[i]);
  conf_disconnect(&a);
  conf_disconnect(&b);
  conf_finish(world);
}

/* Another user's connection is closed before anything is kept of it, also where the rank is root.
 */
Test(shm, other_user, .timeout = 60) {
  /* Root of a user namespace may know no other user. */
  if (geteuid() != 0 || seteuid(65534) != 0)
    cr_skip_test("needs root, to become another user");
  cr_assert_eq(seteuid(0), 0);
  conf_world *world = conf_begin(&transport, 1, -1);
  cr_assert_eq(seteuid(65534), 0);
  int fd = come_as_stranger(world);
  cr_assert_eq(seteuid(0), 0);
  conf_rounds(world);
  cr_expect(is_turned_away(fd));
  cr_expect_eq(world->rank[0].failures, 0);
  close(fd);
  conf_finish(world);
}
