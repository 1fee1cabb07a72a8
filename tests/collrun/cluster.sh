#!/bin/sh
# coll_topo --save describes a whole cluster, each different machine once; coll_topo and coll_explain read it elsewhere,
# draw and choose the same, and refuse damaged files in one line.
. "$(dirname "$0")/support.inc"
topo=$BUILD/bin/coll_topo explain=$BUILD/bin/coll_explain

# Hosts of two ranks, two in a rack, two racks at a site; the fourth host is another machine.
levels() {
  # shellcheck disable=SC2016
  "$collrun" --timeout 60 -n 16 sh -c 'export COLL_HOST_ID=host$((COLL_RANK / 2)) \
    COLL_LEVELS=site$((COLL_RANK / 8))@200mbit,20ms/rack$((COLL_RANK / 4)); \
    [ $((COLL_RANK / 2)) != 3 ] || export COLL_TOPO_FILE="numa:2 core:2 pu:1"; exec "$@"' sh "$topo" "$@" > out 2> err ||
    fail "levels $*: $(cat err)"
}
levels --save levels.cluster
expect "output" "" "$(cat out err)"
expect "machines" 2 "$(grep -c '^machine ' levels.cluster)"
expect "hosts with the other machine" 1 "$(grep -c '^host 1 ' levels.cluster)"
expect "names and addresses of machines" 0 "$(grep -c 'name="HostName"\|name="Address"' levels.cluster)"
# same WHAT: the picture of the file is that of the run, whose rails it does not know.
same() {
  sed '/<text class="rails/d; s/ over [0-9]* rails//; s/, [0-9]* not connected//' run.svg | cmp -s - file.svg ||
    fail "$1: the picture of the file is not that of the run"
}
for messages in allreduce:16777216 allgather:65536; do
  levels --network run.svg --messages $messages
  "$topo" --input levels.cluster --network file.svg --messages $messages 2> err || fail "$messages: $(cat err)"
  same $messages
done
"$topo" --input levels.cluster > out 2> err || fail "shows it: $(cat err)"
expect_in "the other machine" "NUMA nodes 2, cores 4" out
grep -Eq '^15 .* 0 .* site1/rack3$' out || fail "no rank 15: $(cat out)"
"$explain" allreduce -b 16M --input levels.cluster > out 2> err || fail "explains it: $(cat err)"
expect_in "what it is" "16 ranks on 8 hosts over the network of --input" out
expect_in "the choice" "chosen: $(sed -n 's/.*<title>allreduce of .*: \(.*\)<.*/\1/p;q' run.svg)" out
# What messages cost at each level counts.
for level in 0 2; do
  sed "s/^level $level .*/level $level 1e9 1e6/" levels.cluster > slow.cluster
  "$explain" allreduce -b 16M --input slow.cluster > slow 2> err || fail "explains a slow level: $(cat err)"
  [ "$(grep hier_levels_split slow)" != "$(grep hier_levels_split out)" ] ||
    fail "level $level costs nothing"
done

# The same of groups at five levels, which differ in size.
# shellcheck disable=SC2016
"$collrun" --timeout 60 -n 8 sh -c 'export COLL_HOST_ID=host$COLL_RANK h=$COLL_RANK
  export COLL_LEVELS=z$((h / 6))@20ms/e$((h / 4))/d$((h / 3))/r$((h / 2))/s$((h == 1)); "$@" --save deep.cluster &&
  exec "$@" --network run.svg --messages allreduce:16777216' sh "$topo" > out 2> err || fail "five levels: $(cat err)"
"$topo" --input deep.cluster --network file.svg --messages allreduce:16777216 2> err || fail "reads five levels: $(cat err)"
same "five levels"
expect "groups at each level" "8 6 5 4 3 2" "$(for at in 4 5 6 7 8 9; do
  awk -v at=$at '/^rank / { print $at }' deep.cluster | sort -u | wc -l; done | xargs)"
