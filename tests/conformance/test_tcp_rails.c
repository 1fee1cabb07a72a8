/* test_tcp_rails.c: the conformance suite on TCP between hosts with two network interfaces. All
 * ranks of a test are in this process, and its network namespace has the interfaces. Needs root. */
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/conformance/support_conformance.h"
#include "tests/conformance/support_tcp.h"
#include "tests/conformance/support_world.h"
#include "transports/tcp/tcp.h"
#include "transports/tcp/tcp_rails.h"

static const conf_transport small = {.ops = &tcp_transport,
                                     .setup = conf_tcp_two_interfaces,
                                     .prepare = conf_tcp_apart,
                                     .listener = conf_tcp_listener};
CONFORMANCE(tcp_rails, &small)

static const conf_transport large = {.ops = &tcp_transport,
                                     .slot_bytes = 1 << 20,
                                     .slot_count = 16,
                                     .setup = conf_tcp_two_interfaces,
                                     .prepare = conf_tcp_apart,
                                     .listener = conf_tcp_listener};
CONFORMANCE(tcp_rails_large, &large)

static const conf_transport tls = {.ops = &tcp_transport,
                                   .setup = conf_tcp_two_interfaces,
                                   .prepare = conf_tcp_apart,
                                   .param = conf_tcp_with_tls,
                                   .listener = conf_tcp_listener};
CONFORMANCE(tcp_rails_tls, &tls)

/* Three sockets of the only interface. */
static const char *with_sockets(const char *name) {
  return strcmp(name, "COLL_TCP_SOCKETS") == 0  ? "3"
         : strcmp(name, "COLL_TCP_IFNAME") == 0 ? "=a0"
                                                : NULL;
}

static const conf_transport sockets = {.ops = &tcp_transport,
                                       .slot_bytes = 1 << 17,
                                       .setup = conf_tcp_two_interfaces,
                                       .prepare = conf_tcp_apart,
                                       .param = with_sockets,
                                       .listener = conf_tcp_listener};
CONFORMANCE(tcp_sockets, &sockets)

static unsigned cut; /* how often a rail was cut in this test's process */

/* Whether a descriptor is a TCP connection to the second interface. */
static bool is_second_rail(int fd) {
  struct sockaddr_in6 name;
  socklen_t length = sizeof(name);
  char text[INET6_ADDRSTRLEN] = "";
  if (getpeername(fd, (struct sockaddr *)&name, &length) != 0)
    return false;
  if (name.sin6_family == AF_INET)
    inet_ntop(AF_INET, &((struct sockaddr_in *)&name)->sin_addr, text, sizeof(text));
  else if (name.sin6_family == AF_INET6)
    inet_ntop(AF_INET6, &name.sin6_addr, text, sizeof(text));
  return strstr(text, "10.62.0.1") != NULL;
}

/* Now and then one end of a second rail can send nothing more. */
static void cut_second(void *device) {
  static unsigned rounds; /* of this test's process */
  (void)device;
  const int fd = (int)(++rounds % 4096);
  if (fd < 256 && rounds > 4096 && is_second_rail(fd))
    cut += shutdown(fd, SHUT_WR) == 0;
}

static const conf_transport broken = {.ops = &tcp_transport,
                                      .setup = conf_tcp_two_interfaces,
                                      .prepare = conf_tcp_apart,
                                      .advance = cut_second,
                                      .listener = conf_tcp_listener};

/* The same with messages that are cut into pieces. */
static const conf_transport broken_pieces = {.ops = &tcp_transport,
                                             .slot_bytes = 1 << 17,
                                             .setup = conf_tcp_two_interfaces,
                                             .prepare = conf_tcp_apart,
                                             .advance = cut_second,
                                             .listener = conf_tcp_listener};

/* The same with two sockets of each pair of interfaces. */
static const char *with_two_sockets(const char *name) {
  return strcmp(name, "COLL_TCP_SOCKETS") == 0 ? "2" : NULL;
}

static const conf_transport broken_sockets = {.ops = &tcp_transport,
                                              .slot_bytes = 1 << 17,
                                              .setup = conf_tcp_two_interfaces,
                                              .prepare = conf_tcp_apart,
                                              .param = with_two_sockets,
                                              .advance = cut_second,
                                              .listener = conf_tcp_listener};

/* Messages are neither lost nor delivered twice, and keep their order, while a rail breaks and
 * comes back again and again. */
Test(tcp_rails_broken, random_traffic, .timeout = 300) {
  for (int i = 0; i < 5; i++)
    conf_random_traffic(&broken);
}

Test(tcp_rails_broken, traffic_in_pieces, .timeout = 300) {
  for (int i = 0; i < 5; i++)
    conf_random_traffic(&broken_pieces);
  conf_memory_traffic(&broken_pieces);
}

Test(tcp_rails_broken, traffic_over_several_sockets, .timeout = 300) {
  for (int i = 0; i < 5; i++)
    conf_random_traffic(&broken_sockets);
  conf_memory_traffic(&broken_sockets);
}

Test(tcp_rails_broken, memory_traffic, .timeout = 300) {
  conf_memory_traffic(&broken);
}

Test(tcp_rails_broken, rails_were_cut, .timeout = 300) {
  for (int i = 0; i < 200 && cut == 0; i++)
    conf_random_traffic(&broken);
  cr_assert_gt(cut, 0, "no rail was ever cut");
}

