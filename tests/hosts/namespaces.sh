#!/bin/bash
# Four hosts as network namespaces, each with a 1 Gbit/s uplink: collectives between them, a killed rank and
# a cut cable. Needs root, ip and tc; exits 77 (skipped) with a reason where they are missing.
set -u
tag=c$(($$ % 100000))
bridge=b$tag
root=10.77.0.1
. "$SOURCE/tests/hosts/four_hosts.inc"

cleanup() {
  remove_hosts
  for i in $hosts; do ip link del "v$tag$i" 2>/dev/null; done
  ip link del "$bridge" 2>/dev/null
  rm -rf "$out"
}
trap cleanup EXIT

set_up() {
  ip link add "$bridge" type bridge && ip addr add 10.77.0.254/24 dev "$bridge" &&
    ip link set "$bridge" up || return 1
  for i in $hosts; do
    ip netns add "$tag-$i" && ip link add "v$tag$i" type veth peer name eth0 netns "$tag-$i" &&
      ip link set "v$tag$i" master "$bridge" up &&
      ip -n "$tag-$i" addr add "10.77.0.$i/24" dev eth0 &&
      ip -n "$tag-$i" link set lo up && ip -n "$tag-$i" link set eth0 up || return 1
    ip netns exec "$tag-$i" tc qdisc add dev eth0 root handle 1: htb default 10 &&
      ip netns exec "$tag-$i" tc class add dev eth0 parent 1: classid 1:10 htb rate 1gbit \
        ceil 1gbit burst 256k cburst 256k || return 1
  done
}
set_up 2>"$out/setup" || skip "cannot make network namespaces here: $(tail -n 1 "$out/setup")"

before=() # bytes by host

# sent HOST: the bytes that it has sent so far.
sent() { cat "/sys/class/net/v$tag$1/statistics/rx_bytes"; }

# has_sent HOST: whether it has sent 32 MiB since start, and so is in the middle of its all-reduces.
has_sent() { [ $(($(sent "$1") - before[$1])) -ge $((32 << 20)) ]; }

# await_traffic: until all hosts have.
await_traffic() {
  for i in $hosts; do
    await 30 has_sent "$i" || { echo "FAILED: host $i has hardly sent anything" && failed=1 && return; }
  done
}

# start PROGRAM...: the ranks.
start() {
  for i in $hosts; do before[i]=$(sent "$i"); done
  start_ranks 60 "$@"
}

start "$BUILD/bin/coll_perf" allreduce -b 4 -e 4M -f 32 -n 5
expect "all-reduce over four hosts ends" all_succeed
expect "every result is right" grep -q "Out of bounds values : 0 OK" "$out/0"
for what in broadcast allgather sendrecv; do
  start "$BUILD/bin/coll_perf" $what -b 4 -e 1M -f 512 -n 3
  expect "$what over four hosts ends" all_succeed
done

start "$BUILD/bin/coll_topo"
expect "coll_topo runs over four hosts" all_succeed
expect "ranks of different namespaces do not share memory" sh -c "! grep -qw shm '$out/0'"

# A killed rank: the others end and name it, as their connections to it close: for silence and the deadline they would
# have to wait for longer than they may run.
COLL_HEARTBEAT_MS=600000 COLL_TIMEOUT_MS=600000 start "$BUILD/bin/coll_perf" allreduce -b 4M -e 4M -n 100000 -c 0
await_traffic
ip netns pids "$tag-3" | xargs -r kill -9
wait
for r in 0 1 3; do
  expect "rank $r blames rank 2 for being lost" grep -q "PEER_LOST.*rank 2 " "$out/$r"
done

# Hosts with only IPv6 addresses.
for i in $hosts; do
  ip -n "$tag-$i" addr flush dev eth0 scope global
  ip -n "$tag-$i" addr add "fd77::$i/64" dev eth0 nodad
done
root=[fd77::1]
start "$BUILD/bin/coll_perf" allreduce -b 4 -e 1M -f 512 -n 3
expect "all-reduce over IPv6 ends" all_succeed
expect "every result over IPv6 is right" grep -q "Out of bounds values : 0 OK" "$out/0"

# A cut cable: no connection closes, so the deadline detects it, and all ranks end with an error.
COLL_TIMEOUT_MS=3000 start "$BUILD/bin/coll_perf" allreduce -b 4M -e 4M -n 1000 -c 0
await_traffic
ip -n "$tag-2" link set eth0 down
ended=1
for p in $pids; do wait "$p" && ended=0; done
expect "a cut cable ends all ranks with an error" [ "$ended" = 1 ]
for r in 0 2 3; do
  expect "rank $r reports the deadline or the loss and names rank 1" \
    grep -qE "(TIMEOUT|PEER_LOST).*rank 1 " "$out/$r"
done
exit $failed
