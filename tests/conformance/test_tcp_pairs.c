/* test_tcp_pairs.c: which pairs of interfaces the TCP transport makes rails of, in which order. */
#include "tcp_blob.h"

/* Gives each address of a blob an interface of its own. */
static tcp_blob with_nics(tcp_blob blob, uint32_t first) {
  for (uint32_t i = 0; i < blob.count; i++)
    blob.addrs[i].scope = first + i;
  return blob;
}

Test(tcp_pairs, pairs_of_one_subnet_come_first) {
  tcp_blob here = with_nics(blob_of(1, "10.1.0.1", "10.2.0.1"), 2);
  tcp_blob there = with_nics(blob_of(2, "10.2.0.9", "10.1.0.9"), 5);
  tcp_pair list[TCP_PAIRS_MAX];
  char text[COLLI_ADDR_TEXT];
  cr_assert_eq(tcp_count_rails(&here, &there), 2);
  cr_assert_eq(tcp_count_rails(&there, &here), 2);
  cr_assert_eq(tcp_pairs(&here, &there, list), 4, "every pair is tried");
  for (int i = 0; i < 2; i++)
    cr_assert_eq(colli_addr_affinity(&list[i].from, &list[i].to), 2, "%s",
                 colli_addr_text(&list[i].to, text));
  cr_assert_neq(list[0].from.scope, list[1].from.scope);
}

/* A host with a card in each of four networks, in the order of a rank on one of two sockets, each
 * of which is near two of them. */
static tcp_blob with_sockets(uint64_t host_id, int socket) {
  tcp_blob blob = {.magic = TCP_BLOB_MAGIC, .host_id = host_id, .count = 4, .sockets = 1};
  for (uint8_t i = 0; i < 4; i++) {
    const uint8_t card = (uint8_t)((i + 2 * socket) % 4);
    const colli_addr addr = {
        .family = 4, .prefix = 24, .ip = {10, card, 0, (uint8_t)host_id}, .scope = 10u + card};
    blob.addrs[i] = addr;
  }
  return blob;
}

Test(tcp_pairs, cards_near_both_ranks_come_first) {
  colli_addr list[TCP_MAX_CANDIDATES];
  tcp_pair pairs[TCP_PAIRS_MAX];
  for (int socket = 0; socket < 2; socket++) {
    const tcp_blob here = with_sockets(1, socket), there = with_sockets(2, socket);
    cr_assert_eq(tcp_candidates(&here, &there, list, TCP_MAX_CANDIDATES), 4);
    cr_expect_eq(list[0].ip[1], 2 * socket);
    cr_assert_geq(tcp_pairs(&here, &there, pairs), 4);
    for (int i = 0; i < 4; i++) { /* the two near ones, then the others, each with its like */
      cr_expect_eq(pairs[i].from.ip[1], (i + 2 * socket) % 4);
      cr_expect_eq(pairs[i].to.ip[1], pairs[i].from.ip[1]);
    }
  }
  /* No card is near both: one that is near the peer, which does not choose. */
  const tcp_blob here = with_sockets(1, 0), there = with_sockets(2, 1);
  (void)tcp_candidates(&here, &there, list, TCP_MAX_CANDIDATES);
  cr_expect_eq(list[0].ip[1], 2);
}

Test(tcp_pairs, an_interface_counts_once_and_hosts_alone_have_none) {
  tcp_blob here = with_nics(blob_of(1, "10.1.0.1", "fd00::1"), 2), same = here;
  tcp_blob there = with_nics(blob_of(2, "10.1.0.9", "10.2.0.9"), 5);
  cr_assert_eq(tcp_count_rails(&here, &there), 2);
  here.addrs[1].scope = here.addrs[0].scope; /* both families on one interface */
  cr_assert_eq(tcp_count_rails(&here, &there), 1);
  cr_assert_eq(tcp_count_rails(&same, &same), 1, "ranks of one host");
  tcp_blob lo = with_nics(blob_of(3, "10.1.0.3", "127.0.0.1"), 2);
  cr_assert_eq(tcp_count_rails(&lo, &there), 1, "loopback leads to no other host");
}

/* Two ranks use the larger number of sockets, but not where all rails share an interface. */
Test(tcp_pairs, several_sockets_of_a_pair) {
  tcp_blob here = with_nics(blob_of(1, "10.1.0.1", NULL), 2);
  tcp_blob there = with_nics(blob_of(2, "10.1.0.9", NULL), 5), same = here;
  here.sockets = 3;
  cr_expect_eq(tcp_count_rails(&here, &there), 3);
  cr_expect_eq(tcp_count_rails(&there, &here), 3);
  cr_expect_eq(tcp_count_rails(&here, &same), 1, "ranks of one host");
  tcp_blob two = with_nics(blob_of(2, "10.1.0.9", "10.2.0.9"), 5);
  cr_expect_eq(tcp_count_sockets(&here, &two), 1);
  tcp_blob others = with_nics(blob_of(1, "10.1.0.1", "10.2.0.1"), 2);
  others.sockets = 4;
  cr_expect_eq(tcp_count_sockets(&two, &others), 4);
  others = with_sockets(1, 0);
  two = with_sockets(2, 0);
  two.sockets = 4;
  cr_expect_eq(tcp_count_sockets(&two, &others), 2, "as many for each pair");
  cr_expect_eq(tcp_count_rails(&two, &others), TCP_RAILS_MAX);
}

