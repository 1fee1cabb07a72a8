/*
 * test_verbs_device.c: which devices and ports become rails, and the message if there is none, with
 * a fake libibverbs (tests/plugins/fake_ibverbs.c).
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/libc.h"
#include "support_verbs.h"
#include "transports/verbs/verbs_addr.h"

static fake_verbs *fake;
static verbs_lib lib;
static verbs_fault fault;
static verbs_rail rails[VERBS_MAX_RAILS];

static void load(void) {
  fake = fake_load();
  cr_assert_not_null(fake);
  cr_assert_eq(verbs_lib_load(&lib, VERBS_LIB_NAME, &fault), COLL_OK, "%s", fault.detail);
}

/* Opens the rails; checks that everything opened is closed again. */
static int open_rails(const verbs_settings *settings) {
  memset(&fault, 0, sizeof(fault));
  int count = verbs_rails_open(&lib, settings, rails, VERBS_MAX_RAILS, &fault);
  cr_assert_eq(fake->opened, count);
  cr_assert_eq(fake->lists, 0);
  cr_assert(count > 0 || fault.status != COLL_OK);
  return count;
}

static void close_rails(int count) {
  verbs_rails_close(&lib, rails, count);
  cr_assert_eq(fake->opened, 0);
  verbs_lib_close(&lib);
}

/* Expects no rail, this status, and all of these words (ends with NULL) in the message. */
static void expect_none(const verbs_settings *settings, coll_status status,
                        const char *const *words) {
  cr_assert_eq(open_rails(settings), 0);
  cr_assert_eq(fault.status, status, "%d: %s", (int)fault.status, fault.detail);
  cr_assert_null(strchr(fault.detail, '\n'));
  for (; *words; words++)
    cr_assert(strstr(fault.detail, *words), "no '%s' in: %s", *words, fault.detail);
  close_rails(0);
}

#define EXPECT_NONE(settings, status, ...)                                                         \
  expect_none(settings, status, (const char *const[]){__VA_ARGS__, NULL})

/* ---- InfiniBand ------------------------------------------------------------------------------ */

Test(verbs_device, infiniband_port_becomes_a_rail, .init = load) {
  fake_add(fake, "mlx5_0", 1);
  verbs_settings settings = fake_settings();
  cr_assert_eq(open_rails(&settings), 1);
  cr_assert_str_eq(rails[0].name, "mlx5_0");
  cr_assert_eq(rails[0].port, 1);
  cr_assert_eq(rails[0].link_layer, IBV_LINK_LAYER_INFINIBAND);
  cr_assert_eq(rails[0].lid, 10);
  cr_assert_eq(rails[0].mtu, IBV_MTU_4096);
  cr_assert_eq(rails[0].mbit, 100000);
  cr_assert_eq(rails[0].ngids, 1);
  cr_assert_eq(rails[0].gid[0].index, 0);
  cr_assert_not(rails[0].relaxed_ordering); /* it sits nowhere */
  cr_assert_eq(rails[0].place.numa_node, -1);
  char text[VERBS_RAIL_TEXT];
  cr_assert_str_eq(verbs_rail_text(&rails[0], text), "mlx5_0:1 InfiniBand 100 Gbit/s LID 10");
  close_rails(1);
}

/* Old libraries' contexts without the newer functions: the same, without on-demand paging. */
Test(verbs_device, old_contexts_serve_as_well, .init = load) {
  fake_add(fake, "mlx4_0", 1)->odp.general_caps = IBV_ODP_SUPPORT;
  fake->compat = true;
  verbs_settings settings = fake_settings();
  cr_assert_eq(open_rails(&settings), 1);
  cr_assert_eq(rails[0].lid, 10);
  cr_assert_eq(rails[0].odp_general, 0);
  close_rails(1);
}

Test(verbs_device, paging_is_as_the_device_says, .init = load) {
  fake_device *device = fake_add(fake, "mlx5_0", 1);
  device->odp.general_caps = IBV_ODP_SUPPORT;
  device->odp.per_transport_caps.rc_odp_caps = IBV_ODP_SUPPORT_WRITE;
  verbs_settings settings = fake_settings();
  cr_assert_eq(open_rails(&settings), 1);
  cr_assert_eq(rails[0].odp_general, IBV_ODP_SUPPORT);
  cr_assert_eq(rails[0].odp_rc, IBV_ODP_SUPPORT_WRITE);
  verbs_rails_close(&lib, rails, 1);
  device->odp.general_caps = 0; /* then the rest is meaningless */
  cr_assert_eq(open_rails(&settings), 1);
  cr_assert_eq(rails[0].odp_rc, 0);
  close_rails(1);
}

