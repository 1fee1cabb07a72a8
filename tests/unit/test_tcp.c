/* test_tcp.c: what the TCP transport does beyond the conformance suite: addresses, dialing, ports.
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <linux/filter.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "tcp_blob.h"
#include "transports/tcp/tcp.h"
#include "waits.h"

/* One rank's endpoint and what it reported. */
typedef struct node {
  coll_transport_env env;
  coll_endpoint *ep;
  uint8_t blob[COLL_BLOB_BYTES];
  const char *ports, *ifname;
  coll_status status;
  int peer, sys_errno;
  char detail[TCP_DETAIL_BYTES];
} node;

static uint64_t now_ns(void *ctx) {
  (void)ctx;
  return colli_now_ns();
}

static void fail(void *ctx, const coll_transport_failure *failure) {
  node *n = ctx;
  n->status = failure->status;
  n->peer = failure->peer;
  n->sys_errno = failure->sys_errno;
  snprintf(n->detail, sizeof(n->detail), "%s", failure->detail);
}

static const char *param(void *ctx, const char *name) {
  const node *n = ctx;
  const char *text = strcmp(name, "COLL_PORT_RANGE") == 0   ? n->ports
                     : strcmp(name, "COLL_TCP_IFNAME") == 0 ? n->ifname
                                                            : NULL;
  return text ? text : "";
}

static int open_node(node *n, int rank) {
  n->env = (coll_transport_env){.size = sizeof(n->env),
                                .ctx = n,
                                .now_ns = now_ns,
                                .fail = fail,
                                .param = param,
                                .rank = rank,
                                .nranks = 4,
                                .host_id = 1,
                                .machine_id = 5,
                                .comm_id = 2,
                                .secret = (const uint8_t *)"the same secret for both of them",
                                .slot_bytes = 4096,
                                .slot_count = 4};
  int status = tcp_transport.open(&n->env, &n->ep);
  if (status == COLL_OK)
    cr_assert_eq(tcp_transport.describe(n->ep, n->blob), COLL_OK);
  return status;
}

/* Polls a connection until its data calls fail. */
static int wait_error(node *n, coll_conn *conn) {
  uint64_t end = colli_now_ns() + 20 * COLLI_NS_PER_S;
  coll_tag tag = {{0}};
  int status;
  while ((status = tcp_transport.send(conn, &tag, "", 0)) == COLL_T_AGAIN) {
    tcp_transport.progress(n->ep);
    cr_assert_lt(colli_now_ns(), end);
  }
  return status;
}

/* Takes the port of an endpoint that was closed, so that nobody else listens there. */
static int keep_port(const node *n) {
  tcp_blob blob;
  memcpy(&blob, n->blob, sizeof(blob));
  const struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(blob.addrs[0].port)};
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  cr_assert_eq(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
  return fd;
}

Test(tcp, refused_is_lost) {
  node a = {.ifname = "lo"}, b = {.ifname = "lo"}; /* other tests' interfaces come and go */
  coll_conn *conn;
  cr_assert_eq(open_node(&a, 0), COLL_OK);
  cr_assert_eq(open_node(&b, 1), COLL_OK);
  tcp_transport.close(b.ep); /* like a process that has ended */
  const int kept = keep_port(&b);
  cr_assert_eq(tcp_transport.connect(a.ep, 1, b.blob, 3, &conn), COLL_OK);
  cr_assert_eq(wait_error(&a, conn), COLL_ERR_PEER_LOST);
  cr_assert_eq(a.status, COLL_ERR_PEER_LOST);
  cr_assert_eq(a.peer, 1);
  cr_assert_eq(a.sys_errno, ECONNREFUSED);
  cr_assert_not_null(strstr(a.detail, "127.0.0.1:"), "%s", a.detail);
  tcp_transport.disconnect(conn);
  tcp_transport.close(a.ep);
  close(kept);
}

