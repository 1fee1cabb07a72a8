/*
 * test_places.c: where GPUs and network cards are on the machines of this folder. What is expected
 * was read off the files by hand.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/read.h"

static colli_topo *load(const char *name) {
  char path[512];
  coll_error error = COLL_ERROR_INIT;
  colli_topo *topo;
  const char *slash = strrchr(__FILE__, '/');
  snprintf(path, sizeof(path), "%.*s/%s.xml", (int)(slash - __FILE__), __FILE__, name);
  cr_assert_eq(colli_topo_load(path, &topo, &error), COLL_OK, "%s", error.message);
  return topo;
}

/* Places of one kind. */
static int count(const colli_topo *topo, colli_device_kind kind) {
  int found = 0;
  for (int i = 0; i < topo->npci; i++)
    found += topo->pci[i].kind == kind;
  return found;
}

static void expect_counts(const colli_topo *topo, int gpus, int nets, int rdmas) {
  cr_expect_eq(count(topo, COLLI_DEVICE_GPU), gpus);
  cr_expect_eq(count(topo, COLLI_DEVICE_NET), nets);
  cr_expect_eq(count(topo, COLLI_DEVICE_RDMA), rdmas);
  cr_expect_eq(topo->npci, gpus + nets + rdmas);
}

static void expect_nearest(const colli_topo *topo, const char *gpu, const char *want) {
  char text[COLLI_TOPO_NEAREST];
  cr_expect_str_eq(colli_topo_nearest_cards(topo, gpu, text), want, "%s: %s", gpu, text);
}

static void expect_distance(const colli_topo *topo, const char *a, const char *b,
                            colli_pci_distance want) {
  const colli_topo_pci *one = colli_topo_find_pci(topo, a), *other = colli_topo_find_pci(topo, b);
  cr_assert(one != NULL && other != NULL, "%s %s", a, b);
  cr_expect_eq(colli_topo_pci_distance(one, other), want, "%s %s", a, b);
  cr_expect_eq(colli_topo_pci_distance(other, one), want, "%s %s", b, a);
}

/* ---- our own machines ------------------------------------------------------------------------ */

/* Each GPU shares a switch with the card of its number, and nothing but memory with the others. */
Test(places, each_gpu_of_a_dgx_h100_has_a_card_on_its_switch) {
  static const char *const gpus[] = {"0000:1b:00.0", "0000:43:00.0", "0000:52:00.0",
                                     "0000:61:00.0", "0000:9d:00.0", "0000:c3:00.0",
                                     "0000:d1:00.0", "0000:df:00.0"};
  static const char *const cards[] = {"0000:18:00.0", "0000:40:00.0", "0000:4f:00.0",
                                      "0000:5e:00.0", "0000:9a:00.0", "0000:c0:00.0",
                                      "0000:ce:00.0", "0000:dc:00.0"};
  colli_topo *topo = load("dgxh100");
  int cores[8];
  expect_counts(topo, 8, 0, 8); /* ConnectX-7 with InfiniBand has class 0207 */
  for (int g = 0; g < 8; g++) {
    char want[64];
    snprintf(want, sizeof(want), "nearest network: mlx5_%d/ib%d (same switch)", g, g);
    expect_nearest(topo, gpus[g], want);
    cr_expect_eq(colli_topo_find_pci(topo, cards[g])->place.numa_node,
                 g / 4);        /* four on each package */
    for (int c = 0; c < 8; c++) /* each switch hangs on a host bridge of its own */
      expect_distance(topo, gpus[g], cards[c],
                      g == c           ? COLLI_PCI_SWITCH
                      : g / 4 == c / 4 ? COLLI_PCI_NODE
                                       : COLLI_PCI_SYSTEM);
  }
  expect_nearest(topo, cards[0], ""); /* it is no GPU */
  expect_nearest(topo, "0000:1c:00.0", "");
  colli_topo_place(topo, 8,
                   cores); /* four cores on each package: the ranks' nodes are their GPUs' */
  for (int r = 0; r < 8; r++)
    cr_expect_eq(topo->cores[cores[r]].numa_node, r / 4);
  colli_topo_free(topo);
}