/* Puts a device into a folder that looks like sysfs. */
static void put_device(fake_device *device, const char *folder, const char *bus, int node) {
  char path[64], command[320];
  snprintf(path, sizeof(path), "%s/%s", folder, bus);
  snprintf(command, sizeof(command), "mkdir %s && ln -s . %s/device && echo %d > %s/numa_node",
           path, path, node, path);
  cr_assert_eq(system(command), 0);
  snprintf(device->device.ibdev_path, sizeof(device->device.ibdev_path), "%s", path);
}

Test(verbs_device, place_comes_from_sysfs_and_near_ones_come_first, .init = load) {
  char folder[] = "/tmp/verbs_device.XXXXXX", command[64], text[VERBS_RAIL_TEXT];
  unsigned cpu, node;
  cr_assert_not_null(mkdtemp(folder));
  cr_assert_eq(getcpu(&cpu, &node), 0);
  put_device(fake_add(fake, "mlx5_0", 1), folder, "0000:3b:00.1", (int)node + 1);
  put_device(fake_add(fake, "mlx5_1", 1), folder, "0000:5e:00.0", (int)node);
  verbs_settings settings = fake_settings();
  cr_assert_eq(open_rails(&settings), 2);
  cr_assert_str_eq(rails[0].pci, "0000:5e:00.0");
  cr_assert_eq(rails[0].place.numa_node, (int)node);
  cr_assert_str_eq(rails[1].pci, "0000:3b:00.1");
  cr_assert(rails[1].relaxed_ordering);
  cr_assert(strstr(verbs_rail_text(&rails[1], text), "LID 10, 0000:3b:00.1"), "%s", text);
  close_rails(2);
  snprintf(command, sizeof(command), "rm -r %s", folder);
  cr_assert_eq(system(command), 0);
}

Test(verbs_device, only_the_fastest_of_a_kind_are_used, .init = load) {
  fake_add(fake, "slow_0", 1)->ports[0].attr.active_speed = 16;
  fake_add(fake, "fast_0", 2)->ports[1].attr.state = IBV_PORT_DOWN;
  fake_device *ether = fake_add(fake, "ether_0", 1); /* as fast, on a different network */
  fake_make_roce(&ether->ports[0]);
  fake_gid(&ether->ports[0], 0, "10.1.2.3", IBV_GID_TYPE_ROCE_V2);
  fake_add(fake, "fast_1", 1);
  verbs_settings settings = fake_settings();
  cr_assert_eq(open_rails(&settings), 2);
  cr_assert_str_eq(rails[0].name, "fast_0");
  cr_assert_str_eq(rails[1].name, "fast_1");
  close_rails(2);
}

Test(verbs_device, there_are_no_more_rails_than_asked_for, .init = load) {
  for (int i = 0; i < 3; i++)
    fake_add(fake, i == 0 ? "mlx5_0" : i == 1 ? "mlx5_1" : "mlx5_2", 3);
  verbs_settings settings = fake_settings();
  cr_assert_eq(open_rails(&settings), VERBS_MAX_RAILS);
  cr_assert_str_eq(rails[3].name, "mlx5_1");
  close_rails(VERBS_MAX_RAILS);
}

/* ---- settings -------------------------------------------------------------------------------- */