/* What a connection to a rank of the same machine, or of another, may have under way. */
static int under_way(bool same) {
  node a = {.ifname = "lo"}, b = {.ifname = "lo"};
  coll_conn *to_b, *to_a;
  int bytes = 0;
  cr_assert(open_node(&a, 0) == COLL_OK && open_node(&b, 1) == COLL_OK);
  b.blob[offsetof(tcp_blob, machine_id)] ^= !same;
  cr_assert(tcp_transport.connect(a.ep, 1, b.blob, 3, &to_b) == COLL_OK &&
            tcp_transport.connect(b.ep, 0, a.blob, 3, &to_a) == COLL_OK);
  while (tcp_transport.send(to_b, &(coll_tag){{0}}, "", 0) == COLL_T_AGAIN) { /* or times out */
    tcp_transport.progress(a.ep);
    tcp_transport.progress(b.ep);
  }
  getsockopt(((const tcp_conn *)to_b)->source.fd, SOL_SOCKET, SO_SNDBUF, &bytes,
             &(socklen_t){sizeof(bytes)});
  tcp_transport.disconnect(to_b);
  tcp_transport.disconnect(to_a);
  tcp_transport.close(a.ep);
  tcp_transport.close(b.ep);
  return bytes;
}

Test(tcp, less_is_under_way_on_one_machine, .timeout = 60) {
  const int near = under_way(true);
  cr_expect(near > 0 && near <= 512 << 10 && near != under_way(false));
}

static int reach(const tcp_blob *a, const tcp_blob *b, coll_link *link) {
  uint8_t one[COLL_BLOB_BYTES] = {0}, other[COLL_BLOB_BYTES] = {0};
  coll_link back;
  memcpy(one, a, sizeof(*a));
  memcpy(other, b, sizeof(*b));
  int result = tcp_reach(one, other, link);
  cr_assert_eq(tcp_reach(other, one, &back), result);
  cr_assert_eq(link->alpha_ns, back.alpha_ns);
  return result;
}

Test(tcp, no_address_fits) {
  node a = {0};
  coll_conn *conn;
  tcp_blob far = blob_of(99, "127.0.0.1", NULL);
  uint8_t blob[COLL_BLOB_BYTES] = {0};
  memcpy(blob, &far, sizeof(far));
  cr_assert_eq(open_node(&a, 0), COLL_OK);
  cr_assert_eq(tcp_transport.connect(a.ep, 1, blob, 0, &conn), COLL_OK);
  cr_assert_eq(wait_error(&a, conn), COLL_ERR_UNREACHABLE);
  cr_expect_null(strstr(a.detail, "may have addresses"), "%s", a.detail);
  tcp_transport.disconnect(conn);
  for (far.count = 0; far.count < COLLI_MAX_ADDRS; far.count++)
    far.addrs[far.count] = far.addrs[0];
  memcpy(blob, &far, sizeof(far));
  cr_assert_eq(tcp_transport.connect(a.ep, 1, blob, 0, &conn), COLL_OK);
  cr_assert_eq(wait_error(&a, conn), COLL_ERR_UNREACHABLE);
  cr_expect(
      strstr(a.detail, "could not offer (six at most), choose interfaces with COLL_TCP_IFNAME"),
      "%s", a.detail);
  tcp_transport.disconnect(conn);
  cr_assert_neq(tcp_transport.connect(a.ep, 0, a.blob, 0, &conn), COLL_OK, "itself");
  cr_assert_neq(tcp_transport.connect(a.ep, 4, blob, 0, &conn), COLL_OK, "rank of none");
  memset(blob, 0xff, sizeof(blob));
  cr_assert_neq(tcp_transport.connect(a.ep, 1, blob, 0, &conn), COLL_OK, "no blob");
  cr_assert_null(conn);
  tcp_transport.close(a.ep);
}

