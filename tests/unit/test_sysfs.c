/* test_sysfs.c: reading a machine from /sys finds what hwloc finds, and a machine with two
 * packages, hardware threads and a GPU behind a switch. */
#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topology/read.h"

static colli_topo *read_machine(const char *root) {
  coll_error error = COLL_ERROR_INIT;
  colli_topo *topo = NULL;
  cr_assert_eq(colli_topo_read_sysfs(root, &topo, &error), COLL_OK, "%s", error.message);
  return topo;
}

/* Whether the kernel tells of caches; in some virtual machines it does not, and hwloc asks the
 * processor itself. */
static bool knows_caches(void) {
  return access("/sys/devices/system/cpu/cpu0/cache/index0", F_OK) == 0;
}

/* This machine's cores, compared with what hwloc says. */
Test(sysfs, this_machine) {
  coll_error error = COLL_ERROR_INIT;
  colli_topo *by_hwloc = NULL, *topo = read_machine("/sys");
  cr_assert_eq(colli_topo_load("", &by_hwloc, &error), COLL_OK, "%s", error.message);
  cr_assert_eq(topo->ncores, by_hwloc->ncores);
  cr_assert_eq(topo->npus, by_hwloc->npus);
  cr_assert_eq(topo->npackages, by_hwloc->npackages);
  const bool caches = knows_caches();
  if (caches) {
    cr_assert_eq(topo->nl3, by_hwloc->nl3);
    cr_assert_eq(topo->nl2, by_hwloc->nl2);
    cr_assert_eq(topo->l3_bytes, by_hwloc->l3_bytes);
    cr_assert_eq(topo->l2_bytes, by_hwloc->l2_bytes);
  }
  for (int i = 0; i < topo->ncores; i++) {
    const colli_topo_core *a = &topo->cores[i], *b = &by_hwloc->cores[i];
    cr_expect(a->os_index == b->os_index && a->package == b->package && a->allowed == b->allowed &&
                  (!caches || (a->l3 == b->l3 && a->l2 == b->l2)),
              "core %d", i);
  }
  for (int i = 0; i < topo->npu_numbers; i++)
    cr_expect_eq(topo->core_of_pu[i], by_hwloc->core_of_pu[i], "unit %d", i);
  colli_topo_free(by_hwloc);
  colli_topo_free(topo);
}

/* ---- a machine that is not this one ---------------------------------------------------------- */

static char root[] = "/tmp/sysfs_XXXXXX";