/* COLL_VERBS_DEVICE, COLL_VERBS_PORT and the rails that follow, as "name:port name:port". */
static const struct {
  const char *devices;
  int port;
  const char *want;
} choices[] = {
    {"", 0, "mlx5_1:1 mlx5_1:2 mlx5_10:1 mlx5_10:2"},
    {"mlx5_1", 0, "mlx5_1:1 mlx5_1:2 mlx5_10:1 mlx5_10:2"},
    {"=mlx5_1", 0, "mlx5_1:1 mlx5_1:2"},
    {"mlx5_10", 0, "mlx5_10:1 mlx5_10:2"},
    {"mlx5_10:2", 0, "mlx5_10:2"},
    {"=mlx5_1:2,mlx5_10:1", 0, "mlx5_1:2 mlx5_10:1"},
    {"^mlx5_10", 0, "mlx5_1:1 mlx5_1:2"},
    {"^=mlx5_1", 0, "mlx5_10:1 mlx5_10:2"},
    {"^mlx5_10:1", 0, "mlx5_1:1 mlx5_1:2 mlx5_10:2"},
    {"mlx5,^=mlx5_1:1,", 0, "mlx5_1:2 mlx5_10:1 mlx5_10:2"},
    {"", 2, "mlx5_1:2 mlx5_10:2"},
    {"^mlx5_10", 1, "mlx5_1:1"},
};

Test(verbs_device, settings_choose, .init = load) {
  fake_add(fake, "mlx5_1", 2);
  fake_add(fake, "mlx5_10", 2);
  for (size_t i = 0; i < sizeof(choices) / sizeof(*choices); i++) {
    verbs_settings settings = fake_settings();
    settings.devices = choices[i].devices;
    settings.port = choices[i].port;
    char have[256] = "";
    int count = open_rails(&settings);
    for (int r = 0; r < count; r++) {
      size_t used = strlen(have);
      snprintf(have + used, sizeof(have) - used, "%s%s:%d", used ? " " : "", rails[r].name,
               rails[r].port);
    }
    cr_expect_str_eq(have, choices[i].want, "COLL_VERBS_DEVICE=%s: %s", choices[i].devices, have);
    verbs_rails_close(&lib, rails, count);
  }
  close_rails(0);
}

static const char *setting_devices;

static const char *param(void *ctx, const char *name) {
  (void)ctx;
  if (strcmp(name, "COLL_VERBS_DEVICE") == 0)
    return setting_devices;
  return strcmp(name, "COLL_VERBS_TIMEOUT") == 0         ? "14"
         : strcmp(name, "COLL_VERBS_TRAFFIC_CLASS") == 0 ? "104"
                                                         : "";
}

Test(verbs_device, settings_are_read) {
  coll_transport_env env = {.size = sizeof(env), .param = param};
  verbs_settings settings;
  setting_devices = "mlx5_0:1,^=mlx5_3";
  cr_assert_eq(verbs_settings_read(&env, &settings, &fault), COLL_OK);
  cr_assert_str_eq(settings.devices, "mlx5_0:1,^=mlx5_3");
  cr_assert_eq(settings.port, 0);
  cr_assert_eq(settings.gid_index, -1);
  cr_assert_eq(settings.timeout, 14);
  cr_assert_eq(settings.retry, 7);
  cr_assert_eq(settings.traffic_class, 104);
  static const char *const wrong[] = {"mlx5_0:",
                                      "mlx5_0:x",
                                      "mlx5_0:0",
                                      "mlx5_0:256",
                                      ":1",
                                      "^",
                                      "=",
                                      "a,b:1:2",
                                      "^=:3",
                                      "a:+1",
                                      "a:99999999999999999999"};
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    setting_devices = wrong[i];
    cr_expect_eq(verbs_settings_read(&env, &settings, &fault), COLL_ERR_INVALID_USAGE, "%s",
                 wrong[i]);
    cr_expect(strstr(fault.detail, "is not a device; write"), "%s", fault.detail);
  }
}

/* ---- addresses of RoCE ----------------------------------------------------------------------- */

/* One RoCE device with a usual table. */
static fake_port *add_roce(void) {
  fake_port *port = &fake_add(fake, "rocep0", 1)->ports[0];
  fake_make_roce(port);
  fake_gid(port, 0, "fe80::1", IBV_GID_TYPE_ROCE_V1);
  fake_gid(port, 1, "fe80::1", IBV_GID_TYPE_ROCE_V2);
  fake_gid(port, 2, "10.9.8.7", IBV_GID_TYPE_ROCE_V1);
  fake_gid(port, 3, "10.9.8.7", IBV_GID_TYPE_ROCE_V2);
  fake_gid(port, 5, "2001:db8::7", IBV_GID_TYPE_ROCE_V2); /* 4 is empty */
  fake_gid(port, 6, "10.9.8.8", IBV_GID_TYPE_ROCE_V2);
  return port;
}

