#!/bin/bash
# Four hosts as network namespaces with two network interfaces each: both are used, and a cut of the second one in the
# middle of all-reduces is survived, reported, and over when it heals; plain and over TLS. Needs root, ip and tc; exits
# 77 (skipped) with a reason where they are missing.
set -u
tag=r$(($$ % 100000))
root=10.80.0.1
. "$SOURCE/tests/hosts/four_hosts.inc"

cleanup() {
  remove_hosts
  for n in 0 1; do
    for i in $hosts; do ip link del "v$n$tag$i" 2>/dev/null; done
    ip link del "b$n$tag" 2>/dev/null
  done
  rm -rf "$out"
}
trap cleanup EXIT

set_up() {
  for n in 0 1; do ip link add "b$n$tag" type bridge && ip link set "b$n$tag" up || return 1; done
  for i in $hosts; do
    ip netns add "$tag-$i" && ip -n "$tag-$i" link set lo up || return 1
    for n in 0 1; do
      ip link add "v$n$tag$i" type veth peer name eth$n netns "$tag-$i" &&
        ip link set "v$n$tag$i" master "b$n$tag" up &&
        ip -n "$tag-$i" addr add "10.8$n.0.$i/24" dev eth$n && ip -n "$tag-$i" link set eth$n up &&
        ip netns exec "$tag-$i" tc qdisc add dev eth$n root handle 1: htb default 10 r2q 100 &&
        ip netns exec "$tag-$i" tc class add dev eth$n parent 1: classid 1:10 htb rate 200mbit \
          ceil 200mbit burst 64k cburst 64k || return 1
    done
  done
}
set_up >"$out/setup" 2>&1 || skip "cannot make network namespaces here: $(tail -n 1 "$out/setup")"

# sent INTERFACE: the bytes that host 2 has sent there.
sent() { cat "/sys/class/net/v$1${tag}2/statistics/rx_bytes"; }

# has_sent INTERFACE BYTES: whether host 2 has sent so much there.
has_sent() { [ "$(sent "$1")" -ge "$2" ]; }

# await_sent INTERFACE MIB: until host 2 has sent so much more there.
await_sent() { await 60 has_sent "$1" $(($(sent "$1") + ($2 << 20))); }

for tls in 0 1; do
  before0=$(sent 0) before1=$(sent 1)
  COLL_TLS=$tls start_ranks 400 "$BUILD/bin/coll_perf" allreduce -b 4M -e 4M -n 5
  expect "all-reduce over two interfaces ends (COLL_TLS=$tls)" all_succeed
  expect "every result is right" grep -q "Out of bounds values : 0 OK" "$out/0"
  both0=$(($(sent 0) - before0)) both1=$(($(sent 1) - before1))
  # A busy machine holds one up more than the other; the benchmark shows how even it is on a quiet one.
  expect "each carries more than a quarter ($both0 and $both1 bytes)" \
    [ $((both1 * 3)) -gt $both0 -a $((both0 * 3)) -gt $both1 ]

  COLL_TLS=$tls start_ranks 400 "$BUILD/bin/coll_perf" allreduce -b 4M -e 4M -n 60
  expect "the second interface is used" await_sent 1 8
  ip -n "$tag-2" link set eth1 down
  expect "the first one carries on alone" await_sent 0 24
  expect "that is reported" grep -q "is degraded: 1 of 2 rails work" "$out/1"
  ip -n "$tag-2" link set eth1 up
  expect "the second one is used again" await_sent 1 8
  expect "all-reduces during the cut succeed" all_succeed
  expect "their results are right" grep -q "Out of bounds values : 0 OK" "$out/0"
done
exit $failed
