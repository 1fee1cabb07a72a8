#!/bin/sh
# coll_topo --json has the facts of the text: of machine files, clusters, this machine, and of runs.
. "$(dirname "$0")/support.inc"
topo=$BUILD/bin/coll_topo machines=$SOURCE/tests/machines
check() {
  python3 "$SOURCE/tests/collrun/json_check.py" "$@" > out 2>&1 || fail "$*: $(cat out)"
}

# Each machine file, and some that are none: as the text has it.
for machine in "$machines"/*.xml "pack:2 numa:2 l3:2 l2:2 core:2 pu:2" pu:3; do
  "$topo" --input "$machine" -n 3 --json machine.json > out 2>&1 || fail "$machine: $(cat out)"
  [ ! -s out ] || fail "$machine: prints $(cat out)"
  "$topo" --input "$machine" -n 3 > text || fail "$machine"
  check machine machine.json text
done
for machine in dgxh100 nvidiaDGX2 power8gpudistances 32em64t-2n8c2t-pci-wholeio; do
  "$topo" --input "$machines/$machine.xml" --json $machine.json
done
check known .
"$topo" --json here.json || fail "this machine"
"$topo" > text || fail "this machine"
check machine here.json text
check here here.json text
"$topo" --input "numa:2 core:2 pu:1" -n 5 --json - > unbound.json
check unbound unbound.json

# What is not known is null, as 0 bytes of a cache would be a lie.
"$topo" --input pu:3 --json caches.json && python3 -c 'import json
machine = json.load(open("caches.json"))["machine"]
assert machine["l3_caches"] == {"count": 0, "bytes": None}, machine["l3_caches"]' 2> err || fail "null: $(cat err)"

# Names are text, whatever is in them.
sed 's/name="eth0"/name="\&quot;\&amp;\\e\&#x80;"/' "$machines/32em64t-2n8c2t-pci-wholeio.xml" > odd.xml
"$topo" --input odd.xml --json odd.json || fail "odd names"
python3 -c 'import json
names = [device["name"] for device in json.load(open("odd.json"))["machine"]["devices"]]
assert "\"&\\e\x80" in names, names' 2> err || fail "odd names: $(cat err odd.json)"

# Clusters.
for cluster in fat_tree two_sites; do
  "$topo" --input "$machines/$cluster.cluster" --json $cluster.json || fail "$cluster"
  "$topo" --input "$machines/$cluster.cluster" > text || fail "$cluster"
  check cluster $cluster.json text
done

# A run: hosts of two ranks, two in a rack, two racks at a site, of which the first hosts say how fast their links are.
run() {
  # shellcheck disable=SC2016
  "$collrun" --timeout 60 -n 16 sh -c 'export COLL_HOST_ID=host$((COLL_RANK / 2)) \
    COLL_LEVELS=site$((COLL_RANK / 8))@200mbit,20ms/rack$((COLL_RANK / 4)); exec "$@"' sh "$topo" "$@" > out 2> err ||
    fail "a run, $*: $(cat err)"
}
run --json run.json
[ ! -s out ] || fail "a run prints $(cat out)"
run
mv out text
check run run.json text
run --save run.cluster
"$topo" --input run.cluster --json saved.json || fail "saved"
check saved run.json saved.json
# What is sent, as pictures show it: of networks that do not run, of a file, and of a run; and all else as without it.
messages() {
  operation=$1
  shift
  "$topo" --json sent.json --messages "$operation" "$@" 2> err || fail "what is sent, $*: $(cat err)"
  "$topo" --network sent.svg --messages "$operation" "$@" 2> err || fail "a picture, $*: $(cat err)"
  check messages sent.json sent.svg "${operation%:*}" "${operation#*:}"
}
messages allreduce:65536 -n 6
messages allgather:64 -n 64 --hosts 8
messages broadcast:1048576 -n 512 --levels 8:500:0.1,64:20000:0.5,all:1e6:8
messages allreduce:1048576 -n 1200 --levels 2:500:0.1,8:20000:0.5,all:1e6:8
messages allreduce:1048576 --input run.cluster
run --json sent.json --messages allreduce:1048576
run --network sent.svg
check messages sent.json sent.svg allreduce 1048576
python3 -c 'import json
run, sent = json.load(open("run.json")), json.load(open("sent.json"))
assert set(sent) == set(run) | {"messages"} and sent["hosts"] == run["hosts"], sent.keys()' 2> err || fail "keys: $(cat err)"
for wrong in "-n 257" "--input $machines/dgxh100.xml" ""; do
  # shellcheck disable=SC2086
  "$topo" --json none.json --messages allreduce:4 $wrong 2> err && fail "took $wrong"
  expect "lines" 1 "$(wc -l < err)"
  [ ! -e none.json ] || fail "wrote $(cat none.json)"
done

# More ranks than a table has: no links of each pair.
COLL_TRANSPORT=shm "$collrun" --timeout 60 -n 33 "$topo" --json many.json 2> err || fail "33 ranks: $(cat err)"
check many many.json
"$collrun" --timeout 60 -n 1 "$topo" --json one.json || fail "one rank"
check here one.json text-of-none

# GPUs, of the fake driver and NVML.
if [ -e "$BUILD/tests/plugins/fake_gpu.so" ]; then
  mkdir lib
  ln -s "$BUILD/tests/plugins/fake_gpu.so" lib/libcuda.so.1
  ln -s "$BUILD/tests/plugins/fake_nvml.so" lib/libnvidia-ml.so.1
  echo 'leak:libcuda.so.1' > leaks # the fake driver keeps what real ones keep
  LSAN_OPTIONS="${LSAN_OPTIONS:+$LSAN_OPTIONS:}suppressions=$scratch/leaks" \
    LD_LIBRARY_PATH="$scratch/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" GPU_DEVICES=4 GPU_PEERS=0110110111010010 \
    FAKE_NVML='11s- 00ss 3?s 2ss' "$topo" --json gpus.json 2> err || fail "GPUs: $(cat err)"
  check gpus gpus.json
fi

# What does not go together, and files that cannot be written.
for more in "--svg a.svg" "--xml a.xml" "--explain 0,1" "--network a.svg" "--save a.cluster"; do
  # shellcheck disable=SC2086
  "$topo" --json a.json $more 2> err && fail "took --json and $more"
  expect_in "$more" "--json stands alone" err
done
"$topo" --json /no/such/file 2> err && fail "wrote /no/such/file"
expect_in "no such file" "/no/such/file: No such file" err
echo before > kept.json
sed 's/^<topology/<nothing/' "$machines/two_sites.cluster" > bad.cluster
"$topo" --input bad.cluster --json kept.json 2> err && fail "wrote a machine that cannot be read"
expect "lines" 1 "$(wc -l < err)"
expect "half a file" "before" "$(cat kept.json)"
finish
