/* test_net.c: interfaces, listening, connecting, addresses. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/net/interfaces.h"
#include "libcoll/wireup/resolve.h"
#include "waits.h"

/* The number of open descriptors. */
static int open_fds(void) {
  int count = 0;
  for (int fd = 0; fd < 256; fd++) {
    int type;
    socklen_t length = sizeof(type);
    count += getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0;
  }
  return count;
}

/* "1.2.3.4:5" as one address. */
static colli_addr parsed(const char *text) {
  colli_addr addrs[4] = {0};
  coll_error error = COLL_ERROR_INIT;
  int count = 0;
  cr_assert_eq(
      colli_net_parse(text, colli_now_ns() + 30000 * COLLI_NS_PER_MS, addrs, 4, &count, &error),
      COLL_OK, "%s", error.message);
  cr_assert_geq(count, 1);
  return addrs[0];
}

Test(net, every_running_interface_is_listed_and_loopback_is_last) {
  colli_addr addrs[32];
  coll_error error = COLL_ERROR_INIT;
  int count = colli_net_interfaces("", addrs, 32, &error);
  cr_assert_gt(count, 0, "%s", error.message);
  bool in_loopback = false;
  for (int i = 0; i < count; i++) {
    cr_assert(addrs[i].family == 4 || addrs[i].family == 6);
    cr_assert_eq(addrs[i].port, 0);
    cr_assert_gt(addrs[i].prefix, 0);
    cr_assert(!in_loopback || colli_addr_loopback(&addrs[i]), "address %d", i);
    in_loopback = in_loopback || colli_addr_loopback(&addrs[i]);
  }
  cr_assert(in_loopback, "loopback must be there");
  struct ifaddrs *list;
  cr_assert_eq(getifaddrs(&list), 0);
  for (struct ifaddrs *ifa = list; ifa; ifa = ifa->ifa_next) {
    colli_addr want;
    bool found = false;
    if (!ifa->ifa_addr || (ifa->ifa_flags & (IFF_UP | IFF_RUNNING)) != (IFF_UP | IFF_RUNNING) ||
        !colli_net_from_sockaddr(ifa->ifa_addr, &want) || count == 32)
      continue;
    for (int i = 0; i < count; i++)
      found = found || (addrs[i].family == want.family &&
                        memcmp(addrs[i].ip, want.ip, sizeof(want.ip)) == 0);
    cr_assert(found, "an address of %s is missing", ifa->ifa_name);
  }
  freeifaddrs(list);
}

/* Whether the addresses of this host have 10.x.0.1, and loopback as the last. */
static bool offers(uint8_t x) {
  colli_addr addrs[8];
  coll_error error = COLL_ERROR_INIT;
  const int count = colli_net_interfaces("", addrs, 8, &error);
  bool listed = false;
  for (int i = 0; i < count; i++)
    listed |= addrs[i].family == 4 && addrs[i].ip[0] == 10 && addrs[i].ip[1] == x;
  cr_assert(count > 0 && colli_addr_loopback(&addrs[count - 1]), "%d addresses", count);
  return listed;
}

/* An interface that is up but has no link yet counts if only loopback has one: a container may be
 * that young. */
Test(net, an_interface_without_a_link_is_better_than_none) {
  static const char set_up[] = "ip link set lo up && ip link add v0 type veth peer name v1 && "
                               "ip addr add 10.98.0.1/24 dev v0 && ip link set v0 up";
  static const char add_link[] = "ip link add w0 type veth peer name w1 && ip link set w1 up && "
                                 "ip addr add 10.97.0.1/24 dev w0 && ip link set w0 up";
  if (unshare(CLONE_NEWNET) != 0 || system(set_up) != 0)
    cr_skip_test("needs root and ip (iproute2)");
  cr_assert(offers(98));
  cr_assert_eq(system(add_link), 0);
  cr_assert(WAIT_UNTIL(!offers(98), 20));
  cr_assert(offers(97));
}

