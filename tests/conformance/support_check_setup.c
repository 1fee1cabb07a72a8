/* support_check_setup.c: endpoints and the making of connections. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/net/auth.h"
#include "tests/conformance/support_world.h"

#define LIVES  20
#define ROUNDS 5

void conf_open_close(const conf_transport *transport) {
  conf_world *world = conf_begin(transport, 3, -1);
  conf_rounds(world);
  for (int i = 0; i < 3; i++)
    cr_assert_eq(world->rank[i].failures, 0);
  conf_finish(world);
}

/* Open descriptors of this process. */
static int count_fds(void) {
  DIR *dir = opendir("/proc/self/fd");
  cr_assert_not_null(dir);
  int count = 0;
  while (readdir(dir))
    count++;
  closedir(dir);
  return count;
}

/* A whole life cycle: endpoints, a used connection, one that is never answered, the end. */
static void live_once(const conf_transport *transport) {
  conf_world *world = conf_begin(transport, 3, -1);
  conf_end a, b, lonely = conf_connect(world, 0, 2, 3), other = conf_connect(world, 2, 1, 3);
  conf_pair(world, 0, 1, 0, &a, &b);
  conf_exchange(world, &a, CONF_SLOT, &b, CONF_PEEK, 9, world->slot_bytes);
  conf_exchange(world, &b, CONF_SEND, &a, CONF_RECV, 8, world->slot_bytes);
  conf_disconnect(&a);
  conf_disconnect(&lonely);
  conf_disconnect(&b);
  conf_disconnect(&other);
  conf_finish(world);
}

/* What malloc() counts as used. */
static size_t memory_held(void) {
  struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

void conf_no_leaks(const conf_transport *transport) {
  live_once(transport); /* what libraries keep for good is allocated now */
  live_once(transport);
  int fds = count_fds();
  size_t more = SIZE_MAX;
  /* malloc() counts what it caches as used: small leaks are for AddressSanitizer to find. What it
   * caches grows for a while, but a leak never stops. */
  for (int round = 0; round < ROUNDS && more > LIVES * 800; round++) {
    size_t had = memory_held();
    for (int i = 0; i < LIVES; i++)
      live_once(transport);
    size_t holds = memory_held();
    more = holds > had ? holds - had : 0;
  }
  cr_assert_eq(count_fds(), fds, "%d descriptors leak", count_fds() - fds);
  cr_assert_leq(more, LIVES * 800, "%zu bytes leak", more);
}

void conf_describe_reach(const conf_transport *transport) {
  conf_world *world = conf_begin(transport, 3, -1);
  const uint8_t nothing[COLL_BLOB_BYTES] = {0};
  uint8_t again[COLL_BLOB_BYTES];
  memset(again, 0xee, sizeof(again));
  cr_assert_eq(world->ops->describe(world->rank[0].ep, again), COLL_OK);
  cr_assert_eq(memcmp(again, world->rank[0].blob, sizeof(again)), 0);
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++) {
      coll_link link, back;
      if (i == j)
        continue;
      memset(&link, 0xee, sizeof(link));
      memset(&back, 0xdd, sizeof(back));
      cr_assert_eq(world->ops->reach(world->rank[i].blob, world->rank[j].blob, &link), 1);
      cr_assert_eq(world->ops->reach(world->rank[j].blob, world->rank[i].blob, &back), 1);
      cr_assert_gt(link.alpha_ns, 0);
      cr_assert_geq(link.ns_per_byte, 0);
      cr_assert_eq(link.alpha_ns, back.alpha_ns);
      cr_assert_eq(link.ns_per_byte, back.ns_per_byte);
      cr_assert_str_eq(link.reason, back.reason);
      cr_assert_neq(link.reason[0], 0);
    }
  coll_link link;
  memset(&link, 0xee, sizeof(link));
  cr_assert_eq(world->ops->reach(world->rank[0].blob, nothing, &link), 0);
  cr_assert_eq(world->ops->reach(nothing, world->rank[0].blob, &link), 0);
  cr_assert_not_null(memchr(link.reason, 0, sizeof(link.reason)));
  cr_assert_neq(link.reason[0], 0, "no word on why it cannot be used");
  conf_finish(world);
}

