#!/bin/bash
# coll_perf --memory cuda on the fake driver, whose memory the host cannot access (GPU_HIDDEN): every collective, type
# and operation, in a stream, in graphs and blocking, as threads and as processes; failures; and no driver at all.
. "$(dirname "$0")/../common/perf.inc"
all=(allreduce reduce reduce_scatter reduce_scatterv scan exscan broadcast allgather allgatherv gather gatherv scatter
  scatterv alltoall alltoallv barrier sendrecv reduce_broadcast)

# use_driver FILE: what the loader finds as libcuda.so.1.
use_driver() {
  mkdir -p "$out/lib"
  ln -sf "$1" "$out/lib/libcuda.so.1"
}

# tables N: the last output must have N tables without wrong values.
tables() {
  [ "$(grep -c 'values : 0 OK' "$out/log")" = "$1" ] || { echo "FAILED: $1 tables without wrong values"; failed=1; }
}

use_driver "$BUILD/tests/plugins/fake_gpu.so"
export LD_LIBRARY_PATH=$out/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} GPU_DEVICES=2 GPU_HIDDEN=1
sizes=(-b 4 -e 4K -f 32 -n 3 -w 1)
for blocking in 0 1; do
  calls=stream
  [ $blocking = 0 ] || calls=blocking
  cuda=(--memory cuda --blocking "$blocking")
  for ranks in 1 3; do
    check "all collectives, $calls, $ranks threads" "$perf" "${all[@]}" -t $ranks "${cuda[@]}" "${sizes[@]}"
    tables ${#all[@]}
    where=staged
    [ $blocking$ranks = 03 ] && where=direct
    has "# memory: cuda, $where.* calls: $calls; rank 0 on GPU 0 of 2"
  done
  check "all collectives, $calls, 3 processes" "$run" -n 3 "$perf" "${all[@]}" "${cuda[@]}" "${sizes[@]}" -r -1
  tables ${#all[@]}
  for collective in allreduce reduce_scatterv scan; do
    check "$collective, $calls, all types and operations" "$perf" $collective -t 3 "${cuda[@]}" -d all -o all \
      -b 300 -e 300 -n 1 -w 0
    tables 1
  done
  check "every type, moved, $calls" "$perf" alltoallv -t 3 "${cuda[@]}" -d all -b 4K -e 4K -n 1 -w 0
  tables 1
  for pattern in ring pairs both; do
    check "windows, $pattern, $calls" "$run" -n 3 "$perf" sendrecv "${cuda[@]}" --window 256 --pattern $pattern \
      -b 4 -e 1K -f 256 -n 2 --percentiles
    tables 1
    check "messages, $pattern, $calls" "$perf" sendrecv -t 2 "${cuda[@]}" --pattern $pattern -b 4 -e 1K -f 256 -n 2
    tables 1
  done
  check "more operations than a stream takes at once, $calls" "$perf" allreduce -t 2 "${cuda[@]}" -b 4 -e 4 \
    -n 150 -w 70 --percentiles --json "$out/json"
  tables 1
  python3 - "$out/json" $calls <<'END_PYTHON' || failed=1
import json, sys
run = json.load(open(sys.argv[1]))
assert run["memory"] == "cuda" and run["staged"] == (sys.argv[2] == "blocking") and run["calls"] == sys.argv[2], run
half = run["results"][0]["out_of_place"]
assert half["wrong"] == 0 and 0 < half["min_us"] <= half["max_us"], half
END_PYTHON
  check "every algorithm, $calls" "$perf" reduce -t 3 "${cuda[@]}" -b 4 -e 4 -n 2 -w 1 --algo all
  tables 1
done
for mode in staged ordered spin; do
  COLL_GPU_MODE=$mode GPU_DEVICES=4 check "all collectives, mode $mode, 4 processes" "$run" -n 4 "$perf" "${all[@]}" \
    --memory cuda "${sizes[@]}"
  tables ${#all[@]}
done
graph=(--memory cuda -G 3)
for mode in staged ordered spin; do
  export COLL_GPU_MODE=$mode GPU_DEVICES=3
  check "all collectives, graphs, mode $mode, 3 threads" "$perf" "${all[@]}" -t 3 "${graph[@]}" "${sizes[@]}"
  tables ${#all[@]}
  has "calls: graph; rank 0 on GPU 0 of 3"
  check "all collectives, graphs, mode $mode, 3 processes" "$run" -n 3 "$perf" "${all[@]}" "${graph[@]}" \
    "${sizes[@]}" -r -1
  tables ${#all[@]}
  check "a graph with more operations than it takes, mode $mode" "$perf" reduce_scatter -t 2 "${graph[@]}" -b 16 -e 16 \
    -n 150 --percentiles --json "$out/json" --csv "$out/csv"
  tables 1
  python3 - "$out/json" $mode <<'END_PYTHON' || failed=1
import json, sys
run = json.load(open(sys.argv[1]))
assert run["calls"] == "graph" and run["graph_launches"] == 3 and run["staged"] == (sys.argv[2] == "staged"), run
line = run["results"][0]
half = line["in_place"]
assert line["iters"] == 64 and half["wrong"] == 0 and 0 < half["min_us"] <= half["max_us"], line
END_PYTHON
done
# A driver that allocates, and makes graphs, only when all streams of the process are idle.
for mode in spin meet ordered; do
  export COLL_GPU_MODE=$mode GPU_DEVICES=3
  [ $mode != meet ] || GPU_DEVICES=1
  for calls in 0 2; do
    GPU_STRICT=1 check "a strict driver, mode $mode, $calls graphs" "$perf" allreduce alltoall -t 3 --memory cuda \
      -G $calls -b 4,1K -n 2 -w 1 -T 10
    tables 2
  done
done
unset COLL_GPU_MODE
export GPU_DEVICES=2
check "windows in graphs" "$run" -n 3 "$perf" sendrecv "${graph[@]}" --window 64 --pattern pairs -b 4 -e 1K -f 256 -n 2
tables 1
check "every algorithm, graphs" "$perf" reduce -t 3 "${graph[@]}" -b 4 -e 4 -n 2 --algo all
tables 1
check "levels of determinism, graphs" "$perf" allreduce -t 3 "${graph[@]}" -b 1K -e 1K -w 0 --deterministic all
check "no graph" "$perf" allreduce -t 2 --memory host -b 4 -e 4 -n 2 -G 0
check "levels of determinism" "$perf" allreduce -t 3 --memory cuda -b 1K -e 1K -n 2 -w 1 --deterministic all
check "iterations are chosen" "$perf" allreduce -t 2 --memory cuda -b 4 -e 4
check "without checks" "$perf" allreduce -t 2 --memory cuda -b 4 -e 4K -n 2 -c 0
check "overlap" "$perf" allreduce -t 2 --memory cuda -b 4K -e 4K -n 2 --overlap device --json "$out/json"
has "calls: nonblocking" "0 OK"
GPU_DEVICES=1 check "two ranks on one GPU" "$run" -n 2 "$perf" allreduce --memory cuda -b 4 -e 4 -n 2
has "GPU 0 of 1" "0 OK"
# shellcheck disable=SC2016
refuse "rank 1 is on GPU 1" "^coll_perf: cuMemAlloc on GPU 1" "$run" -n 2 sh -c \
  'COLL_GPU_MODE=staged GPU_FAIL=$((12 * COLL_RANK)) exec "$0" "$@"' "$perf" allreduce --memory cuda -b 64 -e 64

# Whichever of the driver's first calls fails: coll_perf says so, or libcoll does without. One makes a stream wait, and
# some make a graph.
for call in {1..70} graph-{40..90}; do
  options=(-w 1)
  [ "${call%-*}" = "$call" ] || options=(-w 0 -G 2)
  GPU_FAIL=${call#*-} "$perf" allreduce -t 1 --memory cuda -b 64 -e 64 -n 2 -T 5 "${options[@]}" >"$out/one" 2>&1
  status=$?
  cat "$out/one" >>"$out/calls"
  [ $status = 0 ] && continue
  { [ $status = 1 ] && grep -q "^coll_perf: " "$out/one"; } || {
    echo "FAILED: call $call of the driver fails (status $status)"
    tail -n 5 "$out/one"
    failed=1
  }
done
cp "$out/calls" "$out/log"
has "coll_perf: cuMemAlloc on GPU 0" "cuStreamWaitValue32 on GPU 0" "coll_perf: cuStreamBeginCapture on GPU 0" \
  "coll_perf: cuStreamEndCapture on GPU 0" "coll_perf: cuGraphInstantiate on GPU 0" "coll_perf: cuGraphLaunch on GPU 0"

# No GPU, no driver, another library, bad usage.
GPU_DEVICES=0 refuse "no GPU" "nvidia-smi" "$perf" allreduce -t 2 --memory cuda
use_driver /dev/null
refuse "no driver" "cannot be loaded .*install the NVIDIA driver.*leave out --memory cuda" \
  "$perf" allreduce -t 2 --memory cuda
refuse "no driver, processes" "cannot be loaded" "$run" -n 2 "$perf" allreduce --memory cuda
check "no driver, host memory" "$perf" allreduce -t 2 --memory host -b 4 -e 4 -n 2
use_driver "$BUILD/tests/plugins/tuner_example.so"
refuse "a library that is no driver" "has no cuInit" "$perf" allreduce -t 2 --memory cuda

refuse "another memory" "takes host or cuda" "$perf" allreduce -t 2 --memory rocm
refuse "a stream without a GPU" "needs --memory cuda" "$perf" allreduce -t 2 --blocking 0
refuse "overlap in a stream" "in no stream" "$perf" allreduce -t 2 --memory cuda --blocking 0 --overlap cpu
refuse "graphs without a GPU" "graph needs calls in a stream" "$perf" allreduce -t 2 -G 2
refuse "graphs of blocking calls" "graph needs calls in a stream" "$perf" allreduce -t 2 --memory cuda -z 1 -G 2
refuse "graphs behind work" "graph needs calls in a stream" "$perf" allreduce -t 2 --memory cuda --overlap cpu -G 2
refuse "fewer than no graph" "not a number in range" "$perf" allreduce -t 2 --memory cuda -G -1
refuse "coll_mem_alloc() of GPU memory" "local_register" "$perf" allreduce -t 2 --memory cuda -R 1
exit $failed
