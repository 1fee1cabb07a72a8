/* test_order.c: what is behind interfaces, as a /sys of our own has it, in which order their
 * addresses are tried, and which are left where there are too many. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/net/interfaces.h"

static char root[] = "/tmp/coll-order-XXXXXX";

static void run(const char *command) {
  cr_assert_eq(system(command), 0, "%s", command);
}

static void make_root(void) {
  cr_assert_not_null(mkdtemp(root));
  cr_assert_eq(chdir(root), 0);
  run("mkdir -p class/net");
}

static void remove_root(void) {
  cr_assert_eq(chdir("/"), 0);
  char command[64];
  snprintf(command, sizeof(command), "rm -r %s", root);
  run(command);
}

/* Makes a file or, if its name ends so, a folder of an interface: "eth0/device/". */
static void put(const char *path, const char *text) {
  char command[256];
  const bool is_folder = path[strlen(path) - 1] == '/';
  snprintf(command, sizeof(command), "cd class/net && mkdir -p $(dirname %s) && %s '%s' %s %s",
           path, is_folder ? "mkdir -p" : "printf", is_folder ? path : text, is_folder ? "" : ">",
           is_folder ? "" : path);
  run(command);
}

static void expect_kind(const char *name, colli_interface_kind kind) {
  cr_expect_eq(colli_interface_find_kind(root, name), kind, "%s", name);
}

Test(order, kinds, .init = make_root, .fini = remove_root) {
  static const char *const files[] = {
      "eth0/device/",       "eth0.7/lower_eth0/", "bond0/bonding/",    "bond0/lower_eth0/",
      "br0/bridge/",        "br0/lower_vnet1/",   "br0/lower_eth0/",   "br0/lower_vnet2/",
      "vnet1/statistics",   "vnet2/statistics",   "br-12/bridge/",     "br-12/lower_vnet1/",
      "cni0/bridge/",       "wg0/statistics",     "over/lower_br0.5/", "br0.5/lower_br0/",
      "loop1/lower_loop2/", "loop2/lower_loop1/"};
  for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
    put(files[i], "");
  put("flannel.1/lower_eth0/", "");
  put("flannel.1/uevent", "DEVTYPE=vxlan\\nINTERFACE=flannel.1\\n");
  put("eth0.8/lower_eth0/", "");
  put("eth0.8/uevent", "DEVTYPE=vlan\\nINTERFACE=eth0.8\\n");
  static const char *const cards[] = {"eth0", "eth0.7", "eth0.8", "bond0", "br0", "br0.5", "over"};
  static const char *const others[] = {"vnet1", "wg0", "flannel.1", "loop1", "nosuch"};
  for (size_t i = 0; i < sizeof(cards) / sizeof(*cards); i++)
    expect_kind(cards[i], COLLI_INTERFACE_CARD);
  for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
    expect_kind(others[i], COLLI_INTERFACE_OTHER);
  expect_kind("br-12", COLLI_INTERFACE_BRIDGE);
  expect_kind("cni0", COLLI_INTERFACE_BRIDGE);
}

/* Bonds that look at ports deal out connections among their cards. */
Test(order, spread, .init = make_root, .fini = remove_root) {
  static const struct {
    const char *mode, *policy, *cards;
    int spread;
  } bonds[] = {{"802.3ad 4", "layer3+4 1", "eth0 eth1", 2},
               {"balance-xor 2", "encap3+4 4", "eth0 eth1 eth2", 3},
               {"802.3ad 4", "layer3+4 1", "eth0", 1},
               {"802.3ad 4", "layer3+4 1", "", 1},
               {"802.3ad 4", "layer2 0", "eth0 eth1", 1},
               {"802.3ad 4", "layer2+3 2", "eth0 eth1", 1},
               {"balance-rr 0", "layer3+4 1", "eth0 eth1", 1},
               {"active-backup 1", "layer3+4 1", "eth0 eth1", 1},
               {"", "", "eth0 eth1", 1}};
  put("eth0/device/", "");
  put("bond0/lower_eth0/", "");
  put("bond0.7/lower_bond0/", "");
  for (size_t i = 0; i < sizeof(bonds) / sizeof(*bonds); i++) {
    put("bond0/bonding/mode", bonds[i].mode);
    put("bond0/bonding/xmit_hash_policy", bonds[i].policy);
    put("bond0/bonding/slaves", bonds[i].cards);
    cr_expect_eq(colli_interface_spread(root, "bond0"), bonds[i].spread, "bond %zu", i);
    cr_expect_eq(colli_interface_spread(root, "bond0.7"), bonds[i].spread, "VLAN of bond %zu", i);
  }
  cr_expect_eq(colli_interface_spread(root, "eth0"), 1);
  cr_expect_eq(colli_interface_spread(root, "nosuch"), 1);
}