Test(tcp, who_reaches_whom) {
  tcp_blob a = blob_of(1, "10.0.0.1", "127.0.0.1"), same = blob_of(1, "10.9.0.1", "127.0.0.1");
  tcp_blob near = blob_of(2, "10.0.0.2", "127.0.0.1"), loop = blob_of(2, "127.0.0.1", NULL);
  tcp_blob v6 = blob_of(3, "fd00::1", NULL), both = blob_of(4, "10.7.0.1", "fd00::2");
  tcp_blob none = {.magic = TCP_BLOB_MAGIC, .sockets = 1};
  coll_link host, net;
  cr_assert_eq(reach(&a, &same, &host), 1);
  cr_assert_eq(reach(&a, &near, &net), 1);
  cr_assert_lt(host.alpha_ns, net.alpha_ns);
  cr_assert_eq(reach(&a, &loop, &net), 0, "loopback of another host");
  cr_assert_eq(reach(&a, &v6, &net), 0, "no family in common");
  cr_assert_eq(reach(&both, &v6, &net), 1);
  cr_assert_eq(reach(&a, &none, &net), 0);
}

Test(tcp, order_of_addresses) {
  colli_addr list[TCP_MAX_CANDIDATES];
  tcp_blob self = blob_of(1, "10.0.0.1", "127.0.0.1");
  tcp_blob peer = blob_of(2, "10.5.0.2", "10.0.0.2"), own = blob_of(1, "10.0.0.1", "127.0.0.1");
  cr_assert_eq(tcp_candidates(&self, &peer, list, TCP_MAX_CANDIDATES), 2);
  cr_assert_eq(list[0].ip[1], 0, "the same subnet goes first");
  cr_assert_eq(list[1].ip[1], 5);
  cr_assert_eq(tcp_candidates(&self, &own, list, TCP_MAX_CANDIDATES), 2);
  cr_assert_eq(list[0].ip[0], 127, "loopback goes first within a host");
  own.host_id = 7;
  cr_assert_eq(tcp_candidates(&self, &own, list, TCP_MAX_CANDIDATES), 1, "and nowhere else");
  tcp_blob link = blob_of(2, "fe80::2", NULL), here = blob_of(1, "fe80::1", "fe80::3");
  here.addrs[0].scope = 4;
  here.addrs[1].scope = 6;
  link.addrs[0].scope = 9;
  cr_assert_eq(tcp_candidates(&here, &link, list, TCP_MAX_CANDIDATES), 2);
  cr_assert_eq(list[0].scope + list[1].scope, 10, "a link's number is that of this host");
}

Test(tcp, bad_settings) {
  node ports = {.ports = "nonsense"}, ifname = {.ifname = "no-such-interface"}, busy = {0};
  char range[16];
  cr_assert_gt(open_node(&ports, 0), COLL_IN_PROGRESS);
  cr_assert_gt(ports.status, COLL_IN_PROGRESS);
  cr_assert_null(ports.ep);
  cr_assert_eq(open_node(&ifname, 0), COLL_ERR_UNSUPPORTED);
  cr_assert_neq(ifname.detail[0], 0);
  cr_assert_eq(open_node(&busy, 0), COLL_OK);
  tcp_blob blob;
  cr_assert(tcp_blob_read(busy.blob, &blob));
  snprintf(range, sizeof(range), "%u", blob.addrs[0].port);
  node second = {.ports = range};
  cr_assert_gt(open_node(&second, 1), COLL_IN_PROGRESS, "the port is taken");
  tcp_transport.close(busy.ep);
  cr_assert_eq(open_node(&second, 1), COLL_OK);
  cr_assert(tcp_blob_read(second.blob, &blob));
  cr_assert_eq(blob.addrs[0].port, atoi(range));
  tcp_transport.close(second.ep);
}

