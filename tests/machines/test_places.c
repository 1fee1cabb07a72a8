/*
 * test_places.c: where GPUs and network cards are on the machines of this folder. What is expected
 * was read off the files by hand.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "topology/topology.h"

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
    cr_expect_eq(colli_topo_find_pci(topo, cards[g])->numa_node, g / 4); /* four on each package */
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

Test(places, machines_without_cards_have_no_nearest) {
  colli_topo *topo = load("nvidiaDGX2");
  expect_counts(topo, 16, 0, 0);
  expect_nearest(topo, "0000:34:00.0", "");
  colli_topo_free(topo);
  topo = load("power8gpudistances");
  expect_counts(topo, 4, 0, 0);
  expect_nearest(topo, "0002:01:00.0", "");
  /* Each GPU has a host bridge of its own, two are on each node. */
  expect_distance(topo, "0002:01:00.0", "0003:01:00.0", COLLI_PCI_NODE);
  expect_distance(topo, "0003:01:00.0", "000a:01:00.0", COLLI_PCI_SYSTEM);
  colli_topo_free(topo);
}

/* A card that appears as 64 (SR-IOV): the reason is there, whatever is left out. */
Test(places, of_many_equal_cards_some_are_named) {
  enum { CARDS = 64 };
  colli_topo_pci pci[CARDS + 1] = {{.kind = COLLI_DEVICE_GPU, .nbridges = 2, .bridges = {1, 2}}};
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