/* Whether an end of rank 0's is connected; it has not failed. */
static bool is_up(const conf_end *end) {
  const tcp_rails *rails = (const tcp_rails *)end->conn;
  cr_assert_eq(rails->status, COLL_OK, "%s", rails->detail);
  return rails->was_up;
}

/* Two sockets whose handshakes end in the same look at the door are both taken. */
Test(tcp_rails, two_sockets_at_once, .timeout = 60) {
  conf_world *world = conf_begin(&small, 2, -1);
  conf_end taker = conf_connect(world, 1, 0, 0);
  conf_end dialer[2] = {conf_connect(world, 0, 1, 0), conf_connect(world, 0, 1, 0)};
  while (!is_up(&dialer[0]) || !is_up(&dialer[1]))
    conf_round(world);
  for (int i = 0; i < 2; i++)
    conf_disconnect(&dialer[i]);
  conf_disconnect(&taker);
  conf_finish(world);
}

/* All sockets of a pair of interfaces are made, have pieces of long messages, and are replaced if
 * they break. */
Test(tcp_sockets, all_are_used, .timeout = 60) {
  conf_world *world = conf_begin(&sockets, 2, -1);
  conf_end taker = conf_connect(world, 1, 0, 0), dialer = conf_connect(world, 0, 1, 0);
  tcp_rails *rails = (tcp_rails *)dialer.conn;
  tcp_conn *conn;
  for (uint64_t turn = 0; turn < 3; turn++) {
    while (tcp_rails_open(rails) < 3 || tcp_rails_open((tcp_rails *)taker.conn) < 3)
      conf_round(world);
    for (uint64_t i = 0; i < 4; i++)
      conf_exchange(world, &dialer, CONF_SEND, &taker, CONF_RECV, 4 * turn + i, world->slot_bytes);
    TAILQ_FOREACH(conn, &rails->sockets, rail.link) /* later, whole messages are as fast */
      cr_assert(turn > 0 || conn->rail.given > 0, "a socket has no pieces");
    conn = TAILQ_FIRST(&rails->sockets);
    cr_assert_eq(shutdown(conn->source.fd, SHUT_RDWR), 0);
    while (tcp_rails_open(rails) == 3)
      conf_round(world);
  }
  conf_disconnect(&dialer);
  conf_disconnect(&taker);
  conf_finish(world);
}

/* The interfaces of a rank that has one, and of one that has two beside it and one elsewhere. */
static const char *param_one(void *ctx, const char *name) {
  (void)ctx;
  return strcmp(name, "COLL_TCP_IFNAME") == 0 ? "=a0" : "";
}

static const char *param_three(void *ctx, const char *name) {
  (void)ctx;
  return strcmp(name, "COLL_TCP_IFNAME") == 0 ? "=a1,=b0,=b1" : "";
}

static void prepare_one(coll_transport_env *env) {
  conf_tcp_apart(env);
  env->param = env->rank == 0 ? param_one : param_three;
}

static void *set_up_one(int nranks) {
  conf_tcp_two_interfaces(nranks);
  if (system("ip addr add 10.61.0.2/24 dev b0 && ip addr add 10.61.0.3/24 dev b1") != 0)
    cr_skip_test("needs root and ip (iproute2) to add addresses");
  return NULL;
}

static const conf_transport one_interface = {
    .ops = &tcp_transport, .setup = set_up_one, .prepare = prepare_one};

/* Whether an open rail leads to an interface of the peer's. */
static bool has_rail(const tcp_rails *rails, uint32_t nic_there) {
  const tcp_conn *conn;
  TAILQ_FOREACH(conn, &rails->sockets, rail.link)
    if (tcp_rail_is_open(conn) && conn->rail.nic_there == nic_there)
      return true;
  return false;
}

/* Gives addresses of an interface another port. */
static void set_port(tcp_blob *blob, uint32_t nic, uint16_t port) {
  for (uint32_t i = 0; i < blob->count; i++)
    if (blob->addrs[i].scope == nic)
      blob->addrs[i].port = port;
}

/* The near interfaces of a peer refuse at first, so that its far one has the first socket. That one
 * stays until all near ones have rails, and does not keep these away. */
Test(tcp_rails, near_interfaces_replace_a_far_one, .timeout = 60) {
  conf_world *world = conf_begin(&one_interface, 2, -1);
  const uint32_t far = if_nametoindex("a1"), near[] = {if_nametoindex("b0"), if_nametoindex("b1")};
  tcp_blob *peer = (tcp_blob *)world->rank[1].blob;
  const uint16_t port = peer->addrs[0].port;
  for (int i = 0; i < 2; i++)
    set_port(peer, near[i], 1);
  conf_end taker = conf_connect(world, 1, 0, 0), dialer = conf_connect(world, 0, 1, 0);
  tcp_rails *rails = (tcp_rails *)dialer.conn;
  cr_assert(tcp_rails_share_one(rails));
  while (!is_up(&dialer))
    conf_round(world);
  for (int i = 0; i < 2; i++) {
    cr_assert(has_rail(rails, far), "%d near rails", i);
    set_port(&rails->peer, near[i], port);
    while (!has_rail(rails, near[i]))
      conf_round(world);
  }
  cr_assert(!has_rail(rails, far));
  cr_assert_eq(tcp_rails_open(rails), 2);
  conf_exchange(world, &dialer, CONF_SEND, &taker, CONF_RECV, 0, 4096);
  conf_disconnect(&dialer);
  conf_disconnect(&taker);
  conf_finish(world);
}
