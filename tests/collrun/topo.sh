#!/bin/sh
# coll_topo: machines from files, placement, and in a run the ranks and their transports.
. "$(dirname "$0")/support.inc"
topo=$BUILD/bin/coll_topo

"$topo" --input "$SOURCE/tests/machines/32em64t-2n8c2t-pci-wholeio.xml" -n 4 > out || fail "a machine file"
expect_in "machine" "packages 2, NUMA nodes 2, cores 16" out
expect_in "device" "RDMA mlx5_0 at 0000:04:00.0" out
expect_in "nearest card" "GPU cuda0 at 0000:84:00.0, nearest network: ib0/mlx5_0 (same switch)" out
expect_in "place" "rank 2: core 8, L3 cache 1, NUMA node 1, package 1" out
"$topo" --input "numa:2 core:2 pu:1" -n 9 > out || fail "a described machine"
expect_in "too many" "not bound to cores: this process may use only 4" out
"$topo" > out || fail "this machine"
expect_in "this machine" "this machine: packages" out
expect_in "verbs" "InfiniBand and RoCE" out

for bad in /no/such.xml nonsense:3 "$SOURCE/README.md"; do
  "$topo" --input "$bad" > out 2> err && fail "took $bad"
  expect_in "bad machine" "$bad" err
done
"$topo" -n 0 2> err && fail "took -n 0"
"$topo" surplus 2> err && fail "took a surplus argument"

# In a run: each rank with its process, each pair with its transport and the reason.
"$collrun" --timeout 60 -n 3 sh -c 'echo $$ > pid.$COLL_RANK; exec "$0"' "$topo" > out 2> err || fail "in a run: $(cat err)"
for r in 0 1 2; do
  grep -Eq "^$r +[^ ]+ +$(cat pid.$r) " out || fail "no line for rank $r: $(cat out)"
done
expect_in "shared memory" "shm, 6 links (the first from 0 to 1): " out
COLL_TRANSPORT=tcp "$collrun" --timeout 60 -n 3 "$topo" > out 2> err || fail "over tcp: $(cat err)"
expect_in "tcp" "tcp, 6 links (the first from 0 to 1): " out
expect_in "its ways" "  3 links (the first from 0 to 1): lo 127.0.0.1 to 127.0.0.1" out
grep -Eq '^ +1 +tcp +- +tcp$' out || fail "no table: $(cat out)"
for decorated in COLL_DATA_CHECK=crc32c COLL_FAULT=again=20,delay_us=300; do
  env $decorated COLL_TRANSPORT=tcp "$collrun" --timeout 60 -n 3 "$topo" --explain 2,0 > out 2> err || fail "explain: $(cat err)"
  expect_in "ways under $decorated" "from 0 to 2: tcp: same host: lo 127.0.0.1 to 127.0.0.1; shortest round trip 0." out
done

# Two hosts, by ranks with different host ids: shared memory within a host, TCP between them.
"$collrun" --timeout 60 -n 3 sh -c 'COLL_HOST_ID=host$((COLL_RANK / 2)) exec "$0"' "$topo" > out 2> err || fail "two hosts: $(cat err)"
expect_in "inside a host" "shm, 2 links (the first from 0 to 1): " out
expect_in "between hosts" "tcp, 4 links (the first from 0 to 2): " out

# Hosts of two ranks, two in a rack, two racks at a site: why two ranks talk as they do, and a picture of all.
levels() {
  # shellcheck disable=SC2016
  "$collrun" --timeout 60 -n 16 sh -c 'export COLL_HOST_ID=host$((COLL_RANK / 2)) \
    COLL_LEVELS=site$((COLL_RANK / 8))@200mbit,20ms/rack$((COLL_RANK / 4)); exec "$@"' sh "$topo" "$@" > out 2> err
}
levels || fail "levels: $(cat err)"
grep -q "^15 .* site1/rack3$" out || fail "no levels: $(cat out)"
levels --explain 0,8 || fail "explain: $(cat err)"
expect_in "where" "in site1/rack2" out
expect_in "no group" "they are on two hosts that are in no group together" out
expect_in "why" "from 8 to 0: tcp: " out
expect_in "cost" "takes 10.000 ms and 40 ns a byte (200 Mbit/s)" out
levels --explain 3,4 || fail "explain: $(cat err)"
expect_in "one site" "they are on two hosts, both in site0" out
levels --explain 3,2 || fail "explain: $(cat err)"
expect_in "one host" "they are on one host" out
levels --explain 3,16 && fail "explains a rank that there is not"
expect_in "which ranks" "there are ranks 0 to 15" err
for bad in "" 1 1,1 1,-2 1,2,3 a,b; do
  "$topo" --explain "$bad" 2> err && fail "took --explain '$bad'"
  expect_in "pair" "takes two ranks" err
done
for messages in allreduce:16777216 allgather:1000000 broadcast:12; do
  levels --network network.svg --messages $messages || fail "network: $(cat err)"
  python3 - network.svg << 'END' || fail "$messages: not the network"
