#!/bin/bash
# Four hosts as network namespaces at two sites, joined by a line of 100 Mbit/s and 10 ms: the sites are found, or declared,
# and an all-reduce then sends each vector over the line once each way, whatever the ranks' order. Needs root, ip, tc and
# /dev/net/tun; exits 77 (skipped) with a reason where they are missing.
set -u
tag=s$(($$ % 100000))
root=10.84.0.1
. "$SOURCE/tests/hosts/four_hosts.inc"
. "$SOURCE/tests/hosts/line.inc"

set_up 10.84.0 >"$out/setup" 2>&1 || skip "cannot make network namespaces here: $(tail -n 1 "$out/setup" "$out/wan" 2>/dev/null)"

# count WHAT OPERATION SETTINGS: operations on 1 MiB with settings that the shell command SETTINGS makes; the bytes that they
# have moved over the line, one way, are in $moved.
count() {
  moved=$(cat "/sys/class/net/l0$tag/statistics/tx_bytes")
  COLL_LOG=info start_ranks 300 sh -c "$3; exec \"\$@\"" sh "$BUILD/bin/coll_perf" "$2" -b 1M -e 1M -w 1 -n 5
  expect "all operations end ($1, $2)" all_succeed
  expect "every result is right" grep -q "Out of bounds values : 0 OK" "$out/0"
  moved=$(($(cat "/sys/class/net/l0$tag/statistics/tx_bytes") - moved))
}

# halved OPERATION: with declared sites, half as much goes over the line, and what else is sent.
halved() {
  count "no sites" "$1" "export COLL_LEVELS=none"
  expect "nothing is measured then ($1)" [ "$(grep -c measured "$out/0")" = 0 ]
  plain=$moved
  count "declared sites" "$1" "export COLL_LEVELS=site\$((COLL_RANK % 2))@100mbit,10ms"
  expect "much less goes over the line ($1: $moved instead of $plain bytes)" [ $((3 * moved)) -lt $((2 * plain)) ]
}
halved allgather
halved reduce_scatter
halved allreduce

# crosses_once: in 8 all-reduces of 4 MiB, with declared sites, each site sends the vector over the line once, and 2 % more;
# without what is sent again, in segments of 1448 bytes at most.
crosses_once() {
  local before=() again=() least=$((8 << 22)) site bytes
  for site in 0 1; do
    before[site]=$(payload "/sys/class/net/l$site$tag" tx) again[site]=$(repeated $((site + 1)) $((site + 3)))
  done
  start_ranks 120 sh -c 'export COLL_LEVELS=site$((HOST % 2))@100mbit,10ms; exec "$@"' sh "$BUILD/tests/hosts_calls" 1048576 8
  expect "all-reduces are right (ranks on hosts $hosts_of_ranks)" all_succeed
  for site in 0 1; do
    again[site]=$(($(repeated $((site + 1)) $((site + 3))) - again[site]))
    bytes=$(($(payload "/sys/class/net/l$site$tag" tx) - before[site]))
    expect "a site sends each vector once ($bytes of $least bytes; ${again[site]} segments again)" \
      [ $(((bytes - 1448 * again[site]) * 100)) -le $((least * 102)) -a "$bytes" -ge "$least" ]
  done
}
for hosts_of_ranks in "1 2 3 4" "1 3 2 4" "1 2 4 3"; do
  crosses_once
done
hosts_of_ranks=$hosts

# Far hosts measure what nobody has declared; one has declared its link.
count "measured sites" allreduce "[ \$COLL_RANK != 3 ] || export COLL_LINK_SPEED=10gbit"
expect "declared links are not measured" [ "$(grep -c "the link of host .* measured" "$out/0")" -le 3 ]
expect "two sites are found" [ "$(grep -c "is at site [12] of 2" "$out/0")" = 4 ]
expect "each has two hosts" [ "$(grep -c "is at site 2 of 2" "$out/0")" = 2 ]
expect "the line is measured" grep -q "from host .*'s site to the next: .* Mbit/s measured" "$out/0"
expect "less goes over the line ($moved instead of $plain bytes)" [ "$moved" -lt "$plain" ]
expect "the log says why there are sites" \
  grep -qE "hosts are in 2 sites: round trips in a site take at most 0.* ms, to another one at least 1.* ms" "$out/0"