"$topo" --input deep.cluster --explain 0,7 > out 2> err || fail "explains five levels: $(cat err)"

# Hosts whose links differ, also in racks.
speeds() {
  # shellcheck disable=SC2016
  "$collrun" --timeout 60 -n 4 sh -c 'export COLL_HOST_ID=host$COLL_RANK COLL_LINK_SPEED=1gbit; \
    [ "$COLL_RANK" != 2 ] || COLL_LINK_SPEED=100mbit; [ -z "$RACKS" ] || export COLL_LEVELS=rack$((COLL_RANK / 2)); \
    exec "$@"' sh "$topo" "$@" > out 2> err || fail "speeds $*: $(cat err)"
}
for RACKS in "" yes; do
  export RACKS
  speeds --save "speeds$RACKS.cluster"
  speeds --network run.svg --messages allreduce:67108864
  "$topo" --input "speeds$RACKS.cluster" --network file.svg --messages allreduce:67108864 2> err || fail "speeds: $(cat err)"
  expect_in "shares" "67108864 bytes: hier_weighted" file.svg
  same "speeds $RACKS"
done
"$topo" --input speeds.cluster > out 2> err || fail "shows speeds: $(cat err)"
grep -Eq '^2 .* 100  ' out || fail "no speed of rank 2: $(cat out)"

# A little memory more makes no other machine: 16 GiB, and 0.1 % less; but half of it does.
"$topo" --input "numa:2(memory=17179869184) core:2 pu:1" --xml 0.xml || fail "no machine"
sed 's/local_memory="17179869184/local_memory="17162689315/' 0.xml > 1.xml
sed 's/local_memory="17179869184/local_memory="8589934592/' 0.xml > 2.xml
# shellcheck disable=SC2016
"$collrun" --timeout 60 -n 3 sh -c 'COLL_HOST_ID=host$COLL_RANK COLL_TOPO_FILE=$COLL_RANK.xml \
  exec "$0" --save memory.cluster' "$topo" > out 2> err || fail "memory: $(cat err)"
expect "machines of the hosts" "0 0 1" "$(awk '/^host / { print $2 }' memory.cluster | xargs)"

# Of 22 hosts two each are like machines, with 1 to 11 cores. Each of these travels up a tree: it leaves one rank, once,
# and no rank receives more messages than the tree has levels, which is four.
# shellcheck disable=SC2016
COLL_PROFILER=$BUILD/tests/plugins/profiler_example.so "$collrun" --timeout 60 -n 22 sh -c 'export \
  COLL_HOST_ID=host$COLL_RANK COLL_TOPO_FILE="core:$((COLL_RANK / 2 + 1)) pu:1"; exec "$0" --save many.cluster' "$topo" \
  > out 2> err || fail "many machines: $(cat err)"
expect "cores of each" "$(seq 11 | xargs)" \
  "$(awk '/^machine / { at++ } /type="Core"/ { cores[at]++ } END { for (i = 1; i <= at; i++) print cores[i] }' many.cluster | xargs)"
expect "machines of the hosts" "$(for i in $(seq 0 10); do echo "$i $i"; done | xargs)" "$(awk '/^host / { print $2 }' many.cluster | xargs)"
expect "ranks that send, and how often" "10 1" \
  "$(cat out err | awk '/: send: / { senders++; most = $4 > most ? $4 : most } END { print senders, most }')"
expect "messages at rank 0" 4 "$(cat out err | sed -n 's/^rank 0: recv: \([0-9]*\) operations.*/\1/p')"
expect "messages at any rank" 4 "$(cat out err | sed -n 's/.*: recv: \([0-9]*\) operations.*/\1/p' | sort -n | tail -n 1)"