/* Asserts that nothing flows on a connection, for a good while. */
static void assert_silent(conf_world *world, conf_end *end) {
  char buf[16];
  for (int i = 0; i < 4; i++) {
    cr_assert_eq(conf_try_send(end, CONF_SEND, 1, "0123456789abcdef", 16), COLL_T_AGAIN);
    cr_assert_eq(conf_try_send(end, CONF_SLOT, 1, "0123456789abcdef", 16), COLL_T_AGAIN);
    cr_assert_eq(conf_try_recv(end, CONF_PEEK, 1, buf, 16), COLL_T_AGAIN);
    cr_assert_eq(conf_try_recv(end, CONF_RECV, 1, buf, 16), COLL_T_AGAIN);
    conf_rounds(world);
  }
}

/* Connects `first`, and much later `second`. */
static void connect_late(const conf_transport *transport, int first, int second) {
  conf_world *world = conf_begin(transport, 2, -1);
  conf_end a = conf_connect(world, first, second, 5);
  assert_silent(world, &a);
  conf_end b = conf_connect(world, second, first, 5);
  for (uint64_t i = 1; i < 10; i++) {
    conf_exchange(world, &a, CONF_SEND, &b, CONF_RECV, i, 16);
    conf_exchange(world, &b, CONF_SEND, &a, CONF_RECV, i, 16);
  }
  cr_assert_eq(world->rank[0].failures + world->rank[1].failures, 0);
  conf_disconnect(&a);
  conf_disconnect(&b);
  conf_finish(world);
}

void conf_connect_lower_first(const conf_transport *transport) {
  connect_late(transport, 0, 1);
}

void conf_connect_higher_first(const conf_transport *transport) {
  connect_late(transport, 1, 0);
}

void conf_disconnect_before_established(const conf_transport *transport) {
  conf_world *world = conf_begin(transport, 3, -1);
  conf_end at_once = conf_connect(world, 0, 2, 0);
  conf_disconnect(&at_once);
  conf_end low = conf_connect(world, 0, 1, 7), high = conf_connect(world, 2, 1, 7);
  conf_rounds(world);
  conf_disconnect(&low);
  conf_disconnect(&high);
  conf_end a, b;
  conf_pair(world, 1, 2, 1, &a, &b);
  conf_disconnect(&a);
  conf_disconnect(&b);
  conf_finish(world);
}

void conf_wrong_secret(const conf_transport *transport) {
  conf_world *world = conf_begin(transport, 3, 1);
  conf_end a, b;
  conf_pair(world, 0, 2, 0, &a, &b);
  conf_end ends[4] = {conf_connect(world, 0, 1, 0), conf_connect(world, 1, 0, 0),
                      conf_connect(world, 1, 2, 0), conf_connect(world, 2, 1, 0)};
  for (uint64_t i = 1; i < 8; i++) {
    char buf[8];
    for (int e = 0; e < 4; e++) {
      int status = conf_try_send(&ends[e], CONF_SEND, 3, "message", 8);
      cr_assert(status == COLL_T_AGAIN || status > 0, "sent to one without the secret: %d", status);
      status = conf_try_recv(&ends[e], CONF_PEEK, 3, buf, 8);
      cr_assert(status == COLL_T_AGAIN || status > 0, "heard from one without the secret");
    }
    conf_exchange(world, &a, CONF_SEND, &b, CONF_RECV, i, 1000);
    conf_exchange(world, &b, CONF_SLOT, &a, CONF_PEEK, i, 1000);
    conf_rounds(world);
  }
  for (int e = 0; e < 4; e++)
    conf_disconnect(&ends[e]);
  conf_disconnect(&a);
  conf_disconnect(&b);
  conf_finish(world);
}

/* Connects to where an endpoint listens; -1: nowhere. */
static int call_on(conf_world *world, int rank) {
  struct sockaddr_storage addr;
  socklen_t length = sizeof(addr);
  if (!world->transport->listener(world->rank[rank].blob, &addr, &length))
    return -1;
  int fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  cr_assert_geq(fd, 0);
  cr_assert_eq(connect(fd, (struct sockaddr *)&addr, length), 0);
  return fd;
}