/* All rails share the only interface of a host. */
Test(tcp_pairs, one_interface_and_several) {
  tcp_blob here = with_nics(blob_of(1, "10.1.0.1", "fe80::1"), 2);
  tcp_blob there = with_nics(blob_of(2, "10.1.0.9", "10.1.0.8"), 5);
  here.addrs[1].scope = here.addrs[0].scope;
  cr_expect_eq(tcp_count_rails(&here, &there), 2);
  cr_expect_eq(tcp_count_rails(&there, &here), 2);
  here.addrs[0].ip[1] = 7;
  cr_expect_eq(tcp_count_rails(&there, &here), 2, "both are behind a router");
  there.addrs[1].ip[1] = 7;
  cr_expect_eq(tcp_count_rails(&here, &there), 1, "one is in the same subnet, the other is not");
  tcp_blob local = with_nics(blob_of(2, "fe80::8", "fe80::9"), 5);
  cr_expect_eq(tcp_count_rails(&here, &local), 1, "every interface has a link-local address");
}

/* Interfaces of a host that are farther from the other's only one than others make no rails. */
Test(tcp_pairs, far_interfaces_make_none) {
  const tcp_blob one = with_nics(blob_of(1, "10.1.0.1", NULL), 2);
  tcp_blob several = with_nics(blob_of(2, "10.3.0.9", "10.1.0.8"), 5);
  tcp_pair list[TCP_PAIRS_MAX];
  several.addrs[2] = several.addrs[1];
  several.addrs[2].ip[3] = 9;
  several.addrs[2].scope = 7;
  several.count = 3;
  cr_assert_eq(tcp_count_rails(&one, &several), 2);
  cr_assert_eq(tcp_pairs(&one, &several, list), 2);
  for (uint32_t i = 0; i < 2; i++)
    cr_expect_eq(list[i].nic_there, 6 + i);
  cr_assert_eq(tcp_pairs(&several, &one, list), 2);
  for (uint32_t i = 0; i < 2; i++)
    cr_expect_eq(list[i].from.scope, 6 + i);
}

/* Both ranks agree which pair is the best, also where each prefers another one. */
Test(tcp_pairs, both_ranks_have_one_order) {
  const tcp_blob here = with_nics(blob_of(1, "10.1.0.1", "fd01::1"), 2);
  const tcp_blob there = with_nics(blob_of(2, "fd01::9", "10.1.0.9"), 5);
  tcp_pair list[TCP_PAIRS_MAX], seen[TCP_PAIRS_MAX];
  const int count = tcp_pairs(&here, &there, list);
  cr_assert_eq(count, 2);
  cr_assert_eq(tcp_pairs(&there, &here, seen), count);
  for (int i = 0; i < count; i++) {
    cr_expect_eq(seen[i].nic_there, list[i].from.scope);
    cr_expect_eq(seen[i].from.scope, list[i].nic_there);
  }
}

/* Pairs say which interface of the peer's it is, even where its address needs this host's. */
Test(tcp_pairs, pairs_know_the_interfaces_of_the_peer) {
  tcp_blob here = with_nics(blob_of(1, "10.1.0.1", "fe80::1"), 2);
  tcp_blob there = with_nics(blob_of(2, "10.1.0.9", "fe80::9"), 5);
  tcp_pair list[TCP_PAIRS_MAX];
  cr_assert_eq(tcp_pairs(&here, &there, list), 2);
  for (uint32_t i = 0; i < 2; i++) {
    cr_expect_eq(list[i].from.scope, 2 + i);
    cr_expect_eq(list[i].nic_there, 5 + i);
  }
  cr_expect_eq(list[1].to.scope, 3);
}

Test(tcp_pairs, families_are_not_mixed) {
  tcp_blob here = with_nics(blob_of(1, "fd01::1", "10.2.0.1"), 2);
  tcp_blob there = with_nics(blob_of(2, "10.2.0.9", "fd01::9"), 5);
  tcp_blob six = with_nics(blob_of(3, "fd01::5", "fd02::5"), 7);
  tcp_pair list[TCP_PAIRS_MAX];
  const int count = tcp_pairs(&here, &there, list);
  cr_assert_eq(count, 2);
  for (int i = 0; i < count; i++)
    cr_assert_eq(list[i].from.family, list[i].to.family);
  cr_assert_eq(tcp_pairs(&here, &six, list), 2, "IPv6 only");
  cr_assert_eq(colli_addr_affinity(&list[0].from, &list[0].to), 2);
}
