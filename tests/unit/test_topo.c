/* test_topo.c: reading machines, placing ranks, identifying hosts. */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libcoll/tuning/cache.h"
#include "topology/read.h"

/* The path of one of the machine files. */
static const char *file_path(char path[512], const char *name) {
  const char *slash = strrchr(__FILE__, '/');
  snprintf(path, 512, "%.*s/../machines/%s", (int)(slash - __FILE__), __FILE__, name);
  return path;
}

/* Loads one of the machine files. */
static colli_topo *load_file(const char *name) {
  char path[512];
  coll_error error = COLL_ERROR_INIT;
  colli_topo *topo;
  file_path(path, name);
  cr_assert_eq(colli_topo_load(path, &topo, &error), COLL_OK, "%s", error.message);
  return topo;
}

/* Loads this machine ("") or one from a description. */
static colli_topo *load_machine(const char *source) {
  coll_error error = COLL_ERROR_INIT;
  colli_topo *topo;
  cr_assert_eq(colli_topo_load(source, &topo, &error), COLL_OK, "%s", error.message);
  return topo;
}

/* Devices of one kind near one NUMA node. */
static int devices(const colli_topo *topo, colli_device_kind kind, int node) {
  int count = 0;
  for (int d = 0; d < topo->ndevices; d++)
    count += topo->devices[d].kind == kind && topo->devices[d].numa_node == node;
  return count;
}

/* The device of that name. */
static const colli_topo_device *device(const colli_topo *topo, const char *name) {
  for (int d = 0; d < topo->ndevices; d++)
    if (strcmp(topo->devices[d].name, name) == 0)
      return &topo->devices[d];
  cr_assert_fail("no device %s", name);
  return NULL;
}

Test(topo, dgx2_has_two_packages_and_sixteen_gpus) {
  colli_topo *topo = load_file("nvidiaDGX2.xml");
  cr_expect_eq(topo->npackages, 2);
  cr_expect_eq(topo->nnuma, 2);
  cr_expect_eq(topo->ndevices, 16);                    /* "nvml0" to "nvml15"; switches have none */
  cr_expect_eq(devices(topo, COLLI_DEVICE_GPU, 0), 8); /* a board for each package */
  cr_expect_eq(devices(topo, COLLI_DEVICE_GPU, 1), 8);
  cr_expect_str_eq(device(topo, "nvml0")->bus, "0000:34:00.0");
  cr_expect_eq(device(topo, "nvml15")->package, 1);
  /* PCI Express 3, 16 lanes: 15.75 GB/s; its NVLinks, which are faster, count apart. */
  cr_expect_float_eq(device(topo, "nvml0")->link_mbit, 126000.0, 100.0);
  colli_topo_free(topo);
}

Test(topo, gpus_are_found_by_their_pci_address_and_know_their_distance) {
  colli_topo *topo = load_file("nvidiaDGX2.xml");
  cr_assert_eq(topo->npci, 16);
  const colli_topo_pci *first = colli_topo_find_pci(topo, "0000:34:00.0");
  const colli_topo_pci *same = colli_topo_find_pci(topo, "00000000:3B:00.0");
  const colli_topo_pci *node = colli_topo_find_pci(topo, "0000:57:00.0");
  const colli_topo_pci *other = colli_topo_find_pci(topo, "0000:E7:00.0");
  cr_assert(first && same && node && other);
  cr_expect_eq(first->place.numa_node, 0);
  cr_expect_eq(other->place.numa_node, 1);
  cr_expect_eq(other->package, 1);
  cr_expect_eq(colli_topo_pci_distance(first, same), COLLI_PCI_SWITCH);
  cr_expect_eq(colli_topo_pci_distance(first, node), COLLI_PCI_NODE);
  cr_expect_eq(colli_topo_pci_distance(node, other), COLLI_PCI_SYSTEM);
  cr_expect_eq(colli_topo_pci_distance(first, NULL), COLLI_PCI_UNKNOWN);
  colli_topo_pci below_one_bridge = *first;
  below_one_bridge.place.nbridges = 1;
  cr_expect_eq(colli_topo_pci_distance(first, &below_one_bridge), COLLI_PCI_HOST_BRIDGE);
  cr_expect_null(colli_topo_find_pci(topo, "0000:35:00.0"));
  cr_expect_null(colli_topo_find_pci(topo, ""));
  colli_topo_free(topo);
}

