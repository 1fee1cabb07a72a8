#!/bin/bash
# Four hosts as network namespaces with two network interfaces each: both are used, also over IPv6 and if one is slower.
# That one of them goes down, or loses everything in silence for longer than ranks may be silent, in the middle of
# all-reduces is survived, reported, and over when it heals; plain and over TLS. Needs root, ip and tc; exits 77
# (skipped) with a reason where they are missing.
set -u
tag=r$(($$ % 100000))
root=10.80.0.1
. "$SOURCE/tests/hosts/four_hosts.inc"

trap cleanup EXIT

# set_speed HOST INTERFACE MBIT: what it can send there.
set_speed() {
  ip netns exec "$tag-$1" tc class replace dev eth"$2" parent 1: classid 1:10 htb rate "$3"mbit ceil "$3"mbit \
    burst 64k cburst 64k
}

set_up() {
  add_networks || return 1
  for i in $hosts; do
    ip netns add "$tag-$i" && ip -n "$tag-$i" link set lo up || return 1
    for n in 0 1; do
      plug "$i" $n "10.8$n.0" &&
        ip netns exec "$tag-$i" tc qdisc add dev eth$n root handle 1: htb default 10 r2q 100 &&
        set_speed "$i" $n 200 || return 1
    done
  done
}
set_up >"$out/setup" 2>&1 || skip "cannot make network namespaces here: $(tail -n 1 "$out/setup")"

# shows_lost RANK: collctl shows that this rank has lost its second rails, -1: that nobody has lost any.
shows_lost() {
  local pid
  pid=$(ip netns pids "$tag-2") && "$BUILD/bin/collctl" dump "$pid" --json >"$out/json" 2>&1 &&
    "$BUILD/bin/collctl" "$pid" --prometheus >"$out/metrics" 2>&1 &&
    "$SOURCE/tests/collctl/read_output.py" rails "$out/json" "$out/metrics" "$1" 2>"$out/read"
}

# names_lost: collctl names the lost rails of host 2 in words.
names_lost() {
  "$BUILD/bin/collctl" show "$(ip netns pids "$tag-2")" >"$out/show"
  grep -q "^rank 1 of the job (host .*, pid .*) has lost rails: [1-9] of [1-9] to rank 0 (host .*), .*; look at" "$out/show" &&
    grep -q "^rank 0 of the job .* has lost rails: [1-9] of [1-9] to rank 1 (host [^,]*); look at" "$out/show"
}

# count_rails WHAT: an all-reduce over both; what each has carried is in $both0 and $both1.
count_rails() {
  local before0 before1
  before0=$(sent 2 0) before1=$(sent 2 1)
  start_ranks 400 "$BUILD/bin/coll_perf" allreduce -b 4M -e 4M -n 5
  expect "all-reduce over two interfaces ends ($1)" all_succeed
  expect "every result is right" grep -q "Out of bounds values : 0 OK" "$out/0"
  both0=$(($(sent 2 0) - before0)) both1=$(($(sent 2 1) - before1))
}

# expect_even: each has carried more than a quarter. (A busy machine holds one up more than the other; the benchmark
# shows how even it is on a quiet one.)
expect_even() {
  expect "each carries more than a quarter ($both0 and $both1 bytes)" \
    [ $((both1 * 3)) -gt $both0 -a $((both0 * 3)) -gt $both1 ]
}

# carries_less: while the first one carries 24 MiB, the second one carries less than a tenth of that.
carries_less() {
  local before0 before1
  before0=$(sent 2 0) before1=$(sent 2 1)
  await_sent 2 0 24
  [ $((($(sent 2 1) - before1) * 10)) -lt $(($(sent 2 0) - before0)) ]
}

start_ranks 60 "$BUILD/bin/coll_topo"
expect "coll_topo runs" all_succeed
expect "it shows both rails" ways "0 to 1" "eth0 10.80.0.1 to 10.80.0.2, eth1 10.81.0.1 to 10.81.0.2"
expect "of all hosts" ways "2 to 3" "eth0 10.80.0.3 to 10.80.0.4, eth1 10.81.0.3 to 10.81.0.4"
cut 2 1 on
start_ranks 60 "$BUILD/bin/coll_topo" --explain 2,1
expect "coll_topo runs without a rail" all_succeed
for pair in "2 to 1 3 2" "1 to 2 2 3"; do
  read -r from to peer here there <<<"$pair"
  expect "and says from $from which one is lost" grep -qF "from $from $to $peer: tcp: same subnet, 2 rails: eth0 \
10.80.0.$here to 10.80.0.$there, eth1 10.81.0.$here to 10.81.0.$there (not connected); shortest round trip 0." "$out/0"
done
cut 2 1 off

for tls in 0 1; do
  export COLL_TLS=$tls
  count_rails "COLL_TLS=$tls"
  expect_even

  start_until
  expect "the second interface is used" await_sent 2 1 8
  expect "collctl shows the rails, and that none is lost" await 20 shows_lost -1
  ip -n "$tag-2" link set eth1 down
  expect "the first one carries on alone" await_sent 2 0 24
  expect "that is reported" await 20 grep -q "is degraded: 1 of 2 rails work" "$out/1"
  expect "collctl shows which rails are lost, and to whom" await 20 shows_lost 1
  expect "collctl says so in words" names_lost
  ip -n "$tag-2" link set eth1 up
  expect "the second one is used again" await_sent 2 1 8
  expect "collctl shows that none is lost any more" await 20 shows_lost -1
  expect_survival

  COLL_HEARTBEAT_MS=1000 start_until
  expect "the first interface is used" await_sent 2 0 8
  cut 2 0 on
  expect "the second one carries on alone for longer than ranks may be silent" await_sent 2 1 60
  expect "the log says that a control socket is lost" \
    await 20 grep -q "one of the two control sockets of rank 1 (host .*, 10.80.0.2:.*) and rank .* is lost: no answer for 1000 ms" "$out/1"
  cut 2 0 off
  expect "the first one is used again" await_sent 2 0 8
  expect_survival
done

# They begin while the second network is down; so far COLL_TLS is 1.
cut 2 1 on
COLL_LOG=info start_until
expect "the first interface alone is used" await_sent 2 0 8
cut 2 1 off
expect "the second one is used later" await_sent 2 1 8
expect "a second control socket is made later" \
  await 20 grep -q "there are two control sockets of rank 1 .*: .*10.81.0.2.* are connected" "$out/1"
expect_survival

COLL_TLS=0
for i in $hosts; do set_speed "$i" 1 20; done
COLL_LOG=info start_until
expect "the log says that it is slow" await 60 grep -q "the network interface eth1 is slow" "$out/1"
expect "and it soon carries less than a tenth" await 60 carries_less
expect_survival

root=[fd80::1]
for i in $hosts; do
  set_speed "$i" 1 200
  for n in 0 1; do
    ip -n "$tag-$i" addr flush dev eth$n
    ip -n "$tag-$i" addr add "fd8$n::$i/64" dev eth$n nodad
  done
done
count_rails "IPv6"
expect_even
exit $failed
