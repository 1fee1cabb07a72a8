/*
 * test_verbs_near.c: a rank uses the (fake) devices of InfiniBand next to its (fake) GPU, by where
 * a /sys of the test says that they are.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libcoll/comm/inspect.h"
#include "support_verbs_device.h"

TestSuite(near, .timeout = 60);

enum { CARDS = 4 };

static verbs_lib lib;
static fake_verbs *fake;

/* Runs a command of the shell in a folder. */
static void shell(const char *folder, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void shell(const char *folder, const char *format, ...) {
  char command[1024];
  int used = snprintf(command, sizeof(command), "set -e; cd '%s'; ", folder);
  va_list args;
  va_start(args, format);
  vsnprintf(command + used, sizeof(command) - (size_t)used, format, args);
  va_end(args);
  cr_assert_eq(system(command), 0, "%s", command);
}

/* Puts a PCI device below bridges into a folder like /sys. */
static void put(const char *root, const char *above, const char *address, int node) {
  shell(root,
        "mkdir -p devices/%s/%s bus/pci/devices; echo %d > devices/%s/%s/numa_node; "
        "ln -s ../../../devices/%s/%s bus/pci/devices/%s",
        above, address, node, above, address, above, address, address);
}

/* Adds a device whose card is at an address. */
static void add(const char *root, int number, const char *address) {
  char name[16], path[128];
  snprintf(name, sizeof(name), "mlx5_%d", number);
  fake_device *device = fake_add(fake, name, 1);
  shell(
      root,
      "mkdir -p class/infiniband/%s; ln -s ../../../bus/pci/devices/%s class/infiniband/%s/device",
      name, address, name);
  snprintf(path, sizeof(path), "%s/class/infiniband/%s", root, name);
  snprintf(device->device.ibdev_path, sizeof(device->device.ibdev_path), "%s", path);
}

/* A machine with two nodes, and on each two switches with a GPU (0000:01 to 04:00.0) and a card of
 * the same number. */
static void make_machine(const char *root) {
  for (int i = 0; i < CARDS; i++) {
    char above[128], address[32];
    snprintf(above, sizeof(above), "pci0000:%d0/0000:%d0:01.0/0000:a%d:00.0/0000:b%d:01.0", i + 4,
             i + 4, i, i);
    snprintf(address, sizeof(address), "0000:%02d:00.0", i + 1);
    put(root, above, address, i / 2);
    above[strlen(above) - 3] = '2'; /* another port of the switch */
    snprintf(address, sizeof(address), "0000:%d1:00.0", i + 4);
    put(root, above, address, i / 2);
    add(root, i, address);
  }
}

/* ---- which are chosen ------------------------------------------------------------------------ */

static char root[] = "/tmp/coll-near-XXXXXX";

static void load(void) {
  verbs_fault fault;
  cr_assert_not_null(mkdtemp(root));
  fake = fake_load();
  cr_assert_not_null(fake);
  cr_assert_eq(verbs_lib_load(&lib, VERBS_LIB_NAME, &fault), COLL_OK, "%s", fault.detail);
  make_machine(root);
}

static void clear(void) {
  shell("/tmp", "rm -r %s", root);
}

/* Expects the rails of a rank with the GPU at an address, as "0 1". */
static void expect_rails(const char *devices, const char *gpu, const char *want) {
  verbs_settings settings = fake_settings();
  verbs_rail rails[VERBS_MAX_RAILS];
  verbs_fault fault;
  char have[64] = "";
  settings.devices = devices;
  if (colli_pci_find_at(root, gpu, &settings.gpu_place))
    settings.gpu = gpu;
  const int count = verbs_rails_open(&lib, &settings, rails, VERBS_MAX_RAILS, &fault);
  for (int i = 0; i < count; i++)
    snprintf(have + strlen(have), sizeof(have) - strlen(have), "%s%s", i ? " " : "",
             rails[i].name + strlen("mlx5_"));
  cr_expect_str_eq(have, want, "COLL_VERBS_DEVICE=%s, GPU %s: %s", devices, gpu, have);
  verbs_rails_close(&lib, rails, count);
}

/* Each GPU has a card of its own, which its rank uses first. */
Test(near, the_card_at_the_gpus_switch_is_used, .init = load, .fini = clear) {
  expect_rails("", "0000:01:00.0", "0 1 2 3");
  expect_rails("", "00000000:03:00.0", "2 3 0 1"); /* as some drivers write it */
  expect_rails("^mlx5_0", "0000:04:00.0", "3 2 1");
}

/* Then the same node, beginning behind the nearest. */
Test(near, those_that_are_named_are_ordered, .init = load, .fini = clear) {
  expect_rails("mlx5", "0000:01:00.0", "0 1 2 3");
  expect_rails("mlx5", "0000:02:00.0", "1 0 2 3");
  expect_rails("mlx5", "0000:03:00.0", "2 3 0 1");
  expect_rails("mlx5", "0000:04:00.0", "3 2 0 1");
  expect_rails("^mlx5_0", "0000:01:00.0", "1 2 3"); /* the nearest is at no switch of the GPU */
}

/* Where cards are in several networks, ranks of all GPUs choose alike: those of others may be in
 * none of a GPU's own card. */
Test(near, several_networks_are_chosen_alike, .init = load, .fini = clear) {
  expect_rails("", "0000:04:00.0", "3 2 0 1");
  fake->devices[1].ports[0].gids[0].gid.raw[7] = 1;
  expect_rails("", "0000:04:00.0", "0 1 2 3");
  for (int i = 0; i < CARDS; i++) {
    char address[32];
    fake_make_roce(&fake->devices[i].ports[0]);
    snprintf(address, sizeof(address), "10.%d.0.1", i / 2);
    fake_gid(&fake->devices[i].ports[0], 0, address, IBV_GID_TYPE_ROCE_V2);
  }
  expect_rails("", "0000:04:00.0", "0 1 2 3"); /* nobody knows which subnets these are */
}

/* The fastest are used, as ever; a GPU whose place is not known changes nothing. */
Test(near, speed_comes_first, .init = load, .fini = clear) {
  fake->devices[0].ports[0].attr.active_speed = 16;
  expect_rails("mlx5", "0000:01:00.0", "1 2 3");
  fake->devices[0].ports[0].attr.active_speed = 32;
  put(root, "pci0000:90", "0000:91:00.0", 0); /* with no bridge above but the processor's */
  expect_rails("", "0000:91:00.0", "0 1 2 3");
  put(root, "pci0000:92", "0000:93:00.0", 1);
  expect_rails("", "0000:93:00.0", "2 3 0 1");
  fake->devices[0].ports[0].attr.state = IBV_PORT_DOWN;
  expect_rails("", "0000:01:00.0", "1 2 3");
}

/* Two cards at the switch of a GPU. */
Test(near, all_cards_at_the_switch_come_first, .init = load, .fini = clear) {
  put(root, "pci0000:50/0000:50:01.0/0000:a1:00.0/0000:b1:03.0", "0000:52:00.0", 0);
  add(root, CARDS, "0000:52:00.0");
  expect_rails("", "0000:02:00.0", "1 4 0 2");
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* Makes two ranks of this thread, and writes what rank 0 says of its way to rank 1. */
static void ask_way(char way[160]) {
  coll_config config = COLL_CONFIG_INIT;
  coll_error error = COLL_ERROR_INIT;
  coll_comm *comms[2];
  char other[160];
  config.transport = "verbs";
  config.progress = COLL_PROGRESS_OFF; /* nobody else may be inside: colli_comm_paths() */
  config.error = &error;
  cr_assert_eq(coll_comm_create_local(comms, 2, &config), COLL_OK, "%s", error.message);
  while (colli_comm_paths(comms[0], 1, way, 160) + colli_comm_paths(comms[1], 0, other, 160) > 0) {
    coll_request *barriers[2]; /* which move connections */
    for (int rank = 0; rank < 2; rank++)
      cr_assert_eq(coll_ibarrier(comms[rank], &barriers[rank]), COLL_OK);
    while (barriers[0] || barriers[1])
      for (int rank = 0; rank < 2; rank++) {
        const coll_status status = barriers[rank] ? coll_test(&barriers[rank]) : COLL_OK;
        cr_assert(status == COLL_OK || status == COLL_IN_PROGRESS, "%d", (int)status);
      }
  }
  for (int rank = 0; rank < 2; rank++)
    cr_assert_eq(coll_comm_destroy(&comms[rank]), COLL_OK);
}

/* Expects that rank 0 uses a device, and says why, in the log as well (NULL: it says nothing). */
static void expect_way(const char *device, const char *why) {
  char way[160], line[160] = "", log[8192] = "", file[] = "/tmp/coll-near-log-XXXXXX";
  const int out = mkstemp(file), before = dup(STDERR_FILENO);
  setenv("COLL_LOG", "info", 1);
  cr_assert(out >= 0 && before >= 0 && dup2(out, STDERR_FILENO) >= 0);
  ask_way(way);
  cr_assert(dup2(before, STDERR_FILENO) >= 0);
  cr_assert_geq(pread(out, log, sizeof(log) - 1, 0), 0);
  close(before);
  close(out);
  unlink(file);
  snprintf(line, sizeof(line), "%s:1%s%s%s LID ", device, why ? " (" : "", why ? why : "",
           why ? ")" : "");
  cr_expect_eq(strncmp(way, line, strlen(line)), 0, "%s is not %s", way, line);
  snprintf(line, sizeof(line), "libcoll [0] info: verbs uses %s:1, %s\n", device, why ? why : "");
  cr_expect_eq(strstr(log, why ? line : "verbs uses ") != NULL, why != NULL, "%s in: %s", line,
               log);
}

/* Makes /sys a machine of ours. */
static void make_sys(void) {
  if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
      mount("sys", "/sys", "tmpfs", 0, NULL) != 0)
    cr_skip_test("needs root");
  fake = fake_load();
  cr_assert_not_null(fake);
  make_machine("/sys");
}

/* By the GPU of the thread's context; without one nothing changes. */
Test(near, a_rank_uses_the_card_next_to_its_gpu) {
  DEVICE_NEEDS_FAKE("GPU that is where the test says");
  make_sys();
  device_load();
  expect_way("mlx5_0", NULL); /* this process has no context, and many GPUs */
  device_use(2);
  expect_way("mlx5_2", "same switch as its GPU 0000:03:00.0");
  device_use(1);
  expect_way("mlx5_1", "same switch as its GPU 0000:02:00.0");
  device_use(7); /* sysfs does not have it */
  expect_way("mlx5_0", NULL);
}

/* A process that sees one GPU will use that one. */
Test(near, the_only_gpu_is_the_ranks) {
  DEVICE_NEEDS_FAKE("GPU that is where the test says");
  setenv("GPU_DEVICES", "1", 1);
  make_sys();
  device_load();
  expect_way("mlx5_0", "same switch as its GPU 0000:01:00.0");
}