/* An interface with an address 10.N.0.1. */
static colli_interface interface(uint8_t n, bool near, long mbit) {
  return (colli_interface){.addr = {.family = 4, .ip = {10, n, 0, 1}}, .near = near, .mbit = mbit};
}

/* Of equally fast interfaces the near ones come first, whatever their addresses. */
Test(net, near_interfaces_come_first_among_equals) {
  colli_interface all[] = {
      interface(1, false, 100000), interface(2, true, 100000),  interface(3, false, 400000),
      interface(4, true, -1),      interface(5, true, 100000),  interface(6, false, -1),
      interface(7, true, -1),      interface(8, false, 100000), interface(9, true, 1000)};
  static const uint8_t want[] = {3, 2, 5, 1, 8, 9, 4, 7, 6};
  all[6].addr.family = 6; /* near before family */
  cr_assert_eq(colli_interfaces_order(all, 9, 32), 9);
  for (int i = 0; i < 9; i++)
    cr_expect_eq(all[i].addr.ip[1], want[i], "%d: %d", i, all[i].addr.ip[1]);
}

/* Ranks on both sockets of a host with more cards than are offered have the same networks. */
Test(net, what_is_offered_does_not_depend_on_what_is_near) {
  static const uint8_t want[2][4] = {{1, 2, 3, 9}, {2, 3, 1, 9}};
  for (int socket = 0; socket < 2; socket++) {
    colli_interface all[6];
    for (uint8_t i = 0; i < 5; i++)
      all[i] = interface(i + 1, (i > 0) == socket, 1000);
    all[5] = interface(9, false, -1);
    all[5].loopback = true, all[5].addr.ip[0] = 127;
    cr_assert_eq(colli_interfaces_order(all, 6, 4), 4);
    for (int i = 0; i < 4; i++)
      cr_expect_eq(all[i].addr.ip[1], want[socket][i], "%d: %d", i, all[i].addr.ip[1]);
  }
}

/* Two interfaces whose cards are on different nodes, as fast as each other, in a /sys of our own. A
 * processor of this thread is on node 3, one that it may not use on node 2. */
Test(net, this_threads_node_decides) {
  static const char set_up[] =
      "ip link set lo up && ip link add far0 type veth peer name far1 && ip link add near0 type "
      "veth peer name near1 && for i in far0 far1 near0 near1; do ip link set $i up; done && "
      "ip addr add 10.1.0.1/24 dev far0 && ip addr add 10.2.0.1/24 dev near0";
  static const char fill[] = "cd /sys && for i in far0 near0; do mkdir -p class/net/$i/device && "
                             "echo 100000 > class/net/$i/speed; done && "
                             "echo 2 > class/net/far0/device/numa_node && "
                             "echo 3 > class/net/near0/device/numa_node && "
                             "mkdir -p devices/system/cpu/cpu%d/node3 "
                             "devices/system/cpu/cpu1023/node2";
  char command[512];
  colli_addr addrs[8];
  coll_error error = COLL_ERROR_INIT;
  if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 || system(set_up) != 0 ||
      mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
      mount("sys", "/sys", "tmpfs", 0, NULL) != 0)
    cr_skip_test("needs root and ip (iproute2)");
  snprintf(command, sizeof(command), fill, sched_getcpu());
  cr_assert_eq(system(command), 0);
  cr_assert(colli_interface_near("/sys", "near0"));
  cr_assert_not(colli_interface_near("/sys", "far0"));
  cr_assert_not(colli_interface_near("/sys", "near1"), "nothing is known of it");
  cr_assert_gt(colli_net_interfaces("", addrs, 8, &error), 1, "%s", error.message);
  cr_expect_eq(addrs[0].ip[1], 2);
  cr_expect_eq(addrs[1].ip[1], 1);
  /* What they can do together; an interface without a device is no card, a second address none. */
  cr_assert_eq(system("ip addr add 10.3.0.1/24 dev near1; ip addr add 10.4.0.1/24 dev near0"), 0);
  cr_expect_eq(colli_net_cards_mbit(""), 200000);
  cr_expect_eq(colli_net_cards_mbit("near"), 100000);
  cr_expect_eq(colli_net_cards_mbit("near1"), 0);
  /* Now it is a VLAN of near0; then another one of a bond. */
  cr_assert_eq(system("mkdir -p /sys/class/net/near1/lower_near0"), 0);
  cr_expect_eq(colli_net_cards_mbit("near"), 100000);
  cr_expect_eq(colli_net_cards_mbit("near1"), 100000);
  cr_assert_eq(system("cd /sys/class/net && mv near1/lower_near0 near1/lower_far1 && "
                      "mkdir -p far1/bonding far1/lower_x && echo 50000 > far1/speed"),
               0);
  cr_expect_eq(colli_net_cards_mbit("near"), 150000);
  cr_assert_eq(system("echo -1 > /sys/class/net/far0/speed"), 0);
  cr_expect_eq(colli_net_cards_mbit(""), 0, "it is not known of one of them");
}