Test(verbs_device, version_two_and_global_addresses_first, .init = load) {
  add_roce();
  verbs_settings settings = fake_settings();
  cr_assert_eq(open_rails(&settings), 1);
  cr_assert_eq(rails[0].ngids, 2); /* the best of each family */
  cr_assert_eq(rails[0].gid[0].index, 3);
  cr_assert_eq(rails[0].gid[0].addr.family, 4);
  cr_assert_eq(rails[0].gid[1].index, 5);
  cr_assert_eq(rails[0].gid[1].addr.family, 6);
  char text[VERBS_RAIL_TEXT];
  cr_assert_str_eq(verbs_rail_text(&rails[0], text), "rocep0:1 RoCE v2 100 Gbit/s 10.9.8.7");
  close_rails(1);
}

Test(verbs_device, link_local_is_better_than_nothing, .init = load) {
  fake_port *port = add_roce();
  memset(&port->gids[2], 0, 6 * sizeof(port->gids[2]));
  verbs_settings settings = fake_settings();
  cr_assert_eq(open_rails(&settings), 1);
  cr_assert_eq(rails[0].ngids, 1);
  cr_assert_eq(rails[0].gid[0].index, 1);
  char text[VERBS_RAIL_TEXT];
  cr_assert_str_eq(verbs_rail_text(&rails[0], text), "rocep0:1 RoCE v2 100 Gbit/s [fe80::1]");
  close_rails(1);
}

/* Version 1 of the protocol is used if there is no other, and never mixed with version 2. */
Test(verbs_device, versions_do_not_mix, .init = load) {
  fake_port *port = add_roce();
  memset(&port->gids[1], 0, sizeof(port->gids[1]));
  memset(&port->gids[3], 0, 4 * sizeof(port->gids[3]));
  verbs_settings settings = fake_settings();
  cr_assert_eq(open_rails(&settings), 1);
  cr_assert_eq(rails[0].gid[0].index, 2);
  cr_assert_eq(rails[0].gid[1].index, 0);
  verbs_rails_close(&lib, rails, 1);
  fake_gid(port, 1, "fe80::1", IBV_GID_TYPE_ROCE_V2);
  cr_assert_eq(open_rails(&settings), 1);
  cr_assert_eq(rails[0].ngids, 1);
  cr_assert_eq(rails[0].gid[0].index, 1);
  close_rails(1);
}

/* This host's own addresses have subnets; those that COLL_TCP_IFNAME allows go first. */
Test(verbs_device, subnets_come_from_the_interfaces, .init = load) {
  coll_error error = COLL_ERROR_INIT;
  colli_addr own[8];
  int count = colli_net_interfaces("^lo", own, 8, &error), v4 = 0;
  while (v4 < count && own[v4].family != 4)
    v4++;
  if (v4 >= count)
    cr_skip_test("this host has no IPv4 address but loopback");
  char text[COLLI_ADDR_TEXT];
  colli_addr_text(&own[v4], text);
  *strchr(text, ':') = 0;
  fake_port *port = add_roce();
  fake_gid(port, 7, text, IBV_GID_TYPE_ROCE_V2);
  verbs_settings settings = fake_settings();
  cr_assert_eq(open_rails(&settings), 1);
  cr_assert_eq(rails[0].gid[0].index, 3);
  cr_assert_eq(rails[0].gid[0].addr.prefix, 0); /* not one of this host's */
  verbs_rails_close(&lib, rails, 1);
  settings.ifname = "^lo";
  cr_assert_eq(open_rails(&settings), 1);
  cr_assert_eq(rails[0].gid[0].index, 7);
  cr_assert_eq(rails[0].gid[0].addr.prefix, own[v4].prefix);
  close_rails(1);
}

Test(verbs_device, gid_index_is_obeyed, .init = load) {
  fake_port *port = add_roce();
  verbs_settings settings = fake_settings();
  settings.gid_index = 2;
  cr_assert_eq(open_rails(&settings), 1);
  cr_assert_eq(rails[0].ngids, 1);
  cr_assert_eq(rails[0].gid[0].index, 2);
  cr_assert_eq(rails[0].gid[0].type, IBV_GID_TYPE_ROCE_V1);
  verbs_rails_close(&lib, rails, 1);
  settings.gid_index = 4;
  cr_assert_eq(open_rails(&settings), 0);
  cr_assert_eq(fault.status, COLL_ERR_INVALID_USAGE);
  cr_assert(strstr(fault.detail, "GID entry 4 of rocep0 port 1"), "%s", fault.detail);
  settings.gid_index = 8;
  EXPECT_NONE(&settings, COLL_ERR_INVALID_USAGE, "COLL_VERBS_GID_INDEX=8", "rocep0 port 1",
              "8 GID entries", "ibv_devinfo -v");
  (void)port;
}