Test(topo, one_gpu_with_three_names_is_one_gpu) {
  colli_topo *topo = load_file("power8gpudistances.xml");
  cr_expect_eq(topo->npackages, 2);
  cr_expect_eq(topo->ncores, 8);
  cr_expect_eq(topo->npus, 16);    /* two threads of each core are left */
  cr_expect_eq(topo->ndevices, 4); /* as nvml0 to nvml3: also as cuda0 and opencl0d0 and so on */
  cr_expect_eq(devices(topo, COLLI_DEVICE_GPU, 0), 2);
  cr_expect_eq(device(topo, "nvml3")->numa_node, 1);
  colli_topo_free(topo);
}

Test(topo, network_and_rdma_devices_know_their_node) {
  colli_topo *topo = load_file("32em64t-2n8c2t-pci-wholeio.xml");
  cr_expect_eq(topo->npackages, 2);
  cr_expect_eq(topo->nnuma, 2);
  cr_expect_eq(topo->nl3, 2);
  cr_expect_eq(topo->nl2, 16);
  cr_expect_eq(topo->ncores, 16);
  cr_expect_eq(topo->npus, 32);
  cr_expect_eq(topo->l3_bytes, 20u << 20);
  cr_expect_eq(devices(topo, COLLI_DEVICE_NET, 0), 0);
  cr_expect_eq(devices(topo, COLLI_DEVICE_NET, 1), 3);
  cr_expect_eq(devices(topo, COLLI_DEVICE_GPU, 1), 2);
  cr_expect_eq(device(topo, "mlx5_0")->kind, COLLI_DEVICE_RDMA);
  cr_expect_eq(device(topo, "mlx5_0")->package, 1);
  cr_expect_str_eq(device(topo, "eth1")->bus, "0000:81:00.1");
  cr_expect_eq(topo->cores[7].numa_node, 0);
  cr_expect_eq(topo->cores[8].numa_node, 1);
  cr_expect_eq(topo->cores[8].l3, 1);
  cr_expect_eq(topo->core_of_pu[8], 8);
  cr_expect_eq(topo->core_of_pu[24], 8, "second thread of core 8");
  colli_topo_free(topo);
}

Test(topo, a_numa_node_may_hold_several_packages) {
  colli_topo *topo = load_file("96em64t-4n4d3ca2co-pci.xml");
  cr_expect_eq(topo->npackages, 16);
  cr_expect_eq(topo->nnuma, 4);
  cr_expect_eq(topo->ncores, 96);
  for (int node = 0; node < 4; node++)
    cr_expect_eq(devices(topo, COLLI_DEVICE_NET, node), 2);
  cr_expect_eq(device(topo, "eth0")->package, -1, "the node's, not one package's");
  int cores[4];
  colli_topo_place(topo, 4, cores);
  for (int r = 0; r < 4; r++)
    cr_expect_eq(topo->cores[cores[r]].numa_node, r);
  colli_topo_free(topo);
}

Test(topo, described_machines) {
  colli_topo *topo = load_machine("pack:2 numa:2 l3:2 l2:2 core:2 pu:2");
  cr_expect_eq(topo->npackages, 2);
  cr_expect_eq(topo->nnuma, 4);
  cr_expect_eq(topo->nl3, 8);
  cr_expect_eq(topo->nl2, 16);
  cr_expect_eq(topo->ncores, 32);
  cr_expect_eq(topo->npus, 64);
  cr_expect_eq(colli_topo_allowed_cores(topo), 32);
  cr_expect_eq(topo->cores[31].package, 1);
  cr_expect_eq(topo->cores[31].numa_node, 3);
  cr_expect_eq(topo->cores[31].l3, 7);
  cr_expect_eq(topo->cores[31].l2, 15);
  cr_expect_eq(topo->core_of_pu[63], 31);
  colli_topo_free(topo);
  topo = load_machine("pu:3"); /* no cores, no packages, no caches */
  cr_expect_eq(topo->ncores, 3);
  cr_expect_eq(topo->npackages, 0);
  cr_expect_eq(topo->cores[2].package, -1);
  cr_expect_eq(topo->cores[2].l3, -1);
  cr_expect_eq(topo->cores[2].numa_node, 0);
  colli_topo_free(topo);
}