/* Pretends that this thread may run on a processor of a large machine, whose kernel refuses sets of
 * processors that are shorter than its own. */
static int far_cpu = -1;

int __real_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set);
int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set);

int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set) {
  if (far_cpu < 0)
    return __real_sched_getaffinity(pid, bytes, set);
  if (8 * bytes <= (size_t)far_cpu) {
    errno = EINVAL;
    return -1;
  }
  CPU_ZERO_S(bytes, set);
  CPU_SET_S((size_t)far_cpu, bytes, set);
  return 0;
}

Test(net, large_machines_have_near_interfaces) {
  char root[] = "/tmp/coll-near-XXXXXX", command[256];
  cr_assert_not_null(mkdtemp(root));
  snprintf(command, sizeof(command),
           "cd %s && mkdir -p class/net/c0/device devices/system/cpu/cpu8191/node3 && "
           "echo 3 > class/net/c0/device/numa_node",
           root);
  cr_assert_eq(system(command), 0);
  far_cpu = 8191;
  cr_expect(colli_interface_near(root, "c0"));
  far_cpu = 8190;
  cr_expect_not(colli_interface_near(root, "c0"));
  snprintf(command, sizeof(command), "rm -r %s", root);
  cr_assert_eq(system(command), 0);
}

Test(net, a_short_list_still_has_loopback) {
  colli_addr addrs[2];
  coll_error error = COLL_ERROR_INIT;
  int count = colli_net_interfaces("", addrs, 2, &error);
  cr_assert_gt(count, 0);
  cr_assert(colli_addr_loopback(&addrs[count - 1]));
}

Test(net, interface_filters) {
  colli_addr addrs[32];
  coll_error error = COLL_ERROR_INIT;
  static const char *const only_lo[] = {"lo", "=lo", "l", "nosuch,=lo", "lo,^lox"};
  for (size_t f = 0; f < sizeof(only_lo) / sizeof(*only_lo); f++) {
    int count = colli_net_interfaces(only_lo[f], addrs, 32, &error);
    cr_assert_gt(count, 0, "%s: %s", only_lo[f], error.message);
    cr_assert(colli_addr_loopback(&addrs[0]) || addrs[0].family == 6, "%s", only_lo[f]);
  }
  int all = colli_net_interfaces("", addrs, 32, &error);
  int without = colli_net_interfaces("^lo", addrs, 32, &error);
  cr_assert_lt(without, all);
  for (int i = 0; i < without; i++)
    cr_assert(!colli_addr_loopback(&addrs[i]));
  static const char *const none[] = {"nosuch0", "=l", "=lo,^lo", "^=lo,=lo"};
  for (size_t f = 0; f < sizeof(none) / sizeof(*none); f++) {
    colli_error_clear(&error);
    cr_assert_eq(colli_net_interfaces(none[f], addrs, 32, &error), 0, "%s", none[f]);
    cr_assert(strstr(error.message, "COLL_TCP_IFNAME") && strstr(error.message, none[f]), "%s",
              error.message);
  }
}