/* ---- no rail --------------------------------------------------------------------------------- */

Test(verbs_device, no_device, .init = load) {
  verbs_settings settings = fake_settings();
  EXPECT_NONE(&settings, COLL_ERR_UNSUPPORTED, "no InfiniBand or RoCE device", "ibv_devices");
}

Test(verbs_device, kernel_without_verbs, .init = load) {
  verbs_settings settings = fake_settings();
  fake->no_list = true;
  EXPECT_NONE(&settings, COLL_ERR_UNSUPPORTED, "no InfiniBand or RoCE device");
}

Test(verbs_device, no_permission, .init = load) {
  verbs_settings settings = fake_settings();
  fake_add(fake, "mlx5_0", 1)->open_errno = EACCES;
  cr_assert_eq(open_rails(&settings), 0);
  cr_assert_eq(fault.sys_errno, EACCES);
  cr_assert_str_eq(fault.syscall, "ibv_open_device");
  EXPECT_NONE(&settings, COLL_ERR_SYSTEM, "mlx5_0", "/dev/infiniband/uverbs0",
              "read and write permission");
}

Test(verbs_device, device_file_is_not_in_the_container, .init = load) {
  verbs_settings settings = fake_settings();
  fake_add(fake, "mlx5_0", 1)->open_errno = ENOENT;
  EXPECT_NONE(&settings, COLL_ERR_SYSTEM, "uverbs0", "--device=/dev/infiniband");
}

Test(verbs_device, ports_down, .init = load) {
  verbs_settings settings = fake_settings();
  fake_device *device = fake_add(fake, "mlx5_0", 2);
  device->ports[0].attr.state = IBV_PORT_DOWN;
  device->ports[1].attr.state = IBV_PORT_INIT;
  cr_assert_eq(open_rails(&settings), 0);
  cr_assert(strstr(fault.detail, "check the cable and the switch (and 1 more)"), "%s",
            fault.detail);
  settings.port = 2;
  EXPECT_NONE(&settings, COLL_ERR_SYSTEM, "mlx5_0 port 2 is not active (PORT_INIT)",
              "subnet manager");
}

Test(verbs_device, roce_port_down_or_without_address, .init = load) {
  verbs_settings settings = fake_settings();
  fake_port *port = add_roce();
  port->attr.state = IBV_PORT_DOWN;
  cr_assert_eq(open_rails(&settings), 0);
  cr_assert(strstr(fault.detail, "rocep0 port 1 is not active (PORT_DOWN): set its network"), "%s",
            fault.detail);
  port->attr.state = IBV_PORT_ACTIVE;
  memset(port->gids, 0, sizeof(port->gids));
  EXPECT_NONE(&settings, COLL_ERR_SYSTEM, "rocep0 port 1 has no GID", "an IP address");
}

Test(verbs_device, infiniband_without_lid_or_gid, .init = load) {
  verbs_settings settings = fake_settings();
  fake_port *port = &fake_add(fake, "mlx5_0", 1)->ports[0];
  port->attr.lid = 0;
  cr_assert_eq(open_rails(&settings), 0);
  cr_assert(strstr(fault.detail, "mlx5_0 port 1 has no LID"), "%s", fault.detail);
  port->attr.lid = 1;
  memset(port->gids, 0, sizeof(port->gids));
  EXPECT_NONE(&settings, COLL_ERR_SYSTEM, "mlx5_0 port 1 has no GID", "subnet manager");
}

