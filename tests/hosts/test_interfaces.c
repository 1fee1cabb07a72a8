/* test_interfaces.c: which network interfaces of a host are used, here a network namespace. Needs
 * root. */
#include <criterion/criterion.h>
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

/* The networks of which addresses are offered, each as a digit, in order. */
static void expect_offered(const char *ifname, const char *networks) {
  colli_addr addrs[16];
  coll_error error = COLL_ERROR_INIT;
  char found[17] = "";
  const int count = colli_net_interfaces(ifname, addrs, 16, &error);
  for (int i = 0; i < count; i++)
    if (addrs[i].family == 4 && addrs[i].ip[0] == 10)
      strncat(found, (char[]){(char)('0' + addrs[i].ip[1]), '\0'}, 1);
  cr_expect_str_eq(found, networks, "COLL_TCP_IFNAME=%s: %s", ifname, found);
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
