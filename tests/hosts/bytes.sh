#!/bin/bash
# Two hosts as network namespaces with two ranks each: in an all-reduce each host sends the vector once, however ranks are
# dealt out. Needs root and ip; exits 77 (skipped) with a reason where they are missing.
set -u
tag=y$(($$ % 100000))
root=10.87.0.1
. "$SOURCE/tests/hosts/four_hosts.inc"
hosts="1 2"

trap cleanup EXIT

set_up() {
  add_networks || return 1
  for i in $hosts; do
    ip netns add "$tag-$i" && ip -n "$tag-$i" link set lo up && plug "$i" 0 10.87.0 || return 1
  done
}
set_up >"$out/setup" 2>&1 || skip "cannot make network namespaces here: $(tail -n 1 "$out/setup")"

# count COUNT CALLS: the bytes that each host sends in so many all-reduces of so many float32, and to create the
# communicator, are in $moved; segments of 1448 bytes at most that were sent again, in $again: where acknowledgements are
# late, on a busy machine, TCP asks for them so.
count() {
  local before1 before2
  again=$(repeated $hosts)
  before1=$(payload "/sys/class/net/v0${tag}1" rx) before2=$(payload "/sys/class/net/v0${tag}2" rx)
  start_ranks 120 "$BUILD/tests/hosts_calls" "$1" "$2"
  expect "$2 all-reduces of $1 elements are right (ranks on hosts $hosts_of_ranks)" all_succeed
  moved="$(($(payload "/sys/class/net/v0${tag}1" rx) - before1)) $(($(payload "/sys/class/net/v0${tag}2" rx) - before2))"
  again=$(($(repeated $hosts) - again))
}

# sends_once COUNT CALLS: each host sends each vector once, and 1 % more.
sends_once() {
  count "$1" "$2"
  local least=$((4 * $1 * $2))
  for bytes in $moved; do
    expect "a host sends each vector once ($bytes of $least bytes; $again segments again)" \
      [ $(((bytes - 1448 * again) * 100)) -le $((least * 101)) -a "$bytes" -ge "$least" ]
  done
}

for hosts_of_ranks in "1 1 2 2" "1 2 1 2" "1 2 2 1"; do
  sends_once 4194304 8
  sends_once 262144 100
done
exit $failed
