#!/bin/bash
# Four hosts as network namespaces with one interface each: the cable of the second is cut in the middle of all-reduces, for
# less than ranks may be silent, and healed. All go on and their results are right; plain and over TLS. Needs root and ip;
# exits 77 (skipped) with a reason where they are missing.
set -u
tag=h$(($$ % 100000))
root=10.89.0.1
. "$SOURCE/tests/hosts/four_hosts.inc"

trap cleanup EXIT

set_up() {
  add_networks || return 1
  for i in $hosts; do
    ip netns add "$tag-$i" && ip -n "$tag-$i" link set lo up && plug "$i" 0 10.89.0 || return 1
  done
}
set_up >"$out/setup" 2>&1 || skip "cannot make network namespaces here: $(tail -n 1 "$out/setup")"

# unplug on|off: the cable is out of the second host's card, which knows it; or in again.
unplug() { ip link set "v0${tag}2" "$([ "$1" = on ] && echo down || echo up)"; }

# repeats: whether some host has sent the same three times, and there was no answer.
repeats() {
  for i in $hosts; do ip netns exec "$tag-$i" cat /proc/net/tcp /proc/net/tcp6 2>/dev/null; done |
    awk '$1 ~ /^[0-9]+:$/ && $7 >= "00000003" { found = 1 } END { exit !found }'
}

for COLL_TLS in 0 1; do
  export COLL_TLS
  for break in "cut 2 0" unplug; do
    COLL_HEARTBEAT_MS=60000 COLL_TIMEOUT_MS=120000 start_until
    expect "all-reduces begin (COLL_TLS=$COLL_TLS)" await_sent 2 0 8
    $break on
    expect "after '$break' nothing arrives any more" await 60 repeats
    $break off
    expect "they go on when it is healed" await_sent 2 0 24
    expect_survival
    expect "no rank has counted as lost" eval "! grep -qE 'silent|lost|TIMEOUT' $out/[0-3]"
  done
done
exit $failed
