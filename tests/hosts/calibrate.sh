#!/bin/bash
# coll_calibrate --hosts on four hosts, which are network namespaces with names: it finds two sites, racks, or a slow host, and
# writes a file of levels, with which a run then knows as much. What is declared wins over what is measured. Needs root, ip, tc,
# unshare and /dev/net/tun; exits 77 (skipped) with a reason where they are missing.
set -u
tag=k$(($$ % 100000))
root=10.85.0.1
. "$SOURCE/tests/hosts/four_hosts.inc"
. "$SOURCE/tests/hosts/line.inc"
unshare --uts true 2>/dev/null || skip "needs unshare, for names of hosts"
set_up 10.85.0 >"$out/setup" 2>&1 || skip "cannot make network namespaces here: $(tail -n 1 "$out/setup" "$out/wan" 2>/dev/null)"

# start_named SECONDS PROGRAM...: as start_ranks, on hosts called node1.example to node4.example.
start_named() {
  local limit=$1
  shift
  start_ranks "$limit" unshare --uts sh -c \
    'printf "node%d.example" $((COLL_RANK + 1)) >/proc/sys/kernel/hostname && exec "$@"' sh "$@"
}

# calibrate WHAT [OPTIONS]: coll_calibrate --hosts; rank 0's output is in $out/0.
calibrate() {
  local what=$1
  shift
  start_named 120 "$BUILD/bin/coll_calibrate" --hosts "$@"
  expect "coll_calibrate --hosts ends ($what)" all_succeed
}

# prints PATTERN: whether rank 0 has printed a line like that.
prints() { grep -qE "$1" "$out/0"; }

number='[0-9.]+(e[+-][0-9]+)?'
calibrate "two sites" --out "$out/levels"
expect "it finds two sites, and says why" \
  prints "^2 sites: round trips in a site take at most 0\.$number ms, to another one at least 1[0-9]\.?[0-9]* ms$"
expect "nodes 1 and 3 are at one of them" prints "^  site1: node1.example node3.example$"
expect "nodes 2 and 4 at the other" prints "^  site2: node2.example node4.example$"
expect "hosts of a site are near" prints "^hosts of a site +2 +0\.$number +0\.$number +0\.$number +$number +$number +$number$"
# The line has 100 Mbit/s. Where no message took several round trips in time, as on a busy machine, no speed is known.
expect "sites are far, and what lies between has no more than the line" \
  prints "^hosts of two sites +4( +1[0-9]\.?[0-9]*){3}( +(-|[1-9]?[0-9](\.[0-9]+)?)){3}$"
levels='site[12]@([1-9]?[0-9](\.[0-9]+)?mbit,)?1[0-9](\.[0-9]+)?ms'
expect "it prints settings" prints "^  node2.example: COLL_LEVELS=$levels COLL_LINK_SPEED=[0-9.]+[mg]bit$"
expect "and writes a line for each host" \
  [ "$(grep -cE "^node[1-4].example $levels [0-9.]+[mg]bit$" "$out/levels")" = 4 ]

# A run that has the file. What it knows is what coll_topo saves.
export COLL_LOG=info
COLL_LEVELS=file:$out/levels COLL_LINK_SPEED=measure start_named 60 "$BUILD/bin/coll_topo" --save "$out/cluster"
expect "a run with the file starts" all_succeed
expect "it knows the sites" [ "$(grep -cE "node[13].example site1$|node[24].example site2$" "$out/cluster")" = 4 ]
expect "and looks for none" [ "$(grep -c "is at site" "$out/0")" = 0 ]
expect "but measures links, as it was told to" prints "the link of host node1.example: .* measured"
COLL_LEVELS=file:$out/levels start_named 60 "$BUILD/bin/coll_topo" --save "$out/cluster"
expect "another one takes the speeds from the file, too" all_succeed
saved=$(awk 'NF > 2 && $(NF-1) == "node1.example" { print $(NF-2) }' "$out/cluster")
expect "that of node 1 ($saved Mbit/s)" awk -v saved="$saved" \
  '$1 == "node1.example" { mbit = $3 * ($3 ~ /gbit/ ? 1000 : 1) } END { exit !(saved > 0.99 * mbit && saved < 1.01 * mbit) }' \
  "$out/levels"

