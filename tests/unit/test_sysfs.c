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
  char target[512], link[512];
  put("devices/pci0000:40/0000:40:01.0/0000:41:00.0/class", "0x030200");
  put("devices/pci0000:40/0000:40:01.0/0000:41:00.0/numa_node", "1");
  snprintf(link, sizeof(link), "%s/bus", root);
  mkdir(link, 0755);
  strcat(link, "/pci");
  mkdir(link, 0755);
  strcat(link, "/devices");
  mkdir(link, 0755);
  snprintf(target, sizeof(target), "%s/devices/pci0000:40/0000:40:01.0/0000:41:00.0", root);
  strcat(link, "/0000:41:00.0");
  cr_assert_eq(symlink(target, link), 0);
}

static void remove_machine(void) {
  char command[64];
  snprintf(command, sizeof(command), "rm -rf %s", root);
  cr_assert_eq(system(command), 0);
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
  const colli_topo_pci *gpu = colli_topo_find_pci(topo, "00000000:41:00.0");
  cr_assert_not_null(gpu);
  cr_assert_eq(gpu->numa_node, 1);
  cr_assert_eq(gpu->package, 1);
  cr_assert_eq(gpu->nbridges, 2); /* that of the processor, and one more */
  cr_assert_eq(topo->npci, 1);
  colli_topo_free(topo);
}

Test(sysfs, a_folder_without_a_machine) {
  coll_error error = COLL_ERROR_INIT;
  colli_topo *topo = NULL;
  cr_assert_eq(colli_topo_read_sysfs("/proc/self", &topo, &error), COLL_ERR_SYSTEM);
  cr_assert_null(topo);
  cr_assert(strstr(error.message, "/proc/self"), "%s", error.message);
}