import sys, xml.etree.ElementTree as tree
kinds = [g.get("class") for g in tree.parse(sys.argv[1]).getroot().iter("{http://www.w3.org/2000/svg}g")]
sys.exit([kinds.count(k) for k in ("level2", "level1", "level0", "rank")] != [2, 4, 8, 16])
END
done
COLL_ALGO=allgather:hier levels --network network.svg --messages allgather:65536
expect_in "each block enters each host once" "inside hosts: 8388608 bytes" network.svg
levels --network network.svg --messages allgather:65536
expect_in "each block crosses the line once" "between groups of level 2: 1048576 bytes" network.svg
levels --network network.svg --messages allreduce:16777216
expect_in "the least between sites" "between groups of level 2: 33554432 bytes" network.svg
for bad in allreduce allreduce:x none:4 barrier:0 allgatherv:8; do
  "$topo" --network network.svg --messages "$bad" 2> err && fail "took --messages '$bad'"
  expect_in "messages" "takes a collective and bytes" err
done
"$topo" --network network.svg --explain 0,1 2> err && fail "took --network and --explain"
expect_in "alone" "stand alone" err
"$topo" --messages allreduce:8 2> err && fail "took --messages without --network"
expect_in "for the network" "is for --network" err
"$topo" --network network.svg 2> err && fail "took --network without ranks"
expect_in "one rank" "several ranks" err

# A network that does not run is drawn like one that does: the same hosts and racks, and the same bytes.
described() {
  expected=$1
  shift
  "$topo" --network network.svg "$@" > out 2> err || fail "described: $(cat err)"
  for kind in $expected; do
    expect "boxes of ${kind%=*}" "${kind#*=}" "$(grep -c "class=\"${kind%=*}\"" network.svg)"
  done
}
two_levels=2:200:0.1,4:10000:0.8,8:100000:0.8,all:10000000:40
described "level2=2 level1=4 level0=8 rank=16" -n 16 --levels $two_levels --messages allreduce:16777216
expect_in "the least between sites" "between groups of level 2: 33554432 bytes" network.svg
expect_in "a rack" ">ranks 4 to 7<" network.svg
export COLL_ALGO=allgather:hier
described "level1=0 level0=8 rank=16" --hosts 8 --ranks-per-host 2 --messages allgather:65536
unset COLL_ALGO
expect_in "a host" ">host 7<" network.svg
expect_in "each block enters each host once" "inside hosts: 8388608 bytes" network.svg
described "level0=4 rank=4" -n 4 --hosts 4 --link-speeds 100mbit,1gbit --messages allreduce:67108864
expect_in "shares" "67108864 bytes: hier_weighted" network.svg
described "level0=0 rank=5" -n 5 --messages broadcast:12
# refused TEXT ARGUMENT...: in one line.
refused() {
  text=$1
  shift
  "$topo" "$@" > out 2> err && fail "took $*"
  expect_in "$*" "$text" err
  expect "lines about $*" 1 "$(wc -l < err)"
}
refused "--ranks is missing" --network network.svg --hosts 4
refused "the most are 256" --network network.svg -n 257
refused "there are only 2 ranks" --network network.svg -n 2 --hosts 4
refused "--levels takes 'assumed', or" --network network.svg -n 16 --levels 2:1
refused "--link-speeds takes speeds" --network network.svg -n 4 --hosts 4 --link-speeds fast
refused "--hosts takes a number" --network network.svg --hosts many
refused "is for --network" --hosts 4 --ranks-per-host 2
refused "stand alone" --network network.svg -n 4 --input numa:2

# Files are written whole or not at all, and by rank 0 alone.
"$collrun" --timeout 60 -n 3 sh -c '"$0" --network described.$COLL_RANK -n 4 && exec "$0" --svg machine.$COLL_RANK --input "numa:2 core:2 pu:1"' \
  "$topo" > out 2> err || fail "described in a run: $(cat err)"
expect "who writes" "described.0 machine.0" "$(echo described.* machine.*)"
echo before > kept.svg
(trap '' XFSZ && ulimit -f 1 && exec "$topo" --svg kept.svg --input "numa:8 core:32 pu:2") > out 2> err && fail "wrote a large file"
expect_in "too large" "kept.svg: cannot be written" err
expect "half a file" "before" "$(cat kept.svg*)"
"$topo" --svg /dev/full --input "numa:2 core:2 pu:1" 2> err && fail "wrote to a full device"
expect_in "a device" "/dev/full: cannot be written" err
[ -c /dev/full ] || fail "replaced /dev/full"

if [ "$(cores)" -ge 2 ]; then
  "$collrun" --timeout 60 -n 2 "$topo" > out 2> err || fail "two ranks: $(cat err)"
  expect "bound ranks" 2 "$(sed -n '/^rank/,/^$/p' out | awk '$1 ~ /^[01]$/ && $4 ~ /^[0-9]+$/ {print $4}' | sort -u | wc -l)"
fi

# The same over the fake ssh: rank 0 opens its own listener.
cat > ssh.sh <<'END'
#!/bin/sh
while [ $# -gt 1 ]; do shift; done
cd / && setsid --wait env -i PATH="$PATH" sh -c "$1"
END
chmod +x ssh.sh
COLL_SSH=$scratch/ssh.sh "$collrun" --timeout 60 --hosts localhost:3 "$topo" > out 2> err || fail "over ssh: $(cat err)"
expect_in "over ssh" "6 links (the first from 0 to 1): " out
finish
