/* test_verbs_addr.c: which rails of two ranks are paired: both sides get the same answer, whatever
 * the other side has sent. */
#include <criterion/criterion.h>
#include <string.h>

#include "libcoll/base/prng.h"
#include "support_verbs.h"
#include "transports/verbs/verbs_addr.h"

static char why[96];

/* Makes a rail, in the form that is sent, from its addresses; "" for none. */
static verbs_wire_rail wire(verbs_net type, const char *first, int prefix, const char *second) {
  static fake_port port;
  verbs_wire_rail rail = {.type = (uint8_t)type, .mtu = IBV_MTU_4096, .gbit = 100};
  rail.lid = type == VERBS_NET_INFINIBAND ? 7 : 0;
  const char *const addresses[2] = {first, second};
  for (int i = 0; i < 2; i++) {
    if (!*addresses[i])
      continue;
    fake_gid(&port, 0, addresses[i], IBV_GID_TYPE_ROCE_V2);
    memcpy(rail.gid[i], port.gids[0].gid.raw, 16);
    rail.prefix[i] = (uint8_t)prefix;
  }
  return rail;
}

/* Pairs two lists from both sides, which must agree; the pairs of the first. */
static int pair(const verbs_wire_rail *a, int na, const verbs_wire_rail *b, int nb,
                verbs_path paths[VERBS_MAX_RAILS]) {
  verbs_path back[VERBS_MAX_RAILS];
  int count = verbs_paths(a, na, b, nb, paths, why, sizeof(why));
  cr_assert_eq(verbs_paths(b, nb, a, na, back, why, sizeof(why)), count);
  cr_assert_eq(count == 0, *why != 0);
  unsigned used = 0;
  for (int i = 0; i < count; i++) {
    cr_assert_eq(paths[i].mine, back[i].theirs);
    cr_assert_eq(paths[i].theirs, back[i].mine);
    cr_assert_eq(paths[i].my_gid, back[i].their_gid);
    cr_assert_eq(paths[i].their_gid, back[i].my_gid);
    cr_assert_eq(paths[i].mtu, back[i].mtu);
    cr_assert_eq(paths[i].same_subnet, back[i].same_subnet);
    cr_assert_lt(paths[i].mine, na);
    cr_assert_lt(paths[i].theirs, nb);
    cr_assert_not(used & 1u << paths[i].mine);
    used |= 1u << paths[i].mine;
  }
  return count;
}

Test(verbs_addr, infiniband_goes_by_subnet) {
  verbs_path paths[VERBS_MAX_RAILS];
  verbs_wire_rail a = wire(VERBS_NET_INFINIBAND, "fe80::1", 0, ""),
                  b = wire(VERBS_NET_INFINIBAND, "fe80::2", 0, ""),
                  c = wire(VERBS_NET_INFINIBAND, "fec0:0:0:1::3", 0, "");
  b.mtu = IBV_MTU_2048;
  cr_assert_eq(pair(&a, 1, &b, 1, paths), 1);
  cr_assert_eq(paths[0].mtu, IBV_MTU_2048);
  cr_assert(paths[0].same_subnet);
  cr_assert_eq(pair(&a, 1, &c, 1, paths), 0);
  cr_assert_str_eq(why, "different InfiniBand subnets");
  b.lid = 0; /* no subnet manager has set it up */
  cr_assert_eq(pair(&a, 1, &b, 1, paths), 0);
}

Test(verbs_addr, networks_do_not_mix) {
  verbs_path paths[VERBS_MAX_RAILS];
  verbs_wire_rail v2 = wire(VERBS_NET_ROCE_V2, "10.0.0.1", 24, ""),
                  v1 = wire(VERBS_NET_ROCE_V1, "10.0.0.2", 24, ""),
                  ib = wire(VERBS_NET_INFINIBAND, "fe80::1", 0, "");
  cr_assert_eq(pair(&v2, 1, &v1, 1, paths), 0);
  cr_assert_str_eq(why, "InfiniBand, RoCE v1 and v2 do not mix");
  cr_assert_eq(pair(&v2, 1, &ib, 1, paths), 0);
}