/* Checks one placement: distinct allowed cores, and each group gets its share of ranks, plus or
 * minus one. */
static void check_place(const colli_topo *topo, int nranks) {
  int cores[64];
  int on_node[8] = {0}, on_l3[16] = {0}, taken[64] = {0};
  colli_topo_place(topo, nranks, cores);
  int last_node = 0;
  for (int r = 0; r < nranks; r++) {
    cr_assert(cores[r] >= 0 && cores[r] < topo->ncores, "rank %d of %d", r, nranks);
    const colli_topo_core *core = &topo->cores[cores[r]];
    cr_assert(core->allowed);
    cr_assert_eq(taken[cores[r]]++, 0, "core %d is given twice", cores[r]);
    cr_assert_geq(core->numa_node, last_node, "neighbours in rank are neighbours on the machine");
    last_node = core->numa_node;
    on_node[core->numa_node]++;
    on_l3[core->l3]++;
  }
  for (int node = 0; node < topo->nnuma; node++)
    cr_assert(on_node[node] >= nranks / topo->nnuma &&
                  on_node[node] <= (nranks + topo->nnuma - 1) / topo->nnuma,
              "%d of %d ranks on node %d", on_node[node], nranks, node);
  for (int l3 = 0; l3 < topo->nl3; l3++)
    cr_assert(on_l3[l3] >= nranks / topo->nl3 && on_l3[l3] <= (nranks + topo->nl3 - 1) / topo->nl3,
              "%d of %d ranks on cache %d", on_l3[l3], nranks, l3);
}

Test(place, every_count_is_spread_evenly) {
  colli_topo *topo = load_machine("pack:2 numa:2 l3:2 core:4 pu:2");
  for (int nranks = 1; nranks <= topo->ncores; nranks++)
    check_place(topo, nranks);
  colli_topo_free(topo);
}

Test(place, more_ranks_than_cores_share_them_equally_or_are_not_placed) {
  colli_topo *topo = load_machine("numa:2 core:2 pu:2");
  int cores[12] = {7, 7, 7, 7, 7};
  colli_topo_place(topo, 5, cores);
  for (int r = 0; r < 5; r++)
    cr_expect_eq(cores[r], -1);
  colli_topo_place(topo, 12, cores);
  for (int r = 0; r < 12; r++)
    cr_expect_eq(cores[r], r / 3);
  colli_topo_free(topo);
}

Test(place, forbidden_cores_are_left_out_and_full_groups_overflow) {
  colli_topo *topo = load_machine("numa:2 l3:1 core:4 pu:1");
  topo->cores[0].allowed = topo->cores[1].allowed = topo->cores[2].allowed = false;
  cr_expect_eq(colli_topo_allowed_cores(topo), 5);
  int cores[5];
  colli_topo_place(topo, 4, cores); /* one rank fits on node 0, the rest must go to node 1 */
  cr_expect_eq(cores[0], 3);
  cr_expect_eq(cores[1], 4);
  cr_expect_eq(cores[2], 5);
  cr_expect_eq(cores[3], 6);
  colli_topo_place(topo, 5, cores);
  cr_expect_eq(cores[4], 7);
  topo->cores[3].allowed = false; /* now node 0 has no core left */
  colli_topo_place(topo, 4, cores);
  for (int r = 0; r < 4; r++)
    cr_expect_eq(cores[r], 4 + r);
  colli_topo_free(topo);
}