# One group, and none, are levels, too.
for declared in all none; do
  COLL_LEVELS=$declared COLL_LINK_SPEED=measure start_named 60 "$BUILD/bin/coll_topo" --save "$out/cluster"
  expect "a run with declared levels starts ($declared)" all_succeed
  expect "it looks for none ($declared)" [ "$(grep -cE "is at site|in 2 sites" "$out/0")" = 0 ]
  expect "its levels stay ($declared)" [ "$(grep -c "site[12]" "$out/cluster")" = 0 ]
done

sed -i '/node3/d' "$out/levels"
COLL_LEVELS=file:$out/levels COLL_CREATE_TIMEOUT_MS=3000 start_named 60 "$BUILD/bin/coll_topo"
wait $pids
expect "a host that is not in the file says so" grep -q "no line is of this host, node3.example" "$out/2"

# A host that is alone at its site (node 4 is on host 2 here) sends to nobody there.
hosts_of_ranks="1 3 1 2"
calibrate "a host that is alone" --out "$out/levels"
expect "it says that its link was not measured" prints "^not measured: the links of 1 host \(node4.example\)$"
expect "and writes no speed" grep -qE "^node4.example site2@[^ ]*$" "$out/levels"
hosts_of_ranks=$hosts

# So far that TCP's start takes most of the time: the speed is right, or left out, but not the round trip.
expect "a far line is laid" lay_line 400000000 100 >"$out/laid" 2>&1
calibrate "far sites" --out "$out/levels"
expect "it writes the round trip, and no wrong speed" \
  [ "$(grep -cE "^node[1-4].example site[12]@([2-7][0-9]{2}(\.[0-9]+)?mbit,)?1[0-9]{2}(\.[0-9]+)?ms( |$)" "$out/levels")" = 4 ]

# Near, but farther than hosts of one bridge are from each other.
expect "another line is laid" lay_line 100000000 0.6
calibrate "two racks"
expect "it finds two racks, and says why" \
  prints "^2 racks: round trips in a rack take at most 0\.$number ms, to another one at least 0\.$number ms$"
expect "racks have names" prints "^  rack2: node2.example node4.example$"
expect "racks are rows" prints "^hosts of two racks +4 "
COLL_LINK_SPEED=measure start_named 60 "$BUILD/bin/coll_perf" allreduce -b 8 -e 8
expect "a run measures racks" all_succeed
expect "and logs why they are" \
  prints "hosts are in 2 racks: round trips in a rack take at most 0\.$number ms, to another one at least 0\.$number ms"

# All in one network, of which one has a slow link.
slow() {
  exec 3>&- && wait "$line" && ip link add "l0$tag" type veth peer name "l1$tag" || return 1
  for n in 0 1; do ip link set "l$n$tag" master "b$n$tag" up || return 1; done
  for i in 1 2 3; do limit "$i" 400 || return 1; done
  limit 4 50
}
# limit HOST MBIT: what a host can send.
limit() {
  ip netns exec "$tag-$1" tc qdisc add dev "eth$((($1 + 1) % 2))" root handle 1: htb default 10 r2q 100 &&
    ip netns exec "$tag-$1" tc class add dev "eth$((($1 + 1) % 2))" parent 1: classid 1:10 htb rate "$2"mbit \
      ceil "$2"mbit burst 64k cburst 64k
}
expect "there is no line any more" slow
calibrate "a slow host" --out "$out/levels"
expect "there are no groups" prints "^4 hosts in one group: "
expect "node 4 is slow, by name" prints "^slow: host node4.example, [3-7][0-9](\.[0-9]+)? Mbit/s; the median is [1-5][0-9][0-9]"
# Load may make others slow, too, but none of them faster.
expect "none is slower" grep -q "host node4" <(grep "^slow: " "$out/0" | sort -t , -k 2n | head -n 1)
expect "the file says that there are no levels" [ "$(grep -cE "^node[1-4].example none [0-9.]+mbit$" "$out/levels")" = 4 ]

start_ranks 60 "$BUILD/bin/coll_calibrate" --hosts --out "$out/twins"
wait $pids
expect "hosts with one name cannot be in a file" grep -q "is not written: two hosts are called" "$out/0"
expect "so there is none" [ ! -e "$out/twins" ]
start_named 60 "$BUILD/bin/coll_calibrate" --hosts --out /nowhere/levels
wait $pids
expect "a file that cannot be written is named" grep -q "cannot write /nowhere/levels: No such file" "$out/0"
exit $failed