/* Writes a file below the root, and makes its folders. */
static void put(const char *path, const char *text) {
  char full[512];
  snprintf(full, sizeof(full), "%s/%s", root, path);
  for (char *slash = strchr(full + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    mkdir(full, 0755);
    *slash = '/';
  }
  FILE *file = fopen(full, "w");
  cr_assert_not_null(file, "%s", full);
  fprintf(file, "%s\n", text);
  cr_assert_eq(fclose(file), 0);
}

static void put_unit(int unit, const char *file, const char *text) {
  char path[128];
  snprintf(path, sizeof(path), "devices/system/cpu/cpu%d/%s", unit, file);
  put(path, text);
}

/* Writes a PCI device below others, and the link to it. */
static void put_device(const char *above, const char *bus, const char *class, const char *node) {
  char path[256], link[256];
  snprintf(path, sizeof(path), "devices/%s/%s/class", above, bus);
  put(path, class);
  snprintf(path, sizeof(path), "devices/%s/%s/numa_node", above, bus);
  put(path, node);
  put("bus/pci/devices/.made", "");
  snprintf(link, sizeof(link), "%s/bus/pci/devices/%s", root, bus);
  snprintf(path, sizeof(path), "%s/devices/%s/%s", root, above, bus);
  cr_assert_eq(symlink(path, link), 0);
}

/* Two packages of two cores with two threads each; thread 1 of core c is unit c + 4. Each package
 * is a NUMA node with an L3 cache; unit 7 is offline. */
static void make_machine(void) {
  static const char *const packages[] = {"0-1,4-5", "2-3,6"}, *const threads[] = {"0,4", "1,5",
                                                                                  "2,6", "3"};
  cr_assert_not_null(mkdtemp(root));
  put("devices/system/cpu/online", "0-6");
  put("devices/system/node/online", "0-1");
  put("devices/system/node/node0/cpulist", packages[0]);
  put("devices/system/node/node1/cpulist", packages[1]);
  for (int unit = 0; unit < 7; unit++) {
    const int core = unit % 4;
    put_unit(unit, "topology/package_cpus_list", packages[core / 2]);
    put_unit(unit, "topology/core_cpus_list", threads[core]);
    put_unit(unit, "cache/index0/level", "1");
    put_unit(unit, "cache/index0/type", "Instruction");
    put_unit(unit, "cache/index1/level", "2");
    put_unit(unit, "cache/index1/type", "Unified");
    put_unit(unit, "cache/index1/size", "512K");
    put_unit(unit, "cache/index1/shared_cpu_list", threads[core]);
    put_unit(unit, "cache/index2/level", "3");
    put_unit(unit, "cache/index2/type", "Unified");
    put_unit(unit, "cache/index2/size", "32M");
    put_unit(unit, "cache/index2/shared_cpu_list", packages[core / 2]);
  }
  /* A GPU and an InfiniBand card below one switch, a card above that, one beside it, one on the
   * other node, and a disk. */
  put_device("pci0000:40/0000:40:01.0/0000:41:00.0/0000:42:00.0", "0000:43:00.0", "0x030200", "1");
  put_device("pci0000:40/0000:40:01.0/0000:41:00.0/0000:42:01.0", "0000:44:00.0", "0x020700", "1");
  put_device("pci0000:40/0000:40:01.0", "0000:47:00.0", "0x020000", "1");
  put_device("pci0000:40/0000:40:02.0", "0000:45:00.0", "0x020000", "1");
  put_device("pci0000:10/0000:10:01.0", "0000:11:00.0", "0x0c0600", "0");
  put_device("pci0000:40/0000:40:03.0", "0000:46:00.0", "0x010802", "1");
}

static void remove_machine(void) {
  char command[64];
  snprintf(command, sizeof(command), "rm -rf %s", root);
  cr_assert_eq(system(command), 0);
}

/* Of ports that are active, the fastest counts; a port that is down may have a rate as well. */
Test(sysfs, all_ports_of_a_device_count, .init = make_machine, .fini = remove_machine) {
  static const char *const states[] = {"4: ACTIVE", "4: ACTIVE", "1: DOWN"};
  static const char *const rates[] = {"25 Gb/sec (1X EDR)", "100 Gb/sec (4X EDR)",
                                      "200 Gb/sec (4X HDR)"};
  char path[128];
  for (int port = 0; port < 3; port++) {
    snprintf(path, sizeof(path), "class/infiniband/mlx5_0/ports/%d/state", port + 1);
    put(path, states[port]);
    snprintf(path, sizeof(path), "class/infiniband/mlx5_0/ports/%d/rate", port + 1);
    put(path, rates[port]);
  }
  put("class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
  put("class/infiniband/mlx5_1/ports/1/rate", "10 Gb/sec (4X SDR)");
  put("class/net/eth0/speed", "25000");
  put("class/net/eth1/speed", "-1"); /* no link */
  cr_expect_eq(colli_topo_link_mbit(root, COLLI_DEVICE_RDMA, "mlx5_0"), 100000);
  cr_expect_eq(colli_topo_link_mbit(root, COLLI_DEVICE_RDMA, "mlx5_1"), 0);
  cr_expect_eq(colli_topo_link_mbit(root, COLLI_DEVICE_RDMA, "mlx5_2"), 0);
  cr_expect_eq(colli_topo_link_mbit(root, COLLI_DEVICE_NET, "eth0"), 25000);
  cr_expect_eq(colli_topo_link_mbit(root, COLLI_DEVICE_NET, "eth1"), 0);
  char link[128], target[128];
  snprintf(link, sizeof(link), "%s/class/infiniband/mlx5_0/device", root);
  snprintf(target, sizeof(target), "%s/bus/pci/devices/0000:44:00.0", root);
  cr_assert_eq(symlink(target, link), 0);
  colli_topo *topo = read_machine(root);
  cr_assert_eq(topo->ndevices, 1);
  cr_expect_eq(topo->devices[0].link_mbit, 100000, "of that machine, not of this one");
  colli_topo_free(topo);
}

Test(sysfs, another_machine, .init = make_machine, .fini = remove_machine) {
  colli_topo *topo = read_machine(root);
  static const int core_of_unit[] = {0, 1, 2, 3, 0, 1, 2};
  cr_assert_eq(topo->ncores, 4);
  cr_assert_eq(topo->npus, 7);
  cr_assert_eq(topo->npu_numbers, 7);
  cr_assert_eq(topo->npackages, 2);
  cr_assert_eq(topo->nnuma, 2);
  cr_assert_eq(topo->nl3, 2);
  cr_assert_eq(topo->nl2, 4);
  cr_assert_eq(topo->l3_bytes, 32 << 20);
  cr_assert_eq(topo->l2_bytes, 512 << 10);
  for (int i = 0; i < 7; i++)
    cr_expect_eq(topo->core_of_pu[i], core_of_unit[i], "unit %d", i);
  for (int i = 0; i < 4; i++) {
    const colli_topo_core *core = &topo->cores[i];
    cr_expect(core->package == i / 2 && core->numa_node == i / 2 && core->l3 == i / 2 &&
                  core->l2 == i,
              "core %d", i);
  }
  const colli_topo_pci *gpu = colli_topo_find_pci(topo, "00000000:43:00.0");
  cr_assert_not_null(gpu);
  cr_assert_eq(gpu->place.numa_node, 1);
  cr_assert_eq(gpu->package, 1);
  cr_assert_eq(gpu->place.nbridges, 4); /* that of the processor, its port, the switch's two */
  cr_assert_eq(gpu->kind, COLLI_DEVICE_GPU);
  cr_assert_eq(topo->npci, 5, "the disk is none");
  const colli_topo_pci *below = colli_topo_find_pci(topo, "0000:44:00.0");
  const colli_topo_pci *beside = colli_topo_find_pci(topo, "0000:45:00.0");
  const colli_topo_pci *far = colli_topo_find_pci(topo, "0000:11:00.0");
  cr_assert(below && beside && far);
  cr_expect_eq(below->kind, COLLI_DEVICE_RDMA);
  cr_expect_eq(beside->kind, COLLI_DEVICE_NET);
  cr_expect_eq(far->kind, COLLI_DEVICE_RDMA, "InfiniBand by its older class");
  cr_expect_eq(colli_topo_pci_distance(gpu, below), COLLI_PCI_SWITCH);
  cr_expect_eq(colli_topo_pci_distance(gpu, beside), COLLI_PCI_HOST_BRIDGE);
  cr_expect_eq(colli_topo_pci_distance(gpu, far), COLLI_PCI_SYSTEM);
  char text[COLLI_TOPO_NEAREST];
  cr_expect_str_eq(colli_topo_nearest_cards(topo, gpu->bus, text),
                   "nearest network: 0000:44:00.0 (same switch)");
  colli_topo_free(topo);
}

/* The place of one device, by its address, by a link to it, and by a folder that its driver made.
 */
Test(sysfs, one_device, .init = make_machine, .fini = remove_machine) {
  colli_pci_place gpu, card, below;
  char address[COLLI_PCI_ADDRESS], path[256];
  cr_assert(colli_pci_find_at(root, "00000000:43:00.0", &gpu));
  cr_assert(colli_pci_find_at(root, "0000:44:00.0", &card));
  cr_expect(gpu.nbridges == 4 && gpu.numa_node == 1);
  cr_expect_eq(colli_pci_distance_of(&gpu, &card), COLLI_PCI_SWITCH);
  put("devices/pci0000:40/0000:40:01.0/0000:41:00.0/0000:42:01.0/0000:44:00.0/virtio1/x", "");
  snprintf(path, sizeof(path), "%s/bus/pci/devices/0000:44:00.0/virtio1", root);
  cr_assert(colli_pci_find(path, address, &below));
  cr_expect_str_eq(address, "0000:44:00.0");
  cr_expect_eq(below.numa_node, 1);
  cr_expect_eq(colli_pci_order(&card, &below), colli_pci_order(&card, &card));
  cr_expect_not(colli_pci_find_at(root, "0000:44:00.1", &below));
  cr_expect_not(colli_pci_find_at(root, "software", &below));
  snprintf(path, sizeof(path), "%s/devices/system", root);
  cr_expect_not(colli_pci_find(path, address, &below));
  cr_expect_eq(colli_pci_distance_of(&gpu, &below), COLLI_PCI_UNKNOWN);
}

/* As near as can be: a switch, of several that which is deepest; then what is farther. */
Test(sysfs, devices_are_ordered_by_their_distance) {
  const colli_pci_place from = {.nbridges = 3, .bridges = {1, 2, 3}};
  const colli_pci_place order[] = {{0, 3, {1, 2, 3}}, {1, 3, {1, 2, 4}}, {1, 1, {1}},
                                   {0, 1, {9}},       {1, 1, {9}},       {-1, 0, {0}}};
  for (int i = 0; i < 5; i++)
    cr_expect_lt(colli_pci_order(&from, &order[i]), colli_pci_order(&from, &order[i + 1]), "%d", i);
  cr_expect_eq(colli_pci_order(&from, &order[5]), colli_pci_order(&from, NULL));
}

Test(sysfs, a_folder_without_a_machine) {
  coll_error error = COLL_ERROR_INIT;
  colli_topo *topo = NULL;
  cr_assert_eq(colli_topo_read_sysfs("/proc/self", &topo, &error), COLL_ERR_SYSTEM);
  cr_assert_null(topo);
  cr_assert(strstr(error.message, "/proc/self"), "%s", error.message);
}
