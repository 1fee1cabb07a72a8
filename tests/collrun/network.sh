#!/bin/sh
# coll_topo draws networks of many ranks as whole hosts or racks, shows rails, and explains two ranks of networks that
# do not run.
. "$(dirname "$0")/support.inc"
topo=$BUILD/bin/coll_topo machines=$SOURCE/tests/machines

# draw CLASS=COUNT... -- ARGUMENT...: the picture is well formed, small, and has so many boxes.
draw() {
  wanted=
  while [ "$1" != -- ]; do
    wanted="$wanted $1"
    shift
  done
  shift
  "$topo" --network network.svg "$@" > out 2> err || fail "draws $*: $(cat err)"
  [ "$(wc -c < network.svg)" -lt 4000000 ] || fail "$*: a picture of $(wc -c < network.svg) bytes"
  # shellcheck disable=SC2086
  python3 - network.svg $wanted > out 2>&1 << 'END' || fail "$*: $(cat out)"
import sys, xml.etree.ElementTree as tree
svg = "{http://www.w3.org/2000/svg}"
root = tree.parse(sys.argv[1]).getroot()
boxes = {}
for g in root.iter(svg + "g"):
    rect = g.find(svg + "rect")
    x, y, w, h = (float(rect.get(name)) for name in ("x", "y", "width", "height"))
    if x < 0 or y < 0 or x + w > float(root.get("width")) or y + h > float(root.get("height")):
        sys.exit(f"{g.get('class')} is outside")
    boxes.setdefault(g.get("class"), []).append((x, y, x + w, y + h))
for item in sys.argv[2:]:
    name, count = item.split("=")
    if len(boxes.get(name, [])) != int(count):
        sys.exit(f"{len(boxes.get(name, []))} boxes of {name}, {count} wanted")
leaves = sorted(boxes.get("unit", []) + boxes.get("rank", []))
for i, a in enumerate(leaves):
    for b in leaves[i + 1:]:
        if b[0] >= a[2]:
            break
        if a[1] < b[3] and b[1] < a[3]:
            sys.exit(f"{a} lies on {b}")
END
}

# 64 hosts of 8 ranks are drawn whole. Each tells what moves inside, each line what one sends another: in a ring all of
# it crosses each host's links once, 2 * 511/512 of the vector.
draw unit=64 level0=0 level1=8 rank=0 -- -n 512 --levels 8:500:0.1,64:20000:0.5,all:1e6:8
expect "what they hold" 64 "$(grep -c '>8 ranks<' network.svg)"
export COLL_ALGO=allreduce:ring
draw unit=64 rank=0 -- -n 512 --hosts 64 --messages allreduce:1048576
expect "lines" 64 "$(grep -c '<path class="meet1"' network.svg)"
expect "bytes between hosts" 64 "$(grep -c '<title>host [0-9]* to host [0-9]*: 2093056 bytes</title>' network.svg)"
expect "bytes inside hosts" 64 "$(grep -c '<title>14651392 bytes inside</title>' network.svg)" # 7 such links
expect "in all" "937689088 133955584" "$(sed -n 's/.*>\(inside\|between\) hosts: \(.*\) bytes<.*/\2/p' network.svg | xargs)"
unset COLL_ALGO
draw rank=256 unit=0 -- -n 256 --hosts 32
# As many ranks as libcoll is for: in 512 hosts, or in 32 racks where there are more hosts than can be shown.
draw unit=512 rank=0 -- -n 4096 --hosts 512
draw unit=32 level2=4 rank=0 -- -n 8192 --levels 8:500:0.1,256:20000:0.5,2048:1e5:1,all:1e6:8
# Where each host sends to each other one, not all lines are drawn, and it says so.
export COLL_ALGO=alltoall:pairwise
draw unit=512 -- -n 4096 --hosts 512 --messages alltoall:64
expect "lines" 16384 "$(grep -c '<path class="meet1"' network.svg)"
expect "the others" 245248 "$(sed -n 's/.*>\(.*\) lines that have no more bytes than those here are left out<.*/\1/p' network.svg)"
unset COLL_ALGO
draw unit=64 level1=16 level2=4 -- --input "$machines/fat_tree.cluster"
expect "a host" 1 "$(grep -c '>host p3r2n1</text>' network.svg)"

refused() {
  "$topo" "$@" > out 2> err && fail "took $*"
  expect "lines about $*" 1 "$(wc -l < err)"
}
refused --network x.svg -n 257
expect_in "no groups" "257 ranks that are in no groups cannot be shown: the most are 256" err
refused --network x.svg -n 600 --hosts 600
expect_in "groups" "600 ranks in 600 groups cannot be shown: the most are 512" err

