#!/bin/sh
# coll_topo shows GPUs, their links, and the modes of calls in streams: on the fake driver, with and without a library
# that knows NVLinks, on a machine from a file.
. "$(dirname "$0")/support.inc"
topo=$BUILD/bin/coll_topo
loaded=${LD_LIBRARY_PATH:-}
export LSAN_OPTIONS="${LSAN_OPTIONS:+$LSAN_OPTIONS:}suppressions=$scratch/leaks"
echo 'leak:libcuda.so.1' > leaks # the fake driver keeps what real ones keep

# use NAME FILE: what the loader finds under a name.
use() {
  mkdir -p "$scratch/lib"
  ln -sf "$2" "$scratch/lib/$1"
  export LD_LIBRARY_PATH="$scratch/lib${loaded:+:$loaded}"
}

# show ARGS...: the output of coll_topo, in `out`.
show() {
  "$topo" "$@" > out 2> err || fail "coll_topo $*: $(cat err)"
  [ ! -s err ] || fail "coll_topo $*: $(cat err)"
}

# row TITLE N: row N of the table with a title, with one space between its cells.
row() {
  awk -v title="$1" -v row="$2" 'index($0, title) == 1 { line = 1; next } $0 == "" { line = 0 }
    line > 0 && ++line > 2 && $1 == row { $1 = ""; print substr($0, 2) }' out
}

# A machine whose first GPUs have the addresses of the fake driver's.
sed 's/0000:34:00.0/0000:01:00.0/; s/0000:36:00.0/0000:02:00.0/; s/0000:57:00.0/0000:03:00.0/; s/0000:e0:00.0/0000:04:00.0/' \
  "$SOURCE/tests/machines/nvidiaDGX2.xml" > dgx.xml

# No driver; one without devices; one that is none. The rest of the output is the same.
use libcuda.so.1 /dev/null
show -n 2
expect_in "no driver" "  none: CUDA's driver cannot be loaded" out
expect "one line" 1 "$(sed -n '/^GPUs/,/^$/p' out | grep -c none)"
sed '/^GPUs/,/^$/d' out > without
use libcuda.so.1 "$BUILD/tests/plugins/fake_gpu.so"
GPU_DEVICES=0 show -n 2
expect_in "no GPU" "  none: " out
sed '/^GPUs/,/^$/d' out | cmp - without || fail "no GPU: $(cat out)"
use libcuda.so.1 "$BUILD/tests/plugins/tuner_example.so"
show -n 2
expect_in "not a driver" "has no cuInit" out

# One GPU.
use libcuda.so.1 "$BUILD/tests/plugins/fake_gpu.so"
use libnvidia-ml.so.1 /dev/null
export GPU_DEVICES=1
show
expect_in "version" "GPUs, by CUDA 12.4" out
expect_in "GPU" "  GPU 0: software GPU, GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a00, at 0000:01:00.0" out
expect_in "no NVML" "  NVLinks are not known: " out
expect_in "shared" "  ordered, ranks on one GPU: ranks that share a GPU must not spin; meet if " out
expect "tables" 0 "$(grep -c '^peer access' out)"

# Four, with every kind of pair.
export GPU_DEVICES=4 GPU_PEERS=0110110111010010 HWLOC_XMLFILE="$scratch/dgx.xml"
export FAKE_NVML='11s- 00ss 3?s 2ss'
use libnvidia-ml.so.1 "$BUILD/tests/plugins/fake_nvml.so"
show
expect_in "place" "at 0000:04:00.0, NUMA node 1, package 1; NVLinks: 1 to GPU 2, 2 to switches" out
expect_in "links" "at 0000:03:00.0, NUMA node 0, package 0; NVLinks: 1 to GPU 3, 1 to switches, 1 to other devices" out
expect "access 0" "- yes:0 yes:0 no" "$(row 'peer access' 0)"
expect "access 2" "yes:0 yes:0 - yes:0" "$(row 'peer access' 2)"
expect "links 0" "- 2 switch:1 switch:1" "$(row 'NVLinks' 0)"
expect "links 3" "switch:1 switch:2 1 -" "$(row 'NVLinks' 3)"
expect "distance 0" "- switch node system" "$(row 'PCI' 0)"
expect "mode 0" "ordered spin spin staged" "$(row 'mode' 0)"
expect "mode 2" "spin staged ordered spin" "$(row 'mode' 2)"
expect_in "spin" "  spin, 3 pairs of GPUs (the first 0 and 1): different GPUs with peer access" out
expect_in "none" "  staged, 1 pair of GPUs (the first 0 and 3): no peer access" out
expect_in "one way" "  staged, 2 pairs of GPUs (the first 1 and 2): peer access in one direction only" out
FAKE_NVML_FAIL=1 show
expect_in "NVML fails" "NVLinks are not known: libnvidia-ml.so.1: nvmlInit failed with error 999" out