Test(place, this_machine_and_binding) {
  colli_topo *topo = load_machine("");
  cr_assert_gt(topo->ncores, 0);
  cr_assert_gt(topo->memory_bytes, 0);
  int allowed = colli_topo_allowed_cores(topo);
  cr_assert_gt(allowed, 0);
  int cores[1];
  colli_topo_place(topo, 1, cores);
  coll_error error = COLL_ERROR_INIT;
  cr_assert_eq(colli_topo_bind(topo, cores[0], &error), COLL_OK, "%s", error.message);
  cr_expect_eq(colli_topo_bound_core(topo), cores[0]);
  cpu_set_t mask;
  cr_assert_eq(sched_getaffinity(0, sizeof(mask), &mask), 0);
  cr_expect(CPU_ISSET(topo->cores[cores[0]].os_index, &mask));
  colli_topo *again = load_machine(""); /* a bound process may use one core */
  cr_expect_eq(colli_topo_allowed_cores(again), 1);
  cr_expect_eq(again->ncores, topo->ncores);
  for (int c = 0; c < topo->ncores; c++)
    if (c != cores[0])
      cr_expect_eq(colli_topo_bind(topo, c, &error), COLL_ERR_INVALID_ARGUMENT);
  colli_topo_free(again);
  colli_topo_free(topo);
}