# refused TEXT: bad.cluster is, in one line.
refused() {
  "$explain" allreduce -b 8 --input bad.cluster > out 2> err && fail "took a file: $1"
  expect_in "$1" "$1" err
  expect "lines about $1" 1 "$(wc -l < err)"
}
# A line that is missing, that says nothing, or in which a number became a word or a large one, is found; so is the end.
last=$(grep -n '^rank ' speeds.cluster | tail -n 1 | cut -d: -f1)
for line in $(grep -n '^[a-z]' speeds.cluster | cut -d: -f1); do
  [ "$line" -le "$last" ] && [ "$line" -gt 1 ] || continue
  sed "${line}d" speeds.cluster > bad.cluster && refused "bad.cluster, line "
  sed "${line}s/ .*/ /" speeds.cluster > bad.cluster && refused "bad.cluster, line $line: "
  sed "${line}s/ [0-9][^ ]*/ none/" speeds.cluster > bad.cluster && refused "bad.cluster, line $line: "
  sed "${line}s/ [0-9][^ ]*/ 1e99/" speeds.cluster > bad.cluster && refused "bad.cluster, line $line: "
  head -n $((line - 1)) speeds.cluster > bad.cluster && refused "bad.cluster, line "
done
sed 's/^machine .*/machine 99999999/' speeds.cluster > bad.cluster && refused "not the bytes of a machine"
sed 's/^machine .*/machine 10000000/' speeds.cluster > bad.cluster && refused "bytes and the end of a line follow"
sed 's/^\(rank 2 [^ ]* \).*/\13/' speeds.cluster > bad.cluster && refused "not a group of each level"
sed '/^rank /s/ [^ ]*$/ 0/' speeds.cluster > bad.cluster && refused "a level has one group only"
sed '0,/^rank 1 /s/^\(rank 1 .*\) 0 0$/\1 1 0/' levels.cluster > bad.cluster && refused "not inside"
sed 's/^host 0 \([^ ]*\) /host 0 \1 \x1b[2J/' speeds.cluster > bad.cluster && refused "cannot be printed"
for number in 1 5 8; do # no alpha; more than one core; no share of a chunk
  awk -v at=$((number + 1)) -v to="$([ $number = 5 ] && echo 7 || echo 0)" '/^model / { $at = to } { print }' \
    speeds.cluster > bad.cluster && refused "not the numbers of a model"
done
# A machine that is not XML would be this one, one of hwloc's words, or another file, or be cut.
machine() {
  { sed '/^machine /,$d' speeds.cluster; printf "machine $1\n$2\n"; } > bad.cluster
  refused "the machine that follows is not XML"
}
machine 1 '\0'
machine 5 0.xml
machine 13 'numa:2 core:2'
machine 4 '<a\0>'
# A machine that hwloc does not understand is named.
{ sed '/^machine /,$d' speeds.cluster; printf 'machine 4\n<a/>\n'; } > bad.cluster
for show in "" "--json bad.json"; do
  # shellcheck disable=SC2086
  "$topo" --input bad.cluster $show > out 2> err && fail "took a bad machine"
  expect_in "which machine ($show)" "coll_topo: machine 0 of bad.cluster: " err
  expect "lines ($show)" 1 "$(wc -l < err)"
done
echo "libcoll cluster 2" > bad.cluster && refused "is not a cluster"
rm bad.cluster && refused "No such file"
"$explain" allreduce -b 8 --input speeds.cluster -n 4 2> err && fail "took --input and -n"
expect_in "alone" "says what the network is" err
"$explain" allreduce -b 8 --input speeds.cluster --transport tcp 2> err && fail "took --input and --transport"
expect_in "transport" "says what the network is" err
"$explain" allreduce -b 8 --input speeds.cluster --input speeds.cluster 2> err && fail "took two files"
expect_in "twice" "given twice" err
"$topo" --input speeds.cluster --save both.cluster 2> err && fail "took --input and --save"
expect_in "alone" "stands alone" err
"$topo" --save both.cluster 2> err && fail "took --save without ranks"
expect_in "one rank" "several ranks" err
finish
