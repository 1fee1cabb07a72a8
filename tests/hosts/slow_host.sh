#!/bin/bash
# Four hosts as network namespaces, one of which has a slower link, both ways: where its speed is declared or measured, it
# sends and receives a long vector once in an all-reduce, and not one and a half times. Needs root, ip and tc; exits 77
# (skipped) with a reason where they are missing.
set -u
tag=w$(($$ % 100000))
root=10.83.0.1
. "$SOURCE/tests/hosts/four_hosts.inc"

trap cleanup EXIT

# limit MBIT DEVICE COMMAND...: how much a device can send; COMMAND runs tc there.
limit() {
  "${@:3}" tc qdisc add dev "$2" root handle 1: htb default 10 r2q 100 &&
    "${@:3}" tc class add dev "$2" parent 1: classid 1:10 htb rate "$1"mbit ceil "$1"mbit burst 64k cburst 64k
}

set_up() {
  add_networks || return 1
  for i in $hosts; do
    ip netns add "$tag-$i" && ip -n "$tag-$i" link set lo up && plug "$i" 0 10.83.0 || return 1
    limit $([ "$i" = 3 ] && echo 100 || echo 400) eth0 ip netns exec "$tag-$i" || return 1
  done
  limit 100 "v0${tag}3" env
}
set_up >"$out/setup" 2>&1 || skip "cannot make network namespaces here: $(tail -n 1 "$out/setup")"

# moved KIND: the bytes that the slow host has sent (rx, as the bridge sees it) or received (tx).
moved() { cat "/sys/class/net/v0${tag}3/statistics/$1_bytes"; }

# count WHAT SPEEDS: all-reduces of 2 MiB with COLL_LINK_SPEED as the shell command SPEEDS sets it; what the slow host
# has sent and received is in $sent and $received.
count() {
  sent=$(moved rx) received=$(moved tx)
  COLL_LOG=info start_ranks 300 sh -c "$2; exec \"\$@\"" sh "$BUILD/bin/coll_perf" allreduce -b 2M -e 2M -w 1 -n 5
  expect "all-reduces end ($1)" all_succeed
  expect "every result is right" grep -q "Out of bounds values : 0 OK" "$out/0"
  sent=$(($(moved rx) - sent)) received=$(($(moved tx) - received))
}

# is_less A B: A is at most 3/4 of B; two thirds are expected, and headers.
is_less() { [ $((4 * $1)) -le $((3 * $2)) ]; }

count "unknown speeds" "unset COLL_LINK_SPEED"
sent_ring=$sent received_ring=$received
count "declared speeds" "COLL_LINK_SPEED=400mbit; [ \$COLL_RANK = 2 ] && COLL_LINK_SPEED=100mbit; export COLL_LINK_SPEED"
expect "the slow host sends its vector once ($sent instead of $sent_ring bytes)" is_less "$sent" "$sent_ring"
expect "the slow host gets the result once ($received instead of $received_ring bytes)" is_less "$received" "$received_ring"

expect "that is explained" grep -q "shares of hosts in all-reduces: 1 1 0 1" "$out/0"

count "declared speeds, in racks" "COLL_LINK_SPEED=400mbit COLL_LEVELS=rack\$((COLL_RANK / 2))
  [ \$COLL_RANK = 2 ] && COLL_LINK_SPEED=100mbit; export COLL_LINK_SPEED COLL_LEVELS"
expect "so it does in a rack ($sent instead of $sent_ring bytes)" is_less "$sent" "$sent_ring"
expect "and gets the result once ($received instead of $received_ring bytes)" is_less "$received" "$received_ring"

# One rank asks, and all measure. That takes a few MiB, so only the last kind of bytes is compared.
count "measured speeds" "[ \$COLL_RANK != 1 ] || export COLL_LINK_SPEED=measure"
grep "Mbit/s measured" "$out/0" >"$out/measured"
expect "every host is measured" [ "$(wc -l <"$out/measured")" = 4 ]
# Load makes links slower, but none faster.
expect "the slow host is found to be the slowest" \
  [ "$(sort -n -k 9,9 "$out/measured" | head -n 1)" = "$(sed -n 3p "$out/measured")" ]
expect "it is as slow as it is" awk 'NR == 3 && $9 > 160 { exit 1 }' "$out/measured"
expect "the slow host then sends less than a ring's part ($sent instead of $sent_ring bytes)" [ "$sent" -lt "$sent_ring" ]

COLL_LOG=info COLL_LINK_SPEED=measure start_ranks 120 "$BUILD/tests/hosts_parts"
expect "communicators made from a measured one give right results" all_succeed
expect "hosts are measured once" [ "$(grep -c "Mbit/s measured" "$out/0")" = 4 ]
expect "what is left after a shrink has shares, too" [ "$(grep -c "shares of hosts in all-reduces:" "$out/0")" = 2 ]

# shares HOSTS: how often rank 0 has said which shares so many hosts have.
shares() { grep -c -E "shares of hosts in all-reduces:( [0-9]+){$1} [(]" "$out/0"; }

# A host joins that has not measured: all do without shares until it leaves. Nothing is measured again.
COLL_LOG=info COLL_LINK_SPEED=measure start_ranks 120 "$BUILD/tests/hosts_parts" "$out/id"
expect "a measured communicator and one that has grown from it give right results" all_succeed
expect "three hosts are measured, once" [ "$(grep -c "Mbit/s measured" "$out/0")" = 3 ]
expect "the three have shares before the fourth joins, and after it has left" [ "$(shares 3)" = 2 ]
expect "the four have none" [ "$(shares 4)" = 0 ]

# The speed of the one that joins is known.
COLL_LOG=info start_ranks 120 sh -c 'speed=measure; [ $COLL_RANK != 3 ] || speed=400mbit; COLL_LINK_SPEED=$speed exec "$@"' \
  sh "$BUILD/tests/hosts_parts" "$out/known"
expect "a host joins whose speed is declared, and results are right" all_succeed
expect "the four have shares, too" [ "$(shares 4)" = 1 ]
expect "the three have some before and after that" [ "$(shares 3)" = 2 ]

start_ranks 60 env COLL_LINK_SPEED=fast "$BUILD/bin/coll_perf" allreduce -b 8 -e 8
wait
expect "a speed that is none is refused" grep -q "COLL_LINK_SPEED=fast: it takes the speed" "$out/2"
exit $failed
