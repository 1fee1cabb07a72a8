/* test_interfaces.c: which network interfaces of a host are used, here a network namespace. Needs
 * root. */
#include <criterion/criterion.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>

#include "libcoll/net/interfaces.h"

/* Adds an interface with the address 10.N.0.1. */
static void add(const char *name, int n) {
  char command[256];
  snprintf(command, sizeof(command),
           "ip link add %s type veth peer name end%d && ip addr add 10.%d.0.1/24 dev %s && "
           "ip link set %s up && ip link set end%d addrgenmode none up",
           name, n, n, name, name, n);
  cr_assert_eq(system(command), 0, "%s", name);
}

/* The networks of which addresses are offered to a rank with a GPU (NULL: none), each as a digit,
 * in order. */
static void expect_offered_for(const char *gpu, const char *ifname, const char *networks) {
  colli_addr addrs[16];
  coll_error error = COLL_ERROR_INIT;
  char found[17] = "";
  const int count = colli_net_interfaces_for(ifname, gpu, addrs, 16, &error);
  for (int i = 0; i < count; i++)
    if (addrs[i].family == 4 && addrs[i].ip[0] == 10)
      strncat(found, (char[]){(char)('0' + addrs[i].ip[1]), '\0'}, 1);
  cr_expect_str_eq(found, networks, "COLL_TCP_IFNAME=%s: %s", ifname, found);
}

/* The same for a rank without a GPU. */
static void expect_offered(const char *ifname, const char *networks) {
  expect_offered_for(NULL, ifname, networks);
}

/* They lead to other hosts nowhere, and would come first by their addresses. */
Test(interfaces, inner_ones_are_used_if_named_or_alone) {
  if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 || system("ip link set lo up") != 0 ||
      mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
      mount("sys", "/sys", "tmpfs", 0, NULL) != 0) /* that of this namespace, which knows of none */
    cr_skip_test("needs root and ip (iproute2) to make a network namespace");
  add("docker0", 1);
  add("veth7", 2);
  add("virbr0", 3);
  expect_offered("", "123");
  expect_offered("^docker", "23");
  add("eth0", 4);
  add("eth1", 5);
  expect_offered("", "45");
  expect_offered("^eth1", "4");
  expect_offered("^eth1,^wlan", "4");
  expect_offered(",^eth1", "4");
  expect_offered("docker0", "1");
  expect_offered("eth,veth", "245");
  expect_offered("^eth1,=virbr0,eth", "34");
  expect_offered("^eth", "123");
}

/* Of cards that are equally fast, here by a /sys of our own, that at the GPU's switch comes first,
 * then that of its node. */
Test(interfaces, the_card_next_to_a_gpu_comes_first) {
  static const char fill[] =
      "cd /sys && S=devices/pci0000:40/0000:40:01.0/0000:41:00.0 O=devices/pci0000:50 && "
      "put() { mkdir -p $1 bus/pci/devices; echo $2 > $1/numa_node; ln -s ../../../$1 "
      "bus/pci/devices; }; "
      "put $S/0000:42:00.0/0000:43:00.0 1; put $S/0000:42:01.0/0000:44:00.0 1; "
      "put $O/0000:51:00.0 1; put devices/pci0000:10/0000:11:00.0 0; "
      "card() { mkdir -p class/net/$1; echo $3 > class/net/$1/speed; "
      "ln -s ../../../bus/pci/devices/$2 class/net/$1/device; }; "
      "card eth0 0000:11:00.0 100000; card eth1 0000:51:00.0 100000; "
      "card eth2 0000:44:00.0 100000; card eth3 0000:11:00.0 400000";
  if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 || system("ip link set lo up") != 0 ||
      mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
    cr_skip_test("needs root and ip (iproute2) to make a network namespace");
  for (int i = 0; i < 5; i++)
    add((char[]){'e', 't', 'h', (char)('0' + i), '\0'}, i + 1);
  cr_assert_eq(mount("sys", "/sys", "tmpfs", 0, NULL), 0);
  cr_assert_eq(system(fill), 0);
  expect_offered("", "41235");
  expect_offered_for("0000:43:00.0", "", "43215");
  expect_offered_for("0000:11:00.0", "", "41235");
  expect_offered_for("0000:99:00.0", "", "41235"); /* nobody knows where that is */
  cr_expect_eq(colli_interface_distance("/sys", if_nametoindex("eth2"), "0000:43:00.0"),
               COLLI_PCI_SWITCH);
  cr_expect_eq(colli_interface_distance("/sys", if_nametoindex("eth4"), "0000:43:00.0"),
               COLLI_PCI_UNKNOWN);
}