/* An address of the interface with an index. */
static colli_interface address(const char *ip, uint32_t scope, colli_interface_kind kind,
                               long mbit) {
  colli_interface of = {.kind = kind, .mbit = mbit, .addr = {.prefix = 24, .scope = scope}};
  of.addr.family = strchr(ip, ':') ? 6 : 4;
  of.addr.prefix = of.addr.family == 6 ? 64 : 24;
  cr_assert_eq(inet_pton(of.addr.family == 6 ? AF_INET6 : AF_INET, ip, of.addr.ip), 1, "%s", ip);
  of.loopback = colli_addr_loopback(&of.addr);
  of.link_local = colli_addr_link_local(&of.addr);
  return of;
}

/* Checks which addresses are offered of a list, in order: "1.2.3.4 ::1". */
static void expect_offered(colli_interface *all, int count, int max, const char *wanted) {
  char found[512] = "", text[COLLI_ADDR_TEXT];
  const int used = colli_interfaces_order(all, count, max);
  for (int i = 0; i < used; i++) {
    all[i].addr.scope = 0;
    snprintf(found + strlen(found), sizeof(found) - strlen(found), "%s%s", i ? " " : "",
             colli_addr_host_text(&all[i].addr, text));
  }
  cr_expect_str_eq(found, wanted, "%s instead of %s", found, wanted);
}

/* The kernel says of bridges that they are fast. */
Test(order, bridges_come_after_cards_and_links_of_pods) {
  colli_interface host[] = {address("172.20.0.1", 3, COLLI_INTERFACE_BRIDGE, 10000),
                            address("10.8.0.1", 5, COLLI_INTERFACE_OTHER, 10000),
                            address("192.168.0.1", 2, COLLI_INTERFACE_CARD, 1000),
                            address("127.0.0.1", 1, COLLI_INTERFACE_OTHER, -1),
                            address("192.168.1.1", 4, COLLI_INTERFACE_CARD, -1)};
  expect_offered(host, 5, 16, "192.168.0.1 192.168.1.1 10.8.0.1 172.20.0.1 127.0.0.1");
  colli_interface pod[] = {address("127.0.0.1", 1, COLLI_INTERFACE_OTHER, -1),
                           address("10.9.0.1", 3, COLLI_INTERFACE_BRIDGE, 10000),
                           address("10.10.0.1", 2, COLLI_INTERFACE_OTHER, 10000)};
  expect_offered(pod, 3, 16, "10.10.0.1 10.9.0.1 127.0.0.1");
}

/* A host with nine bridges, a card with an address, and loopback. */
static void fill_host(colli_interface all[11], const char *card) {
  char ip[16];
  for (int i = 0; i < 9; i++) {
    snprintf(ip, sizeof(ip), "172.2%d.0.1", i);
    all[i] = address(ip, 10 + (uint32_t)i, COLLI_INTERFACE_BRIDGE, 10000);
  }
  all[9] = address(card, 2, COLLI_INTERFACE_CARD, 1000);
  all[10] = address("127.0.0.1", 1, COLLI_INTERFACE_OTHER, -1);
}

Test(order, bridges_do_not_take_the_room_of_cards) {
  colli_interface all[11];
  fill_host(all, "192.168.0.1");
  expect_offered(all, 11, 6, "192.168.0.1 172.20.0.1 172.21.0.1 172.22.0.1 172.23.0.1 127.0.0.1");
  /* Nor does one that has an address of its link only lose it. */
  fill_host(all, "fe80::1");
  expect_offered(all, 11, 6, "172.20.0.1 172.21.0.1 172.22.0.1 172.23.0.1 [fe80::1] 127.0.0.1");
}

Test(order, each_family_and_each_interface_is_offered) {
  colli_interface all[16];
  char ip[16];
  for (int i = 0; i < 12; i++) {
    snprintf(ip, sizeof(ip), "10.0.%d.1", i);
    all[i] = address(ip, 2, COLLI_INTERFACE_CARD, 10000);
  }
  all[12] = address("fd00::1", 2, COLLI_INTERFACE_CARD, 10000);
  all[13] = address("fe80::1", 2, COLLI_INTERFACE_CARD, 10000);
  all[14] = address("192.168.0.1", 3, COLLI_INTERFACE_CARD, 1000);
  all[15] = address("127.0.0.1", 1, COLLI_INTERFACE_OTHER, -1);
  expect_offered(all, 16, 6, "10.0.0.1 10.0.1.1 10.0.2.1 [fd00::1] 192.168.0.1 127.0.0.1");
}

/* Of one interface, those of further networks come before further ones of the same. */
Test(order, each_network_is_offered) {
  colli_interface all[] = {address("10.0.0.1", 2, COLLI_INTERFACE_CARD, -1),
                           address("10.0.0.2", 2, COLLI_INTERFACE_CARD, -1),
                           address("10.0.0.3", 2, COLLI_INTERFACE_CARD, -1),
                           address("10.0.1.1", 2, COLLI_INTERFACE_CARD, -1),
                           address("10.0.2.1", 2, COLLI_INTERFACE_CARD, -1)};
  expect_offered(all, 5, 4, "10.0.0.1 10.0.0.2 10.0.1.1 10.0.2.1");
}