# Settings.
COLL_GPU_MODE=staged show
expect_in "staged" "  staged, 6 pairs of GPUs (the first 0 and 1): COLL_GPU_MODE is staged" out
COLL_GPU_MODE=ordered show
expect "ordered" "ordered ordered ordered staged" "$(row 'mode' 0)"
COLL_GPU_MODE=spin show
expect_in "spin" "  staged, ranks on one GPU: COLL_GPU_MODE is spin, which could hang" out
COLL_GPU_MODE=meet show
expect "meet" "meet staged staged staged" "$(row 'mode' 0)"

# Pictures. A GPU for which hwloc has no device is drawn as well.
show --svg a.svg
python3 "$SOURCE/tests/collrun/picture.py" a.svg device=16 > out 2>&1 || fail "the picture: $(cat out)"
expect_in "picture" "GPU 3: software GPU" a.svg
expect_in "picture" "calls in streams: spin, 3 pairs" a.svg
sed '/<object type="OSDev" .*"nvml1"/,/<\/object>/d' dgx.xml > less.xml
HWLOC_XMLFILE=less.xml show --svg a.svg
python3 "$SOURCE/tests/collrun/picture.py" a.svg device=16 > out 2>&1 || fail "the picture: $(cat out)"
expect_in "not in hwloc" "GPU cuda1</text>" a.svg
show --xml b.xml
unset HWLOC_XMLFILE

# CUDA's GPUs know the cards next to them.
sed 's/0000:1b:00.0/0000:01:00.0/; s/0000:9d:00.0/0000:02:00.0/' "$SOURCE/tests/machines/dgxh100.xml" > cards.xml
HWLOC_XMLFILE=cards.xml show
expect_in "a card" "at 0000:01:00.0, NUMA node 0, package 0, nearest network: mlx5_0/ib0 (same switch)" out
expect_in "another" "at 0000:02:00.0, NUMA node 1, package 1, nearest network: mlx5_4/ib4 (same switch)" out

# A rank that sees one GPU prefers the interface next to it; here of a /sys of our own, where eth0 comes first otherwise.
if unshare -mn true 2>/dev/null; then
  cat > sys.sh <<'END'
set -e
for i in 0 1; do ip link add eth$i type veth peer name end$i; ip addr add 10.$i.0.1/24 dev eth$i; done
for link in lo eth0 eth1 end0 end1; do ip link set $link up; done
mount -t tmpfs sys /sys && cd /sys
port=devices/pci0000:40/0000:40:01.0/0000:41:00.0
mkdir -p $port/0000:42:00.0/0000:01:00.0 $port/0000:42:01.0/0000:43:00.0 devices/pci0000:50/0000:51:00.0 bus/pci/devices
for device in $port/0000:42:00.0/0000:01:00.0 $port/0000:42:01.0/0000:43:00.0; do ln -s ../../../$device bus/pci/devices; done
for i in 0 1; do mkdir -p class/net/eth$i; echo 1000 > class/net/eth$i/speed; done
ln -s /sys/devices/pci0000:50/0000:51:00.0 class/net/eth0/device
ln -s /sys/$port/0000:42:01.0/0000:43:00.0 class/net/eth1/device
END
  for visible in 0 ""; do
    # shellcheck disable=SC2016
    COLL_TRANSPORT=tcp COLL_LOG=info GPU_DEVICES=1 GPU_PEERS=1 CUDA_VISIBLE_DEVICES=$visible COLL_TOPO_FILE="core:2 pu:1" unshare -mn \
      sh -c '. ./sys.sh; cd "$1"; exec "$2" --timeout 60 -n 2 --bind none "$3"' sh "$scratch" "$collrun" "$topo" > out 2> err ||
      fail "a /sys of our own: $(cat err)"
    expect "whose GPU is known" "$([ -n "$visible" ] && echo 2 || echo 0)" \
      "$(grep -c 'info: tcp offers eth1 first, same switch as its GPU 0000:01:00.0$' err)"
  done
else
  echo "not tested: interfaces next to GPUs, as no namespaces can be made here"
fi

# Other machines have none of this one's GPUs; a run shows them once.
show --input dgx.xml
expect "another machine" 0 "$(grep -c 'software GPU' out)"
COLL_TOPO_FILE=dgx.xml show
expect "COLL_TOPO_FILE" 0 "$(grep -c 'software GPU' out)"
show --input dgx.xml --svg a.svg
expect "its picture" 0 "$(grep -c 'software GPU' a.svg)"
"$collrun" --timeout 60 -n 2 "$topo" > out 2> err || fail "in a run: $(cat err)"
expect "in a run" 1 "$(grep -c 'GPU 0: software GPU' out)"
"$collrun" --timeout 60 -n 2 "$topo" --svg run.svg > out 2> err || fail "in a run: $(cat err)"
expect_in "picture of a run" "GPU 0: software GPU" run.svg

# Whichever of the driver's first calls fails, coll_topo says what it can.
for call in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  GPU_FAIL=$call "$topo" -n 1 > out 2> err || fail "call $call of the driver fails: $(cat err)"
  grep -q '^GPUs' out || fail "call $call of the driver fails: $(cat out)"
done
finish