Test(places, cards_of_two_sockets) {
  colli_topo *topo = load("2socket4nic");
  expect_counts(topo, 0, 4, 0);
  cr_assert_eq(topo->ndevices, 4);
  for (int d = 0; d < 4; d++) {
    char name[8];
    snprintf(name, sizeof(name), "eth%d", d);
    cr_expect_str_eq(topo->devices[d].name, name);
    cr_expect_eq(topo->devices[d].numa_node, d / 2); /* two on each socket */
    cr_expect_eq(topo->devices[d].package, d / 2);
    cr_expect_eq(topo->devices[d].link_mbit, 100000);
  }
  /* each card has a host bridge of its own */
  expect_distance(topo, "0000:11:00.0", "0000:51:00.0", COLLI_PCI_NODE);
  expect_distance(topo, "0000:51:00.0", "0000:91:00.0", COLLI_PCI_SYSTEM);
  colli_topo_free(topo);
}

/* ---- hwloc's machines ------------------------------------------------------------------------ */

Test(places, a_card_below_the_same_bridge_is_nearer_than_one_beside_it) {
  colli_topo *topo = load("32em64t-2n8c2t-pci-wholeio");
  expect_counts(topo, 5, 2, 1); /* three Teslas, a Radeon, the board's display */
  /* The bridge 80:03.0 leads to the InfiniBand card and two GPUs. */
  expect_nearest(topo, "0000:84:00.0", "nearest network: ib0/mlx5_0 (same switch)");
  expect_nearest(topo, "0000:84:00.1", "nearest network: ib0/mlx5_0 (same switch)");
  /* It is alone below 80:02.0; the cards are below 80:01.0 and 80:03.0. */
  expect_nearest(topo, "0000:83:00.0",
                 "nearest network: eth0, eth1, ib0/mlx5_0 (same host bridge)");
  /* On node 0, which has no card. */
  expect_nearest(topo, "0000:03:00.0",
                 "nearest network: eth0, eth1, ib0/mlx5_0 (another NUMA node)");
  expect_distance(topo, "0000:84:00.0", "0000:81:00.1", COLLI_PCI_HOST_BRIDGE);
  expect_distance(topo, "0000:81:00.0", "0000:81:00.1", COLLI_PCI_SWITCH); /* two ports of one */
  colli_topo_free(topo);
}

Test(places, a_display_counts_as_a_gpu) {
  colli_topo *topo = load("96em64t-4n4d3ca2co-pci");
  expect_counts(topo, 1, 8, 0); /* two ports on each of four nodes */
  /* It is below 00:1e.0, the first node's ports are below 00:1c.0. */
  expect_nearest(topo, "0000:01:00.0", "nearest network: eth0, eth1 (same host bridge)");
  expect_distance(topo, "0000:02:00.0", "0000:32:00.0", COLLI_PCI_SYSTEM);
  colli_topo_free(topo);
}

/*
 * The file has the GPUs and NVSwitches of the machine, but none of its cards, so no GPU has a
 * nearest one. Each package has two host bridges with four GPUs each, all below one switch: that of
 * 2b:00.0 leads over the ports 2d:04.0 and 2d:0c.0 to two more switches, with 34:00.0 and 36:00.0,
 * 39:00.0 and 3b:00.0. All four share the first switch, so "same switch" holds for each pair.
 */
Test(places, gpus_of_a_dgx2_are_in_four_trees_of_switches) {
  static const char *const gpus[] = {
      "0000:34:00.0", "0000:36:00.0", "0000:39:00.0", "0000:3b:00.0",
      "0000:57:00.0", "0000:59:00.0", "0000:5c:00.0", "0000:5e:00.0",
      "0000:b7:00.0", "0000:b9:00.0", "0000:bc:00.0", "0000:be:00.0",
      "0000:e0:00.0", "0000:e2:00.0", "0000:e5:00.0", "0000:e7:00.0"};
  colli_topo *topo = load("nvidiaDGX2");
  expect_counts(topo, 16, 0, 0);
  for (int a = 0; a < 16; a++) {
    expect_nearest(topo, gpus[a], "");
    cr_expect_eq(colli_topo_find_pci(topo, gpus[a])->place.numa_node, a / 8); /* eight a package */
    for (int b = 0; b < 16; b++)
      if (a != b)
        expect_distance(topo, gpus[a], gpus[b],
                        a / 4 == b / 4   ? COLLI_PCI_SWITCH
                        : a / 8 == b / 8 ? COLLI_PCI_NODE
                                         : COLLI_PCI_SYSTEM);
  }
  colli_topo_free(topo);
}