/* Many silent connections that the kernel does not filter: peers take the places of silent ones. */
Test(tcp, silent_connections, .timeout = 60) {
  enum { SILENT = 10 * COLLI_DOOR_GUESTS };
  node a = {0}, b = {0};
  coll_conn *at_a, *at_b;
  int fds[SILENT];
  tcp_blob blob;
  cr_assert_eq(open_node(&a, 0), COLL_OK);
  cr_assert_eq(open_node(&b, 1), COLL_OK);
  cr_assert(tcp_blob_read(b.blob, &blob));
  const tcp_endpoint *at_door = (tcp_endpoint *)b.ep;
  const int none = 0;
  setsockopt(at_door->listen_fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof(none));
  struct sockaddr_in in = {.sin_family = AF_INET,
                           .sin_port = htons(blob.addrs[0].port),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  for (int i = 0; i < SILENT; i++) {
    fds[i] = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(connect(fds[i], (struct sockaddr *)&in, sizeof(in)), 0);
  }
  for (int i = 0; i < 10; i++)
    tcp_transport.progress(b.ep);
  cr_assert_eq(at_door->door.count, COLLI_DOOR_GUESTS);
  cr_assert_eq(at_door->door.strangers.count, SILENT - COLLI_DOOR_GUESTS);
  cr_assert_eq(tcp_transport.connect(a.ep, 1, b.blob, 0, &at_a), COLL_OK);
  cr_assert_eq(tcp_transport.connect(b.ep, 0, a.blob, 0, &at_b), COLL_OK);
  coll_tag tag = {{0}};
  cr_assert(WAIT_UNTIL((tcp_transport.progress(a.ep), tcp_transport.progress(b.ep),
                        tcp_transport.send(at_a, &tag, "", 0) == COLL_T_DONE),
                       3));
  cr_assert_eq(a.status, COLL_OK);
  cr_assert_eq(b.status, COLL_OK);
  tcp_transport.disconnect(at_a);
  tcp_transport.disconnect(at_b);
  tcp_transport.close(a.ep);
  tcp_transport.close(b.ep);
  for (int i = 0; i < SILENT; i++)
    close(fds[i]);
}

/* A clock on which 100 ms pass between two looks, as on a machine where short sleeps last long. */
static int looks;
static uint64_t hasty_ns(void *ctx) {
  (void)ctx;
  return (uint64_t)++looks * 100 * COLLI_NS_PER_MS;
}

/* close() waits for what was sent to a peer that reads nothing, but by the clock. */
Test(tcp, closing_ends_by_the_clock, .timeout = 60) {
  node a = {0}, b = {0};
  coll_conn *at_a, *at_b;
  coll_tag tag = {{0}};
  static const char bytes[4096];
  cr_assert_eq(open_node(&a, 0), COLL_OK);
  cr_assert_eq(open_node(&b, 1), COLL_OK);
  cr_assert_eq(tcp_transport.connect(a.ep, 1, b.blob, 0, &at_a), COLL_OK);
  cr_assert_eq(tcp_transport.connect(b.ep, 0, a.blob, 0, &at_b), COLL_OK);
  cr_assert(WAIT_UNTIL((tcp_transport.progress(a.ep), tcp_transport.progress(b.ep),
                        tcp_transport.send(at_a, &tag, "", 0) == COLL_T_DONE),
                       20));
  while (tcp_transport.send(at_a, &tag, bytes, sizeof(bytes)) == COLL_T_DONE)
    ;
  tcp_transport.disconnect(at_a);
  cr_assert(!LIST_EMPTY(&((tcp_endpoint *)a.ep)->lingering));
  a.env.now_ns = hasty_ns;
  tcp_transport.close(a.ep);
  cr_expect_geq(looks, 20);  /* 2 s without anything that arrives; some may still arrive first */
  cr_expect_leq(looks, 500); /* sleeps would be counted to 2,000 */
  tcp_transport.disconnect(at_b);
  tcp_transport.close(b.ep);
}

/* Has a listening socket drop all first messages that count from one origin only, as if something
 * on the way changed addresses. */
static void pretend_router(int listen_fd, const uint8_t *secret) {
  colli_tags tags;
  cr_assert(colli_auth_tags(secret, &tags));
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 13), /* as filter.c */
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x06, 6, 0),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 12),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf0),
      BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 2),
      BPF_STMT(BPF_MISC | BPF_TAX, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_IND, offsetof(colli_hello, tag)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohl(tags.anywhere[0]), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
      BPF_STMT(BPF_RET | BPF_K, 0),
  };
  const struct sock_fprog program = {sizeof(code) / sizeof(*code), code};
  cr_assert_eq(setsockopt(listen_fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), 0);
}

/* A rank whose hello is not taken since something changes its address sends one that counts from
 * anywhere. */
