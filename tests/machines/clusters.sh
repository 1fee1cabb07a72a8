#!/bin/sh
# What libcoll sees in the clusters of this folder: who is near whom, which algorithm all-reduces of three sizes take,
# and how many bytes then cross what. What is expected was worked out by hand; N is the size of the vector.
. "$(dirname "$0")/../collrun/support.inc"
topo=$BUILD/bin/coll_topo explain=$BUILD/bin/coll_explain

# near CLUSTER A,B WHERE COST: where the two ranks meet, and what a message between them is assumed to cost.
near() {
  "$topo" --input "$SOURCE/tests/machines/$1.cluster" --explain "$2" > out 2> err || fail "$1 $2: $(cat err)"
  expect_in "$1 $2" "$3" out
  expect_in "$1 $2" "a message between them takes $4" out
  expect_in "$1 $2" "transport, a prediction: " out
}

# takes CLUSTER BYTES ALGORITHM FACTORS: what an all-reduce takes, and the multiples of N that all ranks together send
# inside hosts, between hosts of a group, and between groups of each wider level.
takes() {
  file=$SOURCE/tests/machines/$1.cluster
  "$explain" allreduce -b "$2" --input "$file" > out 2> err || fail "$1 $2: $(cat err)"
  expect "$1, all-reduce of $2 bytes" "$3" "$(sed -n 's/^\* \([^ ]*\) .*/\1/p' out)"
  "$topo" --input "$file" --network net.svg --messages "allreduce:$2" 2> err || fail "$1 $2: $(cat err)"
  expect "$1, bytes of $2" "$4" "$(awk -F '[>:]' -v n="$2" '/<text.*(inside hosts|between).* bytes</ {
    sub(/ bytes.*/, "", $3); printf "%s%g", sep, $3 / n; sep = " " }' net.svg)"
}

# 64 hosts of 8 ranks, 4 hosts in a rack, 4 racks in a pod, 4 pods. A byte takes 0.05 ns in a host, between hosts 0.25,
# which is one stream of TCP, between pods 0.32, a quarter of each host's 100 Gbit/s.
near fat_tree 0,7 "they are on one host" "0.000 ms and 0.05 ns a byte"
near fat_tree 0,8 "both in pod0/rack0" "0.009 ms and 0.25 ns a byte (32000 Mbit/s)"
near fat_tree 31,32 "both in pod0" "0.014 ms and 0.25 ns a byte (32000 Mbit/s)"
near fat_tree 0,128 "in no group together" "0.020 ms and 0.32 ns a byte (25000 Mbit/s)"
expect_in "where" "rank 128: host p1r0n0, machine 0, core 0, in pod1/rack0, a link of 1e+05 Mbit/s" out
# Short: the 7 other ranks of a host send to a leader and get the sum back, 2 * 7 * 64 N. The leaders of 64 hosts double
# in 6 steps, of which 2 stay in a rack, 2 in a pod, and 2 leave it: 2 * 64 N each. Those are 6 messages after each other
# between hosts, where levels (hier_levels) reduce and broadcast in racks and pods as well: 2 + 2 + 2 + 2 + 2.
takes fat_tree 1024 hier "896 128 128 128"
# Of some length: bytes count as well, and each level works on the share that the one before has left. Of 512 ranks each
# sends 2 * 7/8 N to its host (reduce-scatter and all-gather), 2 * 3/4 of N/8 to 3 other hosts of the rack, as much of
# N/32 to other racks, and N/128 twice to other pods: doubling, as that is short.
takes fat_tree 4194304 hier_levels_split "896 96 24 8"
# Long: halving and doubling (rabenseifner) starts with the nearest rank, as ranks are numbered along the tree, and so
# sends as little over each level: N/2 + N/4 + N/8 twice in a host, then N/16 + N/32, and so on. It has one lane for
# all, where the levels' steps wait for each other, and its steps no longer count.
takes fat_tree 67108864 rabenseifner "896 96 24 6"

# Two sites of 8 hosts with 4 ranks, and a line of 10 ms one way between them, where a byte takes 8 ns, 10 times as long
# as on the links of hosts. The fewest bytes that can cross it are N each way.
near two_sites 0,3 "they are on one host" "0.000 ms and 0.05 ns a byte"
near two_sites 0,31 "both in paris" "0.009 ms and 0.8 ns a byte (10000 Mbit/s)"
near two_sites 31,32 "in no group together" "10.000 ms and 8 ns a byte (1000 Mbit/s)"
# All of them send 3/4 of their N to their host and get it back, 2 * 3 * 16 N; 7 of 8 hosts do likewise, 2 * 7 * 2 N;
# and the line has 2 N. They differ in what works at once. Short: a leader for each host and site, as each message
# costs more than its bytes.
takes two_sites 1024 hier_levels "96 28 2"
# Each rank works for a part, so that links and cores share the work, and sends its part over the line: 64 short
# messages at once, one from each rank, instead of N after each other.
takes two_sites 65536 hier_levels_split "96 28 2"
# Long: in four lanes, so that while the line carries one part, hosts reduce the next. The line holds 2.5 MB, less than
# the lanes of 32 pairs of ranks.
takes two_sites 67108864 hier_lanes "96 28 2"
finish