Test(places, gpus_of_a_power8_have_host_bridges_of_their_own) {
  colli_topo *topo = load("power8gpudistances");
  expect_counts(topo, 4, 0, 0); /* their cards were left out of the file */
  expect_nearest(topo, "0002:01:00.0", "");
  /* Each is in a PCI domain of its own, two are on each node. */
  expect_distance(topo, "0002:01:00.0", "0003:01:00.0", COLLI_PCI_NODE);
  expect_distance(topo, "0003:01:00.0", "000a:01:00.0", COLLI_PCI_SYSTEM);
  colli_topo_free(topo);
}

/* ---- NVLinks: what "lstopo --distances -i FILE" shows as NVLinkBandwidth, in MB/s -------------
 */

static void expect_nvlinks(const colli_topo *topo, int device, const char *want) {
  char text[COLLI_TOPO_NVLINKS];
  cr_expect_str_eq(colli_topo_nvlinks_text(topo, device, text), want, "%s: %s",
                   topo->devices[device].name, text);
}

/*
 * A V100 has six NVLinks of 25 GB/s (200 Gbit/s) each way, and each goes to another of the six
 * switches of its board: 6 x 200 Gbit/s. A board has eight GPUs, nvml0 to nvml7 and nvml8 to
 * nvml15. The switches of both boards are linked as well, but the matrix does not have that, so
 * nothing is known between boards.
 */
Test(places, nvlinks_of_a_dgx2_go_to_the_six_switches_of_a_board) {
  colli_topo *topo = load("nvidiaDGX2");
  cr_assert_eq(topo->ndevices, 16);
  cr_expect_eq(topo->nnvlinks, 16 * 6);
  for (int a = 0; a < 16; a++) {
    expect_nvlinks(topo, a, "NVLinks: 1200 Gbit/s to 6 switches");
    for (int b = 0; b < 16; b++) {
      cr_expect_eq(colli_topo_nvlink_direct(topo, a, b), 0);
      cr_expect_eq(colli_topo_nvlink_switched(topo, a, b), a / 8 == b / 8 ? 1200000 : 0, "%d %d", a,
                   b);
    }
  }
  colli_topo_free(topo);
}

/*
 * A P100 has four NVLinks of 20 GB/s (160 Gbit/s) each way: two go to the other GPU of its socket,
 * and two to the processor, which has NVLinks on POWER8. The matrix has 40000 MB/s for two. Its
 * diagonal, a GPU with itself, is no link.
 */
Test(places, nvlinks_of_a_power8_go_to_the_other_gpu_and_to_the_processor) {
  static const char *const want[] = {"NVLinks: 320 Gbit/s to nvml1, 320 Gbit/s to package 0",
                                     "NVLinks: 320 Gbit/s to nvml0, 320 Gbit/s to package 0",
                                     "NVLinks: 320 Gbit/s to nvml3, 320 Gbit/s to package 1",
                                     "NVLinks: 320 Gbit/s to nvml2, 320 Gbit/s to package 1"};
  colli_topo *topo = load("power8gpudistances");
  cr_assert_eq(topo->ndevices, 4);
  for (int a = 0; a < 4; a++) {
    expect_nvlinks(topo, a, want[a]);
    for (int b = 0; b < 4; b++)
      cr_expect_eq(colli_topo_nvlink_direct(topo, a, b), a != b && a / 2 == b / 2 ? 320000 : 0);
  }
  colli_topo_free(topo);
}

