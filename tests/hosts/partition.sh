#!/bin/bash
# A cut network makes no second communicator: two switches with two hosts each, which are network namespaces, and the
# cable between the switches taken away while ranks make all-reduces. Needs root and ip; exits 77 (skipped) with a
# reason where they are missing.
set -u
skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" = 0 ] || skip "needs root to make network namespaces"
command -v ip >/dev/null || skip "needs ip (iproute2)"
unset ASAN_OPTIONS LSAN_OPTIONS
. "$SOURCE/tests/common/await.inc"

tag=p$(($$ % 100000))
out=$(mktemp -d)
failed=0

cleanup() {
  for i in 1 2 3 4; do
    ip netns pids "$tag-$i" 2>/dev/null | xargs -r kill -9 2>/dev/null
    ip netns del "$tag-$i" 2>/dev/null
    ip link del "v$tag$i" 2>/dev/null # sockets with unsent data keep a deleted namespace alive for a while
  done
  ip link del "c$tag" 2>/dev/null
  for switch in 1 2; do ip link del "s$tag$switch" 2>/dev/null; done
  rm -rf "$out"
}
trap cleanup EXIT

# Hosts 1 and 2 are at switch 1, hosts 3 and 4 at switch 2; the cable between them is c$tag.
set_up() {
  for switch in 1 2; do
    ip link add "s$tag$switch" type bridge && ip link set "s$tag$switch" up || return 1
  done
  ip link add "c$tag" type veth peer name "d$tag" && ip link set "c$tag" master "s${tag}1" up &&
    ip link set "d$tag" master "s${tag}2" up || return 1
  for i in 1 2 3 4; do
    ip netns add "$tag-$i" && ip link add "v$tag$i" type veth peer name eth0 netns "$tag-$i" &&
      ip link set "v$tag$i" master "s$tag$(((i + 1) / 2))" up &&
      ip -n "$tag-$i" addr add "10.79.0.$i/24" dev eth0 &&
      ip -n "$tag-$i" link set lo up && ip -n "$tag-$i" link set eth0 up || return 1
  done
}
set_up 2>"$out/setup" || skip "cannot make network namespaces here: $(tail -n 1 "$out/setup")"

secret=$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n')
port=23456
pids=

# start NAME HOST...: one rank on each of the hosts, in the background; rank R's output in $out/NAME.R.
start() {
  local name=$1 rank=0
  shift
  port=$((port + 1))
  for host in "$@"; do
    : >"$out/$name.$rank"
    COLL_RANK=$rank COLL_NRANKS=$# COLL_ROOT=10.79.0.$1:$port COLL_SECRET=$secret COLL_CREATE_TIMEOUT_MS=5000 \
      timeout -k 1 200 ip netns exec "$tag-$host" "$BUILD/tests/hosts_survivor" >>"$out/$name.$rank" 2>&1 &
    pids="$pids $!"
    rank=$((rank + 1))
  done
}

# expect NAME.RANK LINE: what that rank says last on standard output.
expect() {
  if grep -qx "$2" "$out/$1"; then
    echo "ok: $1 $2"
  else
    echo "FAILED: $1 does not say '$2':"
    tail -n 5 "$out/$1"
    failed=1
  fi
}

export COLL_TIMEOUT_MS=600000 # longer than they may run: silence alone ends operations
start halves 1 2 3 4
start minority 3 1 2
start two_each 1 1 3 3
start majority 4 1 2 3 3
COLL_HEARTBEAT_MS=5000 COLL_SHRINK_QUORUM=reachable start reachable 1 2 3 4
COLL_HEARTBEAT_MS=200 start quick 1 2 3 4
# All run: each says so when its first all-reduce is over.
all_run() { [ "$(cat "$out"/*.[0-9] | grep -cx running)" = 24 ]; }
await 60 all_run || { echo "FAILED: not all ranks run"; failed=1; }
ip link set "c$tag" down
for p in $pids; do wait "$p"; done
ip link set "c$tag" up # or sockets with unsent data would keep the hosts alive

for rank in 0 1; do
  expect halves.$rank "continues: 2 ranks"
  expect two_each.$rank "continues: 2 ranks"
  expect quick.$rank "continues: 2 ranks"
  expect reachable.$rank "continues: 2 ranks"
done
for rank in 2 3; do
  expect halves.$rank "ends: COLL_ERR_TIMEOUT"
  expect two_each.$rank "ends: COLL_ERR_TIMEOUT"
  expect reachable.$rank "continues: 2 ranks"
done
# Rank 0 is alone on its side, or among the fewer.
expect minority.0 "ends: COLL_ERR_TIMEOUT"
for rank in 1 2; do expect minority.$rank "continues: 2 ranks"; done
for rank in 1 2; do expect majority.$rank "ends: COLL_ERR_TIMEOUT"; done
for rank in 0 3 4; do expect majority.$rank "continues: 3 ranks"; done
grep -qE 'rank [23] \(host .*\) is silent' "$out"/halves.[01] || { echo "FAILED: nobody says who is silent"; failed=1; }

# Ranks whose hosts are asked more often notice it earlier.
noticed() { sed -n 's/^failed at: //p' "$out/$1".[0-3] | sort -n; }
awk -v quick="$(noticed quick | tail -n 1)" -v slow="$(noticed reachable | head -n 1)" 'BEGIN {
    print "the last quick rank notices it " slow - quick " s before the first slow one"
    exit !(quick > 0 && quick + 0 < slow + 0)
  }' || { echo "FAILED: quick ranks are not the first"; failed=1; }
exit $failed