Test(verbs_device, other_kinds_of_adapters, .init = load) {
  verbs_settings settings = fake_settings();
  struct ibv_device *device = &fake_add(fake, "siw0", 1)->device;
  device->node_type = IBV_NODE_RNIC;
  device->transport_type = IBV_TRANSPORT_IWARP;
  cr_assert_eq(open_rails(&settings), 0);
  cr_assert_eq(fault.status, COLL_ERR_UNSUPPORTED);
  cr_assert(strstr(fault.detail, "siw0 is an iWARP adapter"), "%s", fault.detail);
  device->node_type = IBV_NODE_UNSPECIFIED;
  device->transport_type = IBV_TRANSPORT_UNSPECIFIED;
  EXPECT_NONE(&settings, COLL_ERR_UNSUPPORTED, "no adapter with reliable connections");
  cr_assert_eq(fake->opens, 0);
}

/* Of several reasons, the message gives the one of the port that came closest to being a rail. */
Test(verbs_device, the_nearest_reason_is_told, .init = load) {
  verbs_settings settings = fake_settings();
  fake_add(fake, "mlx5_0", 1)->open_errno = EPERM;
  fake_add(fake, "mlx5_1", 1)->ports[0].attr.state = IBV_PORT_DOWN;
  fake_add(fake, "mlx5_2", 1)->query_error = EIO;
  EXPECT_NONE(&settings, COLL_ERR_SYSTEM, "mlx5_1 port 1 is not active");
}

Test(verbs_device, settings_that_fit_nothing, .init = load) {
  verbs_settings settings = fake_settings();
  fake_add(fake, "mlx5_0", 1);
  settings.devices = "rocep0";
  cr_assert_eq(open_rails(&settings), 0);
  cr_assert_eq(fault.status, COLL_ERR_INVALID_USAGE);
  cr_assert(strstr(fault.detail, "COLL_VERBS_DEVICE=rocep0"), "%s", fault.detail);
  cr_assert(strstr(fault.detail, "mlx5_0"), "%s", fault.detail);
  settings.devices = "";
  settings.port = 2;
  EXPECT_NONE(&settings, COLL_ERR_INVALID_USAGE, "COLL_VERBS_PORT", "mlx5_0:1", "ibv_devinfo");
}

/* ---- odd devices ----------------------------------------------------------------------------- */

/* Impossible numbers from a device must cause neither a crash nor a hang. */
Test(verbs_device, odd_values, .init = load) {
  verbs_settings settings = fake_settings();
  fake_device *device = fake_add(fake, "odd0", 255);
  fake->count = 5; /* the list ends before */
  fake_make_roce(&device->ports[2]);
  device->ports[2].attr.gid_tbl_len = -3;
  device->ports[1].error = -1;
  fake_port *port = &device->ports[0];
  port->attr.active_mtu = (enum ibv_mtu)99;
  port->attr.active_speed = 255;
  port->attr.active_width = 0x40;
  port->attr.gid_tbl_len = 1 << 30;
  port->attr.link_layer = 77;
  memset(device->device.ibdev_path, 'x', sizeof(device->device.ibdev_path));
  cr_assert_eq(open_rails(&settings), 1);
  cr_assert_eq(rails[0].mtu, IBV_MTU_1024);
  cr_assert_eq(rails[0].mbit, 0);
  char text[VERBS_RAIL_TEXT];
  cr_assert_str_eq(verbs_rail_text(&rails[0], text), "odd0:1 InfiniBand LID 10");
  close_rails(1);
}

/* Scanning a RoCE port with the largest possible GID table, all empty, is fast. */
Test(verbs_device, endless_table, .init = load, .timeout = 10) {
  verbs_settings settings = fake_settings();
  fake_port *port = add_roce();
  memset(port->gids, 0, sizeof(port->gids));
  port->attr.gid_tbl_len = 0x7fffffff;
  EXPECT_NONE(&settings, COLL_ERR_SYSTEM, "rocep0 port 1 has no GID");
}

/* A table with only loopback addresses and unknown types has no usable entry. */
Test(verbs_device, addresses_of_no_use, .init = load) {
  verbs_settings settings = fake_settings();
  fake_port *port = add_roce();
  memset(port->gids, 0, sizeof(port->gids));
  fake_gid(port, 0, "127.0.0.1", IBV_GID_TYPE_ROCE_V2);
  fake_gid(port, 1, "::1", IBV_GID_TYPE_ROCE_V2);
  fake_gid(port, 2, "10.0.0.1", 42);
  EXPECT_NONE(&settings, COLL_ERR_SYSTEM, "has no GID");
}