/* What a child that read a file says of NVLinks is checked: they come last. */
Test(places, nvlinks_that_cannot_be_are_not_believed) {
  colli_topo *topo = load("power8gpudistances"), *copy;
  char *bytes = NULL;
  size_t nbytes = 0;
  FILE *out = open_memstream(&bytes, &nbytes);
  colli_topo_pack(topo, out);
  fclose(out);
  colli_topo_nvlink *link = (colli_topo_nvlink *)(void *)(bytes + nbytes) - topo->nnvlinks;
  const colli_topo_nvlink good = *link, bad[] = {{topo->ndevices, good.end, good.to, good.mbit},
                                                 {-1, good.end, good.to, good.mbit},
                                                 {0, good.end, topo->ndevices, good.mbit},
                                                 {0, good.end, -1, good.mbit},
                                                 {0, good.end, 0, good.mbit},
                                                 {0, COLLI_NVLINK_PACKAGE, 2, good.mbit},
                                                 {0, COLLI_NVLINK_OTHER + 1, -1, good.mbit},
                                                 {0, good.end, good.to, -1}};
  colli_topo_free(copy = colli_topo_unpack(bytes, nbytes));
  cr_assert_not_null(copy);
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    *link = bad[i];
    cr_expect_null(colli_topo_unpack(bytes, nbytes), "%zu", i);
  }
  free(bytes);
  colli_topo_free(topo);
}

/* A GPU that a matrix has as cuda0 and as nvml0 has each link once, and none to itself. */
Test(places, nvlinks_count_once_and_are_so_many) {
  colli_topo_nvlink links[COLLI_TOPO_NVLINKS_MOST];
  colli_topo topo = {.ndevices = 2, .nvlinks = links};
  for (int name = 0; name < 2; name++) {
    cr_expect_eq(colli_topo_add_nvlink(&topo, (colli_topo_nvlink){0, COLLI_NVLINK_GPU, 0, 8}),
                 COLL_OK);
    cr_expect_eq(colli_topo_add_nvlink(&topo, (colli_topo_nvlink){0, COLLI_NVLINK_GPU, 1, 8}),
                 COLL_OK);
  }
  cr_expect_eq(topo.nnvlinks, 1);
  cr_expect_eq(colli_topo_nvlink_direct(&topo, 0, 1), 8);
  for (int i = 1; i < COLLI_TOPO_NVLINKS_MOST; i++)
    cr_expect_eq(colli_topo_add_nvlink(&topo, (colli_topo_nvlink){1, COLLI_NVLINK_SWITCH, i, 8}),
                 COLL_OK);
  cr_expect_eq(colli_topo_add_nvlink(&topo, (colli_topo_nvlink){1, COLLI_NVLINK_SWITCH, 0, 8}),
               COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(topo.nnvlinks, COLLI_TOPO_NVLINKS_MOST);
}

Test(places, nvlinks_to_what_is_no_gpu_or_switch) {
  colli_topo_device devices[] = {{.kind = COLLI_DEVICE_GPU, .name = "nvml0"},
                                 {.kind = COLLI_DEVICE_NET, .name = "eth0"}};
  colli_topo_nvlink links[] = {{0, COLLI_NVLINK_OTHER, -1, 8000},
                               {0, COLLI_NVLINK_SWITCH, 4, 200000}};
  const colli_topo topo = {.ndevices = 2, .devices = devices, .nnvlinks = 2, .nvlinks = links};
  expect_nvlinks(&topo, 0, "NVLinks: 200 Gbit/s to 1 switch, 8 Gbit/s to other devices");
  expect_nvlinks(&topo, 1, "");
}

/* A card that appears as 64 (SR-IOV): the reason is there, whatever is left out. */
Test(places, of_many_equal_cards_some_are_named) {
  enum { CARDS = 64 };
  colli_topo_pci pci[CARDS + 1] = {
      {.kind = COLLI_DEVICE_GPU, .place = {.nbridges = 2, .bridges = {1, 2}}}};
  strcpy(pci[0].bus, "0000:01:00.0");
  for (int i = 1; i <= CARDS; i++) {
    pci[i] = pci[0];
    pci[i].kind = COLLI_DEVICE_NET;
    snprintf(pci[i].bus, sizeof(pci[i].bus), "0000:02:%02x.%d", i / 8, i % 8);
  }
  const colli_topo topo = {.npci = CARDS + 1, .pci = pci};
  expect_nearest(&topo, "0000:01:00.0",
                 "nearest network: 0000:02:00.1, 0000:02:00.2, 0000:02:00.3, 0000:02:00.4, "
                 "0000:02:00.5, 0000:02:00.6, 0000:02:00.7, 0000:02:01.0 and 56 more "
                 "(same switch)");
}
