#!/bin/sh
# coll_topo writes machines: as XML, which it reads again, and as pictures that hold everything and can be read.
. "$(dirname "$0")/support.inc"
topo=$BUILD/bin/coll_topo
tests=$SOURCE/tests/collrun

# What is printed of a machine, without its name.
show() {
  "$topo" --input "$1" -n 3 | sed '1s/.*: packages/packages/' || fail "cannot read $1"
}

# round MACHINE: the XML says the same as the machine, and stays the same.
round() {
  "$topo" --input "$1" --xml a.xml > out 2>&1 || fail "$1: $(cat out)"
  [ ! -s out ] || fail "$1: $(cat out)"
  show "$1" > one
  show a.xml > two
  cmp one two || fail "$1: $(diff one two)"
  "$topo" --input a.xml --xml - > b.xml || fail "$1: cannot write again"
  "$topo" --input b.xml --xml - | cmp - b.xml || fail "$1: the XML changes"
}

# draw MACHINE CLASS=COUNT...
draw() {
  machine=$1
  shift
  for ranks in "" "-n 96"; do
    # shellcheck disable=SC2086
    "$topo" --input "$machine" $ranks --svg a.svg > out 2>&1 || fail "$machine: $(cat out)"
    [ ! -s out ] || fail "$machine: $(cat out)"
    python3 "$tests/picture.py" a.svg "$@" > out 2>&1 || fail "$machine $ranks: $(cat out)"
  done
}

for machine in "$SOURCE"/tests/machines/*.xml "pack:2 numa:2 l3:2 l2:2 core:2 pu:2" pu:3 "numa:2 core:3 pu:1"; do
  round "$machine"
done
draw "$SOURCE/tests/machines/32em64t-2n8c2t-pci-wholeio.xml" package=2 node=2 l3=2 l2=16 core=16 device=6
draw "$SOURCE/tests/machines/96em64t-4n4d3ca2co-pci.xml" package=16 node=4 l3=16 l2=48 core=96 device=8
draw "$SOURCE/tests/machines/nvidiaDGX2.xml" package=2 node=2 core=4 device=16
expect "NVLinks" 16 "$(grep -c '>GPU nvml[0-9]*: NVLinks: 1200 Gbit/s to 6 switches<' a.svg)"
expect "NVLinks of boxes" 16 "$(grep -c 'GPU nvml[0-9]*; NVLinks: 1200 Gbit/s to 6 switches</title>' a.svg)"
draw "$SOURCE/tests/machines/dgxh100.xml" package=2 node=2 core=8 device=24
expect "nearest cards" 8 "$(grep -c 'GPU nvml\([0-7]\); nearest network: mlx5_\1/ib\1 (same switch)</title>' a.svg)"
draw "$SOURCE/tests/machines/2socket4nic.xml" package=2 node=2 core=8 device=4
draw "$SOURCE/tests/machines/power8gpudistances.xml" package=2 node=2 core=8 device=4
"$topo" --input "$SOURCE/tests/machines/power8gpudistances.xml" > out || fail "NVLinks"
expect_in "NVLinks" "GPU nvml2 at 000a:01:00.0, 126.031 Gbit/s; NVLinks: 320 Gbit/s to nvml3, 320 Gbit/s to package 1" out
expect "NVLinks of pairs" "nvml1 320 - 0 0" "$(sed -n '/over NVLinks/,/^$/p' out | awk '$1 == "nvml1" && NF == 5 { $1 = $1; print }' | tail -n 1)"
draw "pack:2 numa:4 l3:4 l2:8 core:1 pu:2" package=2 node=8 l3=32 l2=256 core=256
draw "pack:2 l3:1 numa:2 core:3 pu:2" package=2 l3=2 node=4 core=12
draw "[numa] pack:2 [numa] core:2 pu:1" package=2 node=3 core=4
draw pu:1 core=1

# A core's ranks, and that there is none.
"$topo" --input "numa:2 core:2 pu:1" -n 8 --svg a.svg || fail "8 ranks"
expect "ranks" "ranks 0-1,ranks 2-3,ranks 4-5,ranks 6-7," "$(sed -n 's/.*>\(ranks [0-9-]*\)<.*/\1/p' a.svg | tr '\n' ,)"
"$topo" --input "numa:2 core:2 pu:1" -n 5 --svg a.svg || fail "5 ranks"
expect_in "not bound" "ranks would not be bound to cores" a.svg

# This machine, alone and in a run; it may be read as COLL_TOPO_FILE.
"$topo" --xml here.xml --svg here.svg || fail "this machine"
python3 "$tests/picture.py" here.svg core="$("$topo" -n 1 | sed -n '1s/.*cores \([0-9]*\) (.*/\1/p')" > out 2>&1 || fail "this machine: $(cat out)"
"$topo" -n 1 | sed '1d; /^network/,/^$/d; /^GPUs/,$d; /^  rank 0/,$d' | sed -n 's/cores .*//; /package\|node\|cache\|network/p' > one
"$topo" --input here.xml -n 1 | sed '1d; /^network/,/^$/d; /^GPUs/,$d; /^  rank 0/,$d' | sed -n 's/cores .*//; /package\|node\|cache\|network/p' > two
cmp one two || fail "this machine: $(diff one two)"
"$topo" --input here.xml > one
COLL_TOPO_FILE=here.xml "$topo" > two || fail "COLL_TOPO_FILE"
cmp one two || fail "COLL_TOPO_FILE: $(cat two)"
"$collrun" --timeout 60 -n 3 sh -c 'COLL_HOST_ID=host$((COLL_RANK / 2)) exec "$0" --svg run.svg --xml run.xml' "$topo" > out 2> err ||
  fail "in a run: $(cat err)"
python3 "$tests/picture.py" run.svg > out 2>&1 || fail "in a run: $(cat out)"
[ ! -s out ] || fail "in a run: $(cat out)"
expect "ranks that run" 0 "$(grep -c 'forbidden"' run.svg)"
expect_in "other host" "rank 2: on another host" run.svg
expect_in "links" "tcp, 4 links (the first from 0 to 2)" run.svg
"$topo" --input run.xml > out || fail "the XML of a run"

# Names are nothing but text, and long ones are cut.
evil='\&lt;g class=\&quot;core\&quot;\&gt;\&amp;amp;-and-a-name-that-is-much-too-long'
mkdir 'a<b>&"c'
sed "s/name=\"eth0\"/name=\"$evil\"/" "$SOURCE/tests/machines/32em64t-2n8c2t-pci-wholeio.xml" > 'a<b>&"c/"x".xml'
round 'a<b>&"c/"x".xml'
sed 's/is-much/is-é-much/' 'a<b>&"c/"x".xml' > e.xml # hwloc writes no letters but English ones
mv e.xml 'a<b>&"c/"x".xml'
draw 'a<b>&"c/"x".xml' core=16 device=6
expect_in "its name" "&lt;g class=&quot;core&quot;&gt;&amp;amp;-and-a-name-that-is-é-much-too-long</title>" a.svg
expect_in "its name, cut" "…</text>" a.svg

# Files that cannot be written.
for bad in --svg --xml; do
  "$topo" $bad /no/such/file 2> err && fail "$bad wrote /no/such/file"
  expect_in "$bad" "/no/such/file: No such file" err
  [ ! -c /dev/full ] || ! "$topo" $bad /dev/full 2> err || fail "$bad wrote to a full disk"
done
"$topo" --input /no/such.xml --svg x.svg 2> err && fail "drew /no/such.xml"
[ ! -e x.svg ] || fail "a file without a machine"
finish