Test(tcp, changed_addresses, .timeout = 60) {
  node a = {0}, b = {0};
  coll_conn *at_a, *at_b;
  cr_assert_eq(open_node(&a, 0), COLL_OK);
  cr_assert_eq(open_node(&b, 1), COLL_OK);
  pretend_router(((tcp_endpoint *)b.ep)->listen_fd, b.env.secret);
  cr_assert_eq(tcp_transport.connect(a.ep, 1, b.blob, 0, &at_a), COLL_OK);
  cr_assert_eq(tcp_transport.connect(b.ep, 0, a.blob, 0, &at_b), COLL_OK);
  coll_tag tag = {{0}};
  cr_assert(WAIT_UNTIL((tcp_transport.progress(a.ep), tcp_transport.progress(b.ep),
                        tcp_transport.send(at_a, &tag, "", 0) == COLL_T_DONE),
                       20));
  cr_assert_eq(a.status, COLL_OK);
  cr_assert_eq(b.status, COLL_OK);
  cr_assert(((tcp_conn *)at_a)->far, "the first hello counted from one origin");
  tcp_transport.disconnect(at_a);
  tcp_transport.disconnect(at_b);
  tcp_transport.close(a.ep);
  tcp_transport.close(b.ep);
}

/* A proxy on the way, which takes everything before the peer does. */
typedef struct proxy {
  int listener;
  colli_addr to;
  int ends[4]; /* of two connections, one after the other */
  int count;
} proxy;

/* Passes on what has come. */
static void step_proxy(proxy *p) {
  char bytes[512];
  const int fd = p->count < 4 ? colli_net_accept(p->listener) : -1;
  if (fd >= 0) {
    p->ends[p->count++] = fd;
    p->ends[p->count++] = colli_net_connect(&p->to);
    while (poll(&(struct pollfd){.fd = p->ends[p->count - 1], .events = POLLOUT}, 1, 0) == 0)
      continue;
  }
  for (int i = 0; i < p->count; i++) {
    const ssize_t got = recv(p->ends[i], bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got > 0)
      cr_assert_eq(send(p->ends[i ^ 1], bytes, (size_t)got, MSG_NOSIGNAL), got);
  }
}

/* Through a proxy, a rank's address changes, although the other end takes its hello. */
Test(tcp, a_proxy_takes_the_hello, .timeout = 60) {
  node a = {0}, b = {0};
  coll_conn *at_a, *at_b;
  coll_error error;
  coll_tag tag = {{0}};
  proxy p = {.to = {.family = 4, .ip = {127, 0, 0, 1}}};
  uint16_t port;
  cr_assert_eq(open_node(&a, 0), COLL_OK);
  cr_assert_eq(open_node(&b, 1), COLL_OK);
  cr_assert_eq(colli_net_listen("", &p.listener, &port, &error), COLL_OK);
  tcp_blob *blob = (tcp_blob *)b.blob;
  p.to.port = blob->addrs[0].port;
  for (uint32_t i = 0; i < blob->count; i++)
    blob->addrs[i].port = port;
  ((tcp_endpoint *)a.ep)->patience_ns = 200 * COLLI_NS_PER_MS;
  cr_assert_eq(tcp_transport.connect(a.ep, 1, b.blob, 0, &at_a), COLL_OK);
  cr_assert_eq(tcp_transport.connect(b.ep, 0, a.blob, 0, &at_b), COLL_OK);
  cr_assert(WAIT_UNTIL((tcp_transport.progress(a.ep), tcp_transport.progress(b.ep), step_proxy(&p),
                        tcp_transport.send(at_a, &tag, "", 0) == COLL_T_DONE),
                       20));
  cr_assert_eq(a.status, COLL_OK);
  cr_assert_eq(p.count, 4, "the first hello counted from one origin");
  for (int i = 0; i < p.count; i++)
    close(p.ends[i]);
  close(p.listener);
  tcp_transport.disconnect(at_a);
  tcp_transport.disconnect(at_b);
  tcp_transport.close(a.ep);
  tcp_transport.close(b.ep);
}
