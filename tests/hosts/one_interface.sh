#!/bin/bash
# Four hosts as network namespaces in one network, in which the second host has two interfaces and the others have one:
# that the first of the two loses everything in silence, for longer than ranks may be silent, in the middle of all-reduces
# is survived, reported, and over when it heals. Needs root and ip; exits 77 (skipped) with a reason where they are missing.
set -u
tag=i$(($$ % 100000))
root=10.86.0.1
. "$SOURCE/tests/hosts/four_hosts.inc"
command -v sysctl >/dev/null || skip "needs sysctl (procps)"

trap 'cleanup; ip link del "c$tag" 2>/dev/null' EXIT

# A cable joins the two networks. What host 2 sends leaves by the interface whose address it has, and each answers for its
# own address only.
set_up() {
  add_networks || return 1
  for i in $hosts; do
    ip netns add "$tag-$i" && ip -n "$tag-$i" link set lo up && plug "$i" 0 10.86.0 || return 1
  done
  ip link add "c$tag" type veth peer name "d$tag" && ip link set "c$tag" master "b0$tag" up &&
    ip link set "d$tag" master "b1$tag" up && plug 2 1 10.86.0 &&
    ip -n "$tag-2" addr del 10.86.0.2/24 dev eth1 && ip -n "$tag-2" addr add 10.86.0.102/24 dev eth1 &&
    ip -n "$tag-2" route add 10.86.0.0/24 dev eth1 table 7 && ip -n "$tag-2" rule add from 10.86.0.102 table 7 &&
    ip netns exec "$tag-2" sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
}
set_up >"$out/setup" 2>&1 || skip "cannot make network namespaces here: $(tail -n 1 "$out/setup")"

start_ranks 60 "$BUILD/bin/coll_topo"
expect "coll_topo runs" all_succeed
expect "it shows both rails" ways "0 to 1" "eth0 10.86.0.1 to 10.86.0.2, eth0 10.86.0.1 to 10.86.0.102"
expect "from the other end, too" ways "1 to 2" "eth0 10.86.0.2 to 10.86.0.3, eth1 10.86.0.102 to 10.86.0.3"
expect "and one between hosts that have one interface each" ways "2 to 3" "eth0 10.86.0.3 to 10.86.0.4"

# Several sockets of each pair of interfaces; each socket of the second host's shares the only one of its peer.
COLL_TCP_SOCKETS=3 start_ranks 60 "$BUILD/bin/coll_topo"
expect "coll_topo runs with several sockets" all_succeed
expect "it shows them" ways "2 to 3" "eth0 10.86.0.3 to 10.86.0.4 (3 sockets)"
expect "not where one interface of several is used" ways "0 to 1" "eth0 10.86.0.1 to 10.86.0.2, eth0 10.86.0.1 to 10.86.0.102"

for tls in 0 1; do
  export COLL_TLS=$tls
  COLL_LOG=info COLL_HEARTBEAT_MS=1000 start_until
  expect "the first interface is used (COLL_TLS=$tls)" await_sent 2 0 8
  expect "the log says that the second one is in reserve" \
    await 20 grep -q "to rank . (channel .*) has 2 rails, 1 of them in reserve" "$out/1"
  cut 2 0 on
  expect "the second one carries on alone for longer than ranks may be silent" await_sent 2 1 60
  expect "that is reported" await 20 grep -q "is degraded: 1 of 2 rails work" "$out/1"
  expect "the log says that a control socket is lost" \
    await 20 grep -q "one of the two control sockets of rank 1 (host .*, 10.86.0.2:.*) and rank .* is lost: no answer for" "$out/1"
  cut 2 0 off
  expect "the first one is used again" await_sent 2 0 8
  expect_survival
done
exit $failed