start_ranks 120 "$BUILD/tests/hosts_parts"
expect "communicators made from one with sites give right results" all_succeed

# The one that joins does not know where it is.
COLL_LOG=info start_ranks 120 "$BUILD/tests/hosts_parts" "$out/id"
expect "one with sites grows, and shrinks again, with right results" all_succeed
expect "sites were found before that" [ "$(grep -c "is at site [12] of 2" "$out/0")" = 3 ]

# The hosts' connections, if each is a machine of its own: look_at_connections [CONTROL].
look_at_connections() {
  start_ranks 60 sh -c 'export COLL_HOST_ID=host$COLL_RANK; exec "$@"' sh "$BUILD/tests/hosts_paced" 10.84.0 "$@"
}
look_at_connections
expect "connections between sites are paced, others are not" all_succeed

# set_routes [congctl CONTROL]: of the hosts' network.
set_routes() {
  for i in $hosts; do
    ip -n "$tag-$i" route replace 10.84.0.0/24 dev "eth$(((i + 1) % 2))" "$@" || return 1
  done
}
usual=$(cat /proc/sys/net/ipv4/tcp_congestion_control)
control=cubic
[ "$usual" != cubic ] || control=bbr
if grep -qw "$control" /proc/sys/net/ipv4/tcp_available_congestion_control && set_routes congctl "$control"; then
  look_at_connections "$control"
  expect "the control of congestion of routes stays ($control)" all_succeed
  COLL_TCP_CONGESTION=reno look_at_connections reno
  expect "COLL_TCP_CONGESTION is stronger" all_succeed
  expect "routes are as before" set_routes
fi

# far_sites: whether two sites were found, and what the log says of the line is right, if its speed is known.
far_sites() {
  [ "$(grep -c "is at site [12] of 2" "$out/0")" = 4 ] && ! grep -q "no time to find" "$out/0" &&
    grep -E "site to the next: (49|5[0-9])(\.[0-9]+)? ms and ([0-9.]+ Mbit/s|no speed) measured" "$out/0" | awk '
      { lines++; at = index($0, " ms and "); mbit = substr($0, at + 8) + 0; wrong += mbit > 0 && (mbit < 50 || mbit > 800) }
      END { exit lines != 2 || wrong }'
}
expect "a far line is laid" lay_line 400000000 100 >"$out/laid" 2>&1
count "far sites" allreduce true
expect "two far sites are found, with the line's latency" far_sites

# What lies between is near now, but farther than hosts of one bridge are from each other, and two hosts share it.
expect "another line is laid" lay_line 100000000 0.6
count "measured racks" allreduce "[ \$COLL_RANK != 3 ] || export COLL_LINK_SPEED=measure"
expect "two racks are found" [ "$(grep -c "is at rack [12] of 2" "$out/0")" = 4 ]
expect "each has two hosts (racks)" [ "$(grep -c "is at rack 2 of 2" "$out/0")" = 2 ]
# Half of it; but whoever measures longest has the line alone at the end.
expect "each host has a part of what is between them" \
  grep -qE "from host .*'s group to the next: .* [1-7][0-9](\.[0-9]*)? Mbit/s measured for each host" "$out/0"
expect "less goes over the line (racks: $moved instead of $plain bytes)" [ "$moved" -lt "$plain" ]

start_ranks 60 sh -c '[ $COLL_RANK = 2 ] || export COLL_LEVELS=a; exec "$@"' sh "$BUILD/bin/coll_perf" allreduce -b 8 -e 8
wait $pids
for rank in 0 1 2 3; do
  expect "rank $rank says in one line which host has no levels" eval '[ "$(wc -l <"$out/$rank")" = 1 ] &&
    grep -q "COLL_LEVELS must be set on all hosts or on none: rank 0 .* has \"a\", but rank 2 (host .*) has \"\"" "$out/$rank"'
done
exit $failed