Test(place, binding_to_a_core_that_is_not_there) {
  colli_topo *topo = load_machine("pu:2");
  coll_error error = COLL_ERROR_INIT;
  cr_expect_eq(colli_topo_bind(topo, -1, &error), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(colli_topo_bind(topo, 2, &error), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_not_null(strstr(error.message, "core 2"), "%s", error.message);
  colli_topo_free(topo);
}

/* Loading must fail with a message that says `what`. */
static void expect_refused(const char *source, const char *what) {
  coll_error error = COLL_ERROR_INIT;
  colli_topo *topo = (colli_topo *)8;
  cr_expect_eq(colli_topo_load(source, &topo, &error), COLL_ERR_INVALID_ARGUMENT, "%s", source);
  cr_expect_null(topo);
  cr_expect_not_null(strstr(error.message, what), "\"%s\" lacks \"%s\"", error.message, what);
}

/* Writes a file and returns its name. */
static const char *write_file(char path[64], const char *text) {
  snprintf(path, 64, "/tmp/test_topo.%d.xml", (int)getpid());
  FILE *file = fopen(path, "w");
  cr_assert_not_null(file);
  fputs(text, file);
  fclose(file);
  return path;
}

Test(topo, bad_sources_are_refused_with_a_reason) {
  char path[64];
  expect_refused("/no/such/machine.xml", "No such file");
  char fifo[] = "/tmp/coll-machine-XXXXXX.xml";
  close(mkstemps(fifo, 4));
  unlink(fifo);
  cr_assert_eq(mkfifo(fifo, 0600), 0);
  expect_refused(fifo, "not a regular file");
  unlink(fifo);
  expect_refused("numa:2 nonsense:3", "numa:2 nonsense:3");
  expect_refused("core", "neither a file");
  expect_refused("core:1000000 pu:1", "more than the 8192 processing units");
  expect_refused("numa:1024 core:64 pu:99999999999999999999", "more than the 8192");
  expect_refused("numa:2 core:0", "a number below 1");
  expect_refused("1000 1000 100", "more than the 8192");
  expect_refused("numa:2(memory=8) 0x10 core:1000", "more than the 8192");
  expect_refused(write_file(path, ""), "not a machine file");
  expect_refused(write_file(path, "no XML at all\n"), "not a machine file");
  expect_refused(write_file(path, "<?xml version=\"1.0\"?>\n<topology version=\"2.0\">\n"),
                 "not a machine file");
  expect_refused(write_file(path, "<?xml version=\"1.0\"?>\n<topology version=\"2.0\">\n"
                                  "</topology>\n"),
                 path);
  unlink(path);
  expect_refused("<?xml version=\"1.0\"?>\n<topology version=\"2.0\">\n",
                 "its XML is not a machine");
}

Test(topo, files_that_crash_hwloc_are_refused_by_name) {
  static const char *const names[] = {"damaged/machine.xml", "damaged/node.xml",
                                      "damaged/unit.xml"};
  char path[512];
  coll_error error = COLL_ERROR_INIT;
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    file_path(path, names[i]);
    expect_refused(path, path);
    expect_refused(path, "coll_topo --xml");
    cr_expect_eq(colli_topo_export(path, stdout, &error), COLL_ERR_INVALID_ARGUMENT);
  }
  /* hwloc's own variable names a file instead of this machine. */
  cr_assert_eq(setenv("HWLOC_XMLFILE", file_path(path, names[0]), 1), 0);
  expect_refused("", path);
  unsetenv("HWLOC_XMLFILE");
  colli_topo_free(load_machine(""));
}

/* Works that do not end well, and one that takes more than there is room for. */
static coll_status loop(const char *source, FILE *out, coll_error *error) {
  (void)source, (void)out, (void)error;
  for (volatile bool more = true; more;)
    ;
  return COLL_OK;
}

static coll_status take_all(const char *source, FILE *out, coll_error *error) {
  (void)source, (void)out, (void)error;
  for (int i = 0; i < 2048; i++) {
    /* A sanitizer would report it if malloc() failed. */
    volatile char *page =
        mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
      abort();
    *page = 1;
  }
  return COLL_OK;
}

static coll_status write_all(const char *source, FILE *out, coll_error *error) {
  static const char block[1 << 16];
  (void)source, (void)error;
  for (int i = 0; i < 2048; i++)
    fwrite(block, sizeof(block), 1, out);
  return COLL_OK;
}

Test(topo, a_child_is_limited) {
  static colli_topo_work *const works[] = {loop, take_all, write_all};
  static const char *const says[] = {"after 0.2 s", "is damaged", "too large"};
  static const int limits_ms[] = {200, 60000, 60000};
  for (size_t i = 0; i < sizeof(works) / sizeof(works[0]); i++) {
    coll_error error = COLL_ERROR_INIT;
    char *bytes;
    size_t nbytes;
    cr_expect_eq(colli_topo_apart(works[i], "some.xml", limits_ms[i], &bytes, &nbytes, &error),
                 COLL_ERR_INVALID_ARGUMENT);
    cr_expect_null(bytes);
    cr_expect_not_null(strstr(error.message, says[i]), "%s", error.message);
    cr_expect_not_null(strstr(error.message, "some.xml"), "%s", error.message);
  }
}

Test(topo, what_a_child_says_is_checked) {
  colli_topo *topo = load_file("power8gpudistances.xml"), *copy;
  char *bytes = NULL;
  size_t nbytes = 0;
  FILE *out = open_memstream(&bytes, &nbytes);
  colli_topo_pack(topo, out);
  fclose(out);
  copy = colli_topo_unpack(bytes, nbytes);
  cr_assert_not_null(copy);
  cr_expect_eq(copy->ncores, 8);
  cr_expect_str_eq(device(copy, "nvml3")->name, "nvml3");
  colli_topo_free(copy);
  cr_expect_null(colli_topo_unpack(bytes, nbytes - 1));
  cr_expect_null(colli_topo_unpack(bytes, 10));
  colli_topo_core *core = (colli_topo_core *)(bytes + sizeof(*topo)); /* malloc()'s alignment */
  core->numa_node = topo->nnuma;
  cr_expect_null(colli_topo_unpack(bytes, nbytes));
  core->numa_node = 0;
  *(unsigned char *)&core->allowed = 2;
  cr_expect_null(colli_topo_unpack(bytes, nbytes));
  *(unsigned char *)&core->allowed = 1;
  /* The places of PCI devices come last, before NVLinks. */
  char *links = bytes + nbytes - (size_t)topo->nnvlinks * sizeof(*topo->nvlinks);
  ((colli_topo_pci *)(void *)links - 1)->kind = COLLI_DEVICE_GPU + 1;
  cr_expect_null(colli_topo_unpack(bytes, nbytes));
  free(bytes);
  colli_topo_free(topo);
}

Test(topo, printing_shows_every_core_and_device) {
  colli_topo *topo = load_file("32em64t-2n8c2t-pci-wholeio.xml");
  topo->cores[3].allowed = false;
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  colli_topo_print(topo, out);
  fclose(out);
  cr_expect_not_null(strstr(text, "packages 2, NUMA nodes 2, cores 16 (15 for this process)"));
  cr_expect_not_null(strstr(text, "cores 0-2,4-7 (not for this process: 3)"), "%s", text);
  cr_expect_not_null(strstr(text, "RDMA mlx5_0 at 0000:04:00.0"), "%s", text);
  cr_expect_not_null(strstr(text, "L3 caches: 2 of 20 MiB"), "%s", text);
  free(text);
  colli_topo_free(topo);
}

Test(host, id_is_stable_and_can_be_set) {
  uint64_t here, again, a, b;
  const uint64_t id = colli_host_id("", &here);
  cr_expect_eq(id, colli_host_id(NULL, &again));
  cr_expect_eq(here, again);
  cr_expect_neq(colli_host_id("a", &a), colli_host_id("b", &b));
  cr_expect_neq(colli_host_id("a", &a), id);
  cr_expect(a != b && a != here, "hosts that are given are machines of their own");
}

Test(host, another_network_namespace_is_another_host_of_the_same_machine) {
  uint64_t machine, same;
  const uint64_t here = colli_host_id("", &machine);
  if (unshare(CLONE_NEWNET) != 0)
    cr_skip_test("needs the right to make a network namespace");
  cr_expect_neq(colli_host_id("", &same), here);
  cr_expect_eq(same, machine);
}

/* Writes a line to folder/index<index>/file, and makes the folders. */
static void write_line(const char *folder, int index, const char *file, const char *line) {
  char path[256];
  mkdir(folder, 0700);
  snprintf(path, sizeof(path), "%s/index%d", folder, index);
  mkdir(path, 0700);
  snprintf(path, sizeof(path), "%s/index%d/%s", folder, index, file);
  FILE *to = fopen(path, "w");
  cr_assert_not_null(to);
  fprintf(to, "%s\n", line);
  fclose(to);
}

/* Writes the description of one cache, as in sysfs. */
static void write_cache(const char *folder, int index, const char *level, const char *type,
                        const char *size, const char *cpus) {
  write_line(folder, index, "level", level);
  write_line(folder, index, "type", type);
  write_line(folder, index, "size", size);
  write_line(folder, index, "shared_cpu_list", cpus);
}

Test(topo, last_level_cache_is_that_of_the_highest_level) {
  char folder[] = "/tmp/coll-cache-XXXXXX", remove[64];
  colli_cache cache = {1, 1};
  cr_assert_not_null(mkdtemp(folder));
  cr_expect_not(colli_cache_read(folder, &cache), "an empty folder describes nothing");
  write_cache(folder, 0, "1", "Data", "48K", "3");
  cr_expect(colli_cache_read(folder, &cache));
  cr_expect_eq(cache.bytes, 48 << 10);
  cr_expect_eq(cache.cpus, 1);
  write_cache(folder, 1, "2", "Instruction", "4096K", "3");
  write_cache(folder, 2, "3", "Unified", "32M", "0-3,64-67,9");
  write_cache(folder, 3, "2", "Unified", "1024K", "3,67");
  cr_expect(colli_cache_read(folder, &cache));
  cr_expect_eq(cache.bytes, 32 << 20);
  cr_expect_eq(cache.cpus, 9);
  write_cache(folder, 4, "4", "Unified", "", "x");
  cr_expect(colli_cache_read(folder, &cache));
  cr_expect_eq(cache.bytes, 32 << 20, "a level that is not described counts for nothing");
  snprintf(remove, sizeof(remove), "rm -r %s", folder);
  cr_expect_eq(system(remove), 0);
}

Test(topo, share_of_the_cache_falls_with_the_ranks) {
  uint64_t one = colli_cache_share(1), online = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
  cr_expect_leq(colli_cache_share((int)online * 1000), one / 1000);
  for (int ranks = 2; ranks < 100; ranks++)
    cr_expect_leq(colli_cache_share(ranks), colli_cache_share(ranks - 1), "%d ranks", ranks);
}