/* What becomes of a connection to rank 1 by one who knows the secret and claims to be such a rank.
 */
static int claim(conf_world *world, const colli_hello *hello, int *sys_errno) {
  const coll_transport_env *env = &world->rank[1].env;
  colli_auth auth;
  int fd = call_on(world, 1), result;
  cr_assert_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
  colli_auth_connect(&auth, fd, env->secret, (colli_hello_kind)hello->kind, hello->src_rank,
                     hello->dst_rank, hello->comm_id, hello->word);
  auth.deadline_ns = colli_now_ns() + COLLI_NS_PER_S;
  while ((result = colli_auth_poll(&auth)) == COLL_T_AGAIN)
    conf_round(world);
  *sys_errno = errno;
  close(fd);
  return result;
}

void conf_misplaced_hello(const conf_transport *transport) {
  conf_world *world = conf_begin(transport, 2, -1);
  const uint64_t comm_id = world->rank[1].env.comm_id;
  const colli_hello good = {
      .kind = COLLI_HELLO_DATA, .src_rank = 0, .dst_rank = 1, .comm_id = comm_id};
  int fd = transport->listener ? call_on(world, 1) : -1;
  if (fd < 0)
    cr_skip_test("%s listens nowhere that a rank could connect to", transport->ops->name);
  close(fd);
  for (int i = 0; i < 7; i++) {
    colli_hello bad = good;
    int sys_errno = 0;
    bad.src_rank = i == 0 ? 1 : i == 1 ? 2 : i == 2 ? -1 : 0;
    bad.dst_rank = i == 3 ? 0 : 1;
    bad.comm_id += i == 4;
    bad.kind = i == 5 ? COLLI_HELLO_SHRINK : COLLI_HELLO_DATA;
    bad.word = i == 6 ? UINT64_C(1) << 40 : 0;
    const int result = claim(world, &bad, &sys_errno);
    const bool kept = (i == 3 || i == 5) && result == COLL_ERR_TIMEOUT; /* by the kernel */
    cr_assert(kept || (result == COLL_ERR_PEER_LOST && sys_errno == EPERM), "claim %d", i);
  }
  conf_end a, b;
  conf_pair(world, 0, 1, 0, &a, &b);
  cr_assert_eq(world->rank[0].failures + world->rank[1].failures, 0);
  conf_disconnect(&a);
  conf_disconnect(&b);
  conf_finish(world);
}

/* Connects to where an endpoint listens and sends bytes that mean nothing; the socket. */
static int bother(conf_world *world, int rank, colli_prng *prng) {
  int fd = call_on(world, rank);
  if (fd < 0)
    return -1;
  uint8_t junk[600];
  data_fill_bytes(junk, sizeof(junk), colli_prng_next(prng));
  size_t bytes = colli_prng_below(prng, sizeof(junk));
  if (bytes > 0)
    cr_assert_eq(send(fd, junk, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
  return fd;
}

void conf_strangers(const conf_transport *transport) {
  if (!transport->listener)
    cr_skip_test("%s listens nowhere that a stranger could connect to", transport->ops->name);
  conf_world *world = conf_begin(transport, 2, -1);
  colli_prng prng = {conf_real_ns()};
  cr_log_info("seed %llu", (unsigned long long)prng.state);
  int fds[24];
  for (int i = 0; i < 12; i++)
    fds[i] = bother(world, i % 2, &prng);
  conf_end a, b;
  conf_pair(world, 0, 1, 0, &a, &b);
  for (int i = 12; i < 24; i++) {
    fds[i] = bother(world, i % 2, &prng);
    conf_exchange(world, &a, CONF_SEND, &b, CONF_RECV, (uint64_t)i, 100);
    conf_exchange(world, &b, CONF_SEND, &a, CONF_RECV, (uint64_t)i, 100);
  }
  for (int i = 0; i < 24; i++)
    if (fds[i] >= 0)
      close(fds[i]);
  conf_rounds(world);
  cr_assert_eq(world->rank[0].failures + world->rank[1].failures, 0);
  conf_disconnect(&a);
  conf_disconnect(&b);
  conf_finish(world);
}