Test(net, port_ranges) {
  int first = -1, second = -1, third = -1;
  uint16_t port, again;
  char range[32];
  coll_error error = COLL_ERROR_INIT;
  int before = open_fds();
  cr_assert_eq(colli_net_listen("", &first, &port, &error), COLL_OK, "%s", error.message);
  cr_assert_gt(port, 0);
  snprintf(range, sizeof(range), "%u", port);
  cr_assert_eq(colli_net_listen(range, &second, &again, &error), COLL_ERR_SYSTEM);
  cr_assert_eq(second, -1);
  cr_assert_eq(error.sys_errno, EADDRINUSE);
  cr_assert(strstr(error.message, "COLL_PORT_RANGE") && strstr(error.message, range), "%s",
            error.message);
  close(first);
  /* A range of two: two listeners fit, a third does not. */
  uint16_t base = port < 65000 ? port : 60000;
  for (;; base++) {
    snprintf(range, sizeof(range), "%u-%u", base, base + 1);
    if (colli_net_listen(range, &first, &port, &error) != COLL_OK)
      continue;
    if (port == base && colli_net_listen(range, &second, &again, &error) == COLL_OK)
      break;
    close(first);
  }
  cr_assert_eq(again, base + 1);
  cr_assert_eq(colli_net_listen(range, &third, &again, &error), COLL_ERR_SYSTEM);
  cr_assert(strstr(error.message, range), "%s", error.message);
  close(first);
  close(second);
  cr_assert_eq(open_fds(), before);
}

Test(net, malformed_port_ranges) {
  static const char *const bad[] = {"x",     "6000-", "-6000",   "6000-5999",
                                    "70000", "6000 ", " 6000",   "6000-6100x",
                                    "0-10",  "+5",    "6000--1", "6000-70000"};
  for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
    int fd = 7;
    uint16_t port;
    coll_error error = COLL_ERROR_INIT;
    cr_assert_eq(colli_net_listen(bad[i], &fd, &port, &error), COLL_ERR_INVALID_USAGE, "%s",
                 bad[i]);
    cr_assert_eq(fd, -1);
    cr_assert(strstr(error.message, "COLL_PORT_RANGE"), "%s", error.message);
  }
}

/* Connects to a listener by one address and passes a byte. */
static void meet(int listener, const char *ip, uint16_t port) {
  char text[64], byte = 'x';
  snprintf(text, sizeof(text), "%s:%u", ip, port);
  colli_addr addr = parsed(text);
  int here = colli_net_connect(&addr);
  cr_assert_geq(here, 0, "%s: %s", text, strerror(errno));
  struct pollfd pfds[2] = {{.fd = listener, .events = POLLIN}, {.fd = here, .events = POLLOUT}};
  cr_assert_gt(poll(pfds, 1, 2000), 0);
  cr_assert_gt(poll(pfds + 1, 1, 2000), 0);
  cr_assert_eq(colli_net_connect_result(here), 0);
  int there = colli_net_accept(listener), on = 0;
  socklen_t length = sizeof(on);
  cr_assert_geq(there, 0);
  cr_assert_eq(recv(there, &byte, 1, 0), -1, "must not block");
  cr_assert_eq(errno, EAGAIN);
  cr_assert_eq(getsockopt(there, IPPROTO_TCP, TCP_NODELAY, &on, &length), 0);
  cr_assert_neq(on, 0);
  cr_assert_eq(send(here, &byte, 1, 0), 1);
  struct pollfd in = {.fd = there, .events = POLLIN};
  cr_assert_gt(poll(&in, 1, 2000), 0);
  cr_assert_eq(recv(there, &byte, 1, 0), 1);
  close(here);
  close(there);
}