Test(verbs_addr, roce_goes_by_family_and_subnet) {
  verbs_path paths[VERBS_MAX_RAILS];
  verbs_wire_rail both = wire(VERBS_NET_ROCE_V2, "10.0.0.1", 24, "2001:db8::1"),
                  v6 = wire(VERBS_NET_ROCE_V2, "2001:db8:1::2", 64, ""),
                  v4 = wire(VERBS_NET_ROCE_V2, "10.0.1.2", 24, "");
  cr_assert_eq(pair(&both, 1, &v6, 1, paths), 1);
  cr_assert_eq(paths[0].my_gid, 1);
  cr_assert_eq(paths[0].their_gid, 0);
  cr_assert_eq(pair(&both, 1, &v4, 1, paths), 1);
  cr_assert_eq(paths[0].my_gid, 0);
  cr_assert_not(paths[0].same_subnet); /* version 2 may be routed */
  cr_assert_eq(pair(&v4, 1, &v6, 1, paths), 0);
  cr_assert_str_eq(why, "no pair of RoCE addresses of one family");
  verbs_wire_rail one = wire(VERBS_NET_ROCE_V1, "10.0.0.1", 24, ""),
                  other = wire(VERBS_NET_ROCE_V1, "10.0.1.2", 24, ""),
                  near = wire(VERBS_NET_ROCE_V1, "10.0.0.9", 24, "");
  cr_assert_eq(pair(&one, 1, &other, 1, paths), 0); /* version 1 may not */
  cr_assert_eq(pair(&one, 1, &near, 1, paths), 1);
  one.prefix[0] = other.prefix[0] = 0; /* unknown subnets: may be reachable */
  cr_assert_eq(pair(&one, 1, &other, 1, paths), 1);
}

/* Rails are paired with those of their own subnet first, otherwise by number. */
Test(verbs_addr, rails_are_paired_by_subnet_then_by_number) {
  verbs_path paths[VERBS_MAX_RAILS];
  verbs_wire_rail a[3] = {wire(VERBS_NET_ROCE_V2, "10.0.0.1", 24, ""),
                          wire(VERBS_NET_ROCE_V2, "10.0.1.1", 24, ""),
                          wire(VERBS_NET_ROCE_V2, "10.0.2.1", 24, "")},
                  b[3] = {wire(VERBS_NET_ROCE_V2, "10.0.1.2", 24, ""),
                          wire(VERBS_NET_ROCE_V2, "10.0.3.2", 24, ""),
                          wire(VERBS_NET_ROCE_V2, "10.0.2.2", 24, "")};
  cr_assert_eq(pair(a, 3, b, 3, paths), 3);
  int partner[3];
  for (int i = 0; i < 3; i++)
    partner[paths[i].mine] = paths[i].theirs;
  cr_assert_eq(partner[0], 1); /* what is left */
  cr_assert_eq(partner[1], 0);
  cr_assert_eq(partner[2], 2);
  cr_assert(paths[0].same_subnet && paths[1].same_subnet && !paths[2].same_subnet);
  cr_assert_eq(pair(a, 3, b, 1, paths), 1);
  cr_assert_eq(paths[0].mine, 1);
}

/* Two ranks of one host have the same rails. */
Test(verbs_addr, equal_rails_pair_with_themselves) {
  verbs_path paths[VERBS_MAX_RAILS];
  verbs_wire_rail a[4];
  for (int i = 0; i < 4; i++)
    a[i] = wire(VERBS_NET_INFINIBAND, "fe80::1", 0, "");
  cr_assert_eq(pair(a, 4, a, 4, paths), 4);
  for (int i = 0; i < 4; i++)
    cr_assert_eq(paths[i].mine, paths[i].theirs);
}

/* Arbitrary bytes: no crash, and both sides agree. */
Test(verbs_addr, random_descriptions) {
  static const char *const addresses[] = {"10.0.0.1", "10.0.0.2", "10.0.1.1", "fe80::1",
                                          "fe80::2",  "",         "fd00::1",  "127.0.0.1",
                                          "::1",      "fd00::2"};
  colli_prng prng = {.state = 7};
  int paired = 0;
  for (int round = 0; round < 20000; round++) {
    verbs_wire_rail side[2][4];
    verbs_path paths[VERBS_MAX_RAILS];
    int count[2];
    for (int s = 0; s < 2; s++) {
      count[s] = (int)colli_prng_below(&prng, 4) + 1;
      for (int i = 0; i < count[s]; i++) {
        side[s][i] = wire((verbs_net)(colli_prng_below(&prng, 3) + 1),
                          addresses[colli_prng_below(&prng, 10)], (int)colli_prng_below(&prng, 256),
                          addresses[colli_prng_below(&prng, 10)]);
        for (int n = (int)colli_prng_below(&prng, 2); n > 0; n--)
          ((uint8_t *)&side[s][i])[colli_prng_below(&prng, sizeof(**side))] =
              (uint8_t)colli_prng_below(&prng, 256);
      }
    }
    paired += pair(side[0], count[0], side[1], count[1], paths);
  }
  cr_assert_gt(paired, 1000);
}