# Two ranks of a network that does not run. What a run says of levels and costs, its file says as well.
explains() {
  text=$1
  shift
  "$topo" "$@" > out 2> err || fail "$*: $(cat err)"
  expect_in "$*" "$text" out
}
levels=2:200:0.1,4:10000:0.8,8:100000:0.8,all:10000000:40
explains "they are on one host" -n 16 --levels $levels --explain 0,1
expect_in "one host" "transport, a prediction: shm" out
explains "rank 5: host 2, in ranks 4 to 7, in ranks 0 to 7" -n 16 --levels $levels --explain 0,5
expect_in "one site" "they are on two hosts, both in ranks 0 to 7" out
expect_in "device" "transport, a prediction: a device moves messages" out
expect_in "cost" "takes 0.100 ms and 0.8 ns a byte (10000 Mbit/s)" out
expect_in "why" "why: that is what messages cost inside ranks 0 to 7" out
explains "in no group together" -n 16 --levels $levels --explain 8,7
expect_in "why" "why: that is what messages cost between groups of the widest level" out
explains "transport, a prediction: tcp, by --transport" -n 8 --hosts 4 --link-speeds 1gbit,100mbit --explain 1,2
expect_in "why" "why: that is what messages cost between hosts; but a byte takes 80 ns on the link of host 1, the slower one of both" out
explains "transport, a prediction: shm, by --transport" -n 4 --explain 0,3
expect_in "why" "why: all ranks are equally far from each other" out
explains "transport, a prediction: tcp, as no device" --input "$machines/two_sites.cluster" --explain 0,32
explains "transport, a prediction: shm" --input "$machines/two_sites.cluster" --explain 0,1
sed '/^model/s/0 0 1 0 1 0$/1 0 1 0 1 0/' "$machines/two_sites.cluster" > device.cluster
explains "transport, a prediction: a device moves messages" --input device.cluster --explain 0,32
explains "transport, a prediction: shm" --input device.cluster --explain 0,1
explains "transport, a prediction: shm, by --transport" -n 4 --explain 0 3
explains "rank 3: host 1" --explain 0 3 --hosts 2 -n 4
refused --explain 0 -n 4
expect_in "one rank" "--explain takes two ranks, as 0,5 or 0 5, not '0'" err
refused --explain 0 x -n 4
refused --explain 0 3 5 -n 6
expect_in "three ranks" "unknown argument '5'" err
refused --explain 0 16 -n 16 --levels $levels
expect_in "which ranks, with a space" "there are ranks 0 to 15" err
refused --explain 0,16 -n 16 --levels $levels
expect_in "which ranks" "there are ranks 0 to 15" err
refused --input "$machines/two_sites.cluster" --explain 64,0
expect_in "which ranks" "there are ranks 0 to 63" err
for slow in "" yes; do
  export slow
  # shellcheck disable=SC2016
  "$collrun" --timeout 60 -n 8 sh -c 'export COLL_HOST_ID=host$((COLL_RANK / 2)) COLL_LINK_SPEED=1gbit \
    COLL_LEVELS=site$((COLL_RANK / 4))@200mbit,20ms; [ -z "$slow" ] || [ "$COLL_RANK" -lt 6 ] || COLL_LINK_SPEED=100mbit
    "$0" --explain 0,7 > a.$COLL_RANK && "$0" --explain 4,7 > b.$COLL_RANK && "$0" --explain 2,3 > c.$COLL_RANK &&
    exec "$0" --save run.cluster' "$topo" > out 2> err || fail "a run: $(cat err)"
  for pair in a,0,7 b,4,7 c,2,3; do
    "$topo" --input run.cluster --explain "${pair#*,}" > described || fail "explains a file"
    for line in "^they are" "^the choice"; do
      expect "$pair as in the run" "$(grep "$line" "${pair%%,*}.0")" "$(grep "$line" described)"
    done
  done
done

# Rails, in a network of its own: two interfaces, of which each rank has the addresses.
apart="unshare -rn"
[ "$(id -u)" != 0 ] || apart="unshare -n"
# shellcheck disable=SC2016
rails() {
  $apart sh -c 'for i in 0 1; do ip link add d$i type veth peer name e$i && ip link set d$i up && ip link set e$i up && ip addr add 10.7.$i.1/24 dev d$i || exit 77; done
    ip link set lo up && export COLL_TCP_IFNAME=d0,d1 && exec "$@"' sh "$collrun" --timeout 60 -n 2 sh -c 'COLL_HOST_ID=host$COLL_RANK exec "$@"' sh "$topo" "$@" > out 2> err
}
if ! $apart ip link add d9 type veth peer name e9 2> err; then
  echo "not tested: rails, as no network with interfaces can be made here: $(tail -n 1 err)"
else
  rails --network rails.svg || fail "rails: $(cat err)"
  expect "labels" 2 "$(grep -c '<text class="rails".*>2 rails</text>' rails.svg)"
  expect "titles" 2 "$(grep -c ' bytes over 2 rails</title>' rails.svg)"
  rails --json rails.json --messages allreduce:1048576 || fail "rails as JSON: $(cat err)"
  python3 -c 'import json
run = json.load(open("rails.json"))
for link in run["links"] + run["messages"]["pairs"]:
    assert link["rail_count"] == 2 and link["unconnected_rail_count"] == 0, link
assert len(run["messages"]["pairs"]) == 2, run["messages"]
for link in run["links"]:
    assert len(link["ways"]) == 2, link
    assert link["ways"][1].startswith("d1 10.7.1.1 to "), link' 2> err || fail "rails as JSON: $(cat err)"
fi
finish