Test(net, one_listener_takes_both_families) {
  int listener;
  uint16_t port;
  coll_error error = COLL_ERROR_INIT;
  int before = open_fds();
  cr_assert_eq(colli_net_listen("0", &listener, &port, &error), COLL_OK);
  cr_assert_eq(colli_net_accept(listener), -1);
  cr_assert_eq(errno, EAGAIN);
  meet(listener, "127.0.0.1", port);
  int v6 = socket(AF_INET6, SOCK_STREAM, 0);
  struct sockaddr_in6 one = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  if (v6 >= 0 && bind(v6, (struct sockaddr *)&one, sizeof(one)) == 0)
    meet(listener, "[::1]", port);
  close(v6);
  close(listener);
  cr_assert_eq(open_fds(), before);
}

Test(net, refused_connections_say_so) {
  int listener;
  uint16_t port;
  char text[32];
  coll_error error = COLL_ERROR_INIT;
  cr_assert_eq(colli_net_listen("", &listener, &port, &error), COLL_OK);
  close(listener);
  snprintf(text, sizeof(text), "127.0.0.1:%u", port);
  colli_addr addr = parsed(text), none = {0};
  int fd = colli_net_connect(&addr);
  if (fd >= 0) {
    struct pollfd pfd = {.fd = fd, .events = POLLOUT};
    poll(&pfd, 1, 2000);
    cr_assert_eq(colli_net_connect_result(fd), ECONNREFUSED);
    close(fd);
  } else {
    cr_assert_eq(errno, ECONNREFUSED);
  }
  cr_assert_eq(colli_net_connect(&none), -1);
  cr_assert_eq(errno, EAFNOSUPPORT);
}

Test(net, a_socket_that_meets_itself_counts_as_refused) {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof(in);
  cr_assert_eq(bind(fd, (struct sockaddr *)&in, sizeof(in)), 0);
  cr_assert_eq(getsockname(fd, (struct sockaddr *)&in, &length), 0);
  cr_assert_eq(connect(fd, (struct sockaddr *)&in, sizeof(in)), 0);
  cr_assert_eq(colli_net_connect_result(fd), ECONNREFUSED);
  close(fd);
}

Test(net, addresses_there_and_back) {
  static const char *const same[] = {"10.1.2.3:65535", "[::1]:1", "[fd00::12]:6000",
                                     "127.0.0.1:80"};
  char text[COLLI_ADDR_TEXT];
  for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++) {
    colli_addr addr = parsed(same[i]);
    cr_assert_str_eq(colli_addr_text(&addr, text), same[i]);
  }
  colli_addr scoped = parsed("[fe80::1]:9");
  scoped.scope = 2;
  cr_assert_str_eq(colli_addr_text(&scoped, text), "[fe80::1%2]:9");
  cr_assert_str_eq(colli_addr_text(&(colli_addr){0}, text), "(none)");
  colli_addr local = parsed("localhost:7");
  cr_assert(colli_addr_loopback(&local));
  memset(scoped.ip, 0xff, sizeof(scoped.ip));
  scoped.scope = UINT32_MAX;
  scoped.port = 65535;
  cr_assert_lt(strlen(colli_addr_text(&scoped, text)), (size_t)COLLI_ADDR_TEXT);
}

Test(net, malformed_addresses) {
  static const char *const bad[] = {"",
                                    "10.0.0.1",
                                    ":5",
                                    "10.0.0.1:",
                                    "10.0.0.1:0",
                                    "::1:5",
                                    "[::1]",
                                    "[::1:5",
                                    "10.0.0.1:x",
                                    "10.0.0.1:99999",
                                    "[]:5",
                                    "a:b:5",
                                    "10.0.0.1:5 ",
                                    "no.such.host.invalid:5"};
  const uint64_t in_30_s = colli_now_ns() + 30000 * COLLI_NS_PER_MS;
  for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
    colli_addr addrs[2];
    int count = 9;
    coll_error error = COLL_ERROR_INIT;
    cr_assert_eq(colli_net_parse(bad[i], in_30_s, addrs, 2, &count, &error), COLL_ERR_INVALID_USAGE,
                 "%s", bad[i]);
    cr_assert_eq(count, 0);
    cr_assert(strstr(error.message, bad[i]) && error.message[0], "%s", error.message);
  }
}