Test(verbs_addr, numbers_out_of_range) {
  verbs_path paths[VERBS_MAX_RAILS];
  verbs_wire_rail a = wire(VERBS_NET_INFINIBAND, "fe80::1", 0, "");
  cr_assert_eq(pair(&a, 1, &a, 0, paths), 0);
  cr_assert_eq(pair(&a, 1, &a, -5, paths), 0);
  cr_assert_eq(pair(&a, 1, &a, VERBS_MAX_RAILS + 1, paths), 0);
  cr_assert_str_eq(why, "one of the ranks has no usable port");
}

/* ---- what becomes of a path ------------------------------------------------------------------ */

Test(verbs_addr, what_a_rail_packs_into) {
  verbs_rail rail = {.link_layer = IBV_LINK_LAYER_ETHERNET, .mtu = IBV_MTU_1024, .ngids = 1};
  rail.mbit = 400000;
  rail.gid[0].type = IBV_GID_TYPE_ROCE_V2;
  rail.gid[0].addr.prefix = 24;
  rail.gid[0].raw.raw[15] = 9;
  verbs_wire_rail packed;
  verbs_wire_pack(&rail, &packed);
  cr_assert_eq(packed.type, VERBS_NET_ROCE_V2);
  cr_assert_eq(packed.gbit, 400);
  cr_assert_eq(packed.prefix[0], 24);
  cr_assert_eq(packed.gid[0][15], 9);
  cr_assert_eq(packed.gid[1][15], 0);
  cr_assert_eq(packed.mtu, IBV_MTU_1024);
  rail.gid[0].type = IBV_GID_TYPE_ROCE_V1;
  verbs_wire_pack(&rail, &packed);
  cr_assert_eq(packed.type, VERBS_NET_ROCE_V1);
  rail.link_layer = IBV_LINK_LAYER_INFINIBAND;
  rail.lid = 77;
  verbs_wire_pack(&rail, &packed);
  cr_assert_eq(packed.type, VERBS_NET_INFINIBAND);
  cr_assert_eq(packed.lid, 77);
}

Test(verbs_addr, address_vectors) {
  verbs_settings settings = fake_settings();
  settings.service_level = 3;
  settings.traffic_class = 104;
  verbs_wire_rail peer = wire(VERBS_NET_ROCE_V2, "10.0.0.1", 24, "fd00::9");
  verbs_rail self = {.link_layer = IBV_LINK_LAYER_ETHERNET, .port = 2, .ngids = 2};
  self.gid[1].index = 200;
  verbs_path path = {.my_gid = 1, .their_gid = 1};
  struct ibv_ah_attr attr;
  verbs_path_address(&self, &settings, &path, &peer, &attr);
  cr_assert_eq(attr.is_global, 1);
  cr_assert_eq(attr.port_num, 2);
  cr_assert_eq(attr.sl, 3);
  cr_assert_eq(attr.grh.sgid_index, 200);
  cr_assert_eq(attr.grh.traffic_class, 104);
  cr_assert_arr_eq(attr.grh.dgid.raw, peer.gid[1], 16);
  self.link_layer = IBV_LINK_LAYER_INFINIBAND;
  peer.lid = 99;
  verbs_path_address(&self, &settings, &path, &peer, &attr);
  cr_assert_eq(attr.is_global, 0);
  cr_assert_eq(attr.dlid, 99);
}

Test(verbs_addr, links_have_costs_and_reasons) {
  verbs_path paths[VERBS_MAX_RAILS];
  verbs_wire_rail a[2] = {wire(VERBS_NET_INFINIBAND, "fe80::1", 0, ""),
                          wire(VERBS_NET_INFINIBAND, "fe80::1", 0, "")};
  coll_link link;
  int count = pair(a, 2, a, 2, paths);
  verbs_paths_link(a, a, paths, count, &link);
  cr_assert_str_eq(link.reason, "InfiniBand, 200 Gbit/s over 2 rails");
  cr_assert_float_eq(link.ns_per_byte, 0.04, 1e-9);
  a[0] = wire(VERBS_NET_ROCE_V2, "10.0.0.1", 24, "");
  a[1] = wire(VERBS_NET_ROCE_V2, "10.0.1.1", 24, "");
  a[0].gbit = 0; /* unknown */
  count = pair(&a[0], 1, &a[1], 1, paths);
  verbs_paths_link(&a[0], &a[1], paths, count, &link);
  cr_assert_str_eq(link.reason, "RoCE v2 between subnets, perhaps routed, 10 Gbit/s over 1 rail");
}