/* Stands in front of the C library's: a name server that does not answer until `answers` is set,
 * and an immediate answer for numbers. */
static atomic_bool answers, answered;
int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **list) {
  int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
  *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
  if (strcmp(host, "slow.example") != 0 || hints->ai_flags & AI_NUMERICHOST)
    return real(host, port, hints, list);
  while (!atomic_load(&answers))
    sched_yield();
  int result = real("10.1.2.3", port, hints, list);
  atomic_store(&answered, true);
  return result;
}

Test(net, a_lookup_ends_at_the_deadline, .timeout = 60) {
  colli_addr addrs[2];
  int count = 9;
  coll_error error = COLL_ERROR_INIT;
  cr_assert_eq(colli_net_parse("slow.example:5", colli_now_ns() + 50 * COLLI_NS_PER_MS, addrs, 2,
                               &count, &error),
               COLL_ERR_TIMEOUT);
  cr_assert_eq(count, 0);
  cr_assert(strstr(error.message, "slow.example"), "%s", error.message);
  atomic_store(&answers,
               true); /* the thread that still asks frees what it has; see LeakSanitizer */
  while (!atomic_load(&answered))
    sched_yield();
  int before = open_fds();
  cr_assert_eq(colli_net_parse("slow.example:5", colli_now_ns() + 30000 * COLLI_NS_PER_MS, addrs, 2,
                               &count, &error),
               COLL_OK, "%s", error.message);
  cr_assert(count >= 1 && addrs[0].family == 4 && addrs[0].ip[0] == 10 && addrs[0].port == 5);
  cr_assert_leq(open_fds(), before);
}

/* An address with a prefix. */
static colli_addr with_prefix(const char *text, int prefix) {
  colli_addr addr = parsed(text);
  addr.prefix = (uint8_t)prefix;
  return addr;
}

Test(net, affinity) {
  static const struct {
    const char *a;
    int a_prefix;
    const char *b;
    int b_prefix, affinity;
  } cases[] = {
      {"10.0.0.1:1", 24, "10.0.0.9:1", 24, 2},    {"10.0.0.1:1", 24, "10.0.1.9:1", 24, 1},
      {"10.0.0.1:1", 8, "10.0.1.9:1", 24, 1},     {"10.0.0.1:1", 24, "10.0.0.9:1", 0, 2},
      {"10.0.0.1:1", 0, "10.0.0.9:1", 0, 1},      {"10.0.0.1:1", 24, "[fd00::1]:1", 64, 0},
      {"[fd00::1]:1", 64, "[fd00::2]:1", 64, 2},  {"[fd00::1]:1", 64, "[fd01::2]:1", 64, 1},
      {"127.0.0.1:1", 8, "10.0.0.1:1", 24, 0},    {"127.0.0.1:1", 8, "127.0.0.1:1", 8, 1},
      {"[fe80::1]:1", 64, "[fd00::1]:1", 64, 0},  {"[fe80::1]:1", 64, "[fe80::2]:1", 64, 1},
      {"[fd00::1]:1", 255, "[fd00::1]:1", 64, 2}, {"10.0.0.1:1", 255, "10.0.0.1:1", 24, 2},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    colli_addr a = with_prefix(cases[i].a, cases[i].a_prefix);
    colli_addr b = with_prefix(cases[i].b, cases[i].b_prefix);
    cr_assert_eq(colli_addr_affinity(&a, &b), cases[i].affinity, "case %zu", i);
    cr_assert_eq(colli_addr_affinity(&b, &a), cases[i].affinity, "case %zu turned round", i);
  }
}
