#!/bin/bash
# SASS in direct calls, on the fake driver: which code the kernels are from, as COLL_LOG=info says, and right results,
# with SASS for the device, with none for it, and with a driver that refuses it.
. "$(dirname "$0")/../common/perf.inc"
mkdir -p "$out/lib"
ln -sf "$BUILD/tests/plugins/fake_gpu.so" "$out/lib/libcuda.so.1"
export LD_LIBRARY_PATH=$out/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} COLL_LOG=info GPU_DEVICES=3
direct=(allreduce reduce_scatter allgather alltoall --memory cuda -b 4 -e 4K -f 32 -n 2 -w 1)

# runs WHAT CODE: results in all modes are right, and the kernels are from this code, which each process says once.
runs() {
  for mode in ordered spin; do
    COLL_GPU_MODE=$mode check "$1, mode $mode, processes" "$run" -n 3 "$perf" "${direct[@]}"
    has "kernels of GPU [0-2]: $2" "values : 0 OK" "stay in GPU memory, mode $mode"
    lines=$(grep -c "kernels of GPU" "$out/log")
    [ "$lines" = 3 ] || { echo "FAILED: $lines lines about kernels, not one a process" && failed=1; }
  done
  COLL_GPU_MODE=meet GPU_DEVICES=1 check "$1, mode meet" "$perf" "${direct[@]}" -t 3
  has "kernels of GPU 0: $2" "stay in GPU memory, mode meet"
}

GPU_ARCH=7.2 runs "no SASS for the device" "PTX, compiled by the driver"
first=$(grep -o 'COLLI_GPU_SASS=[^0-9]*[0-9]*' "$BUILD/compile_commands.json" | grep -oE '[0-9]+$' | head -n 1)
[ "$failed" = 0 ] || exit 1
[ -n "$first" ] || { echo "left out: SASS, because this build has none" && exit 77; }
export GPU_ARCH=${first%?}.${first: -1}
runs "SASS" "SASS for sm_$first\$"
GPU_SASS_ERROR=200 runs "an older driver" "PTX, compiled by the driver, .* error 200, CUDA_ERROR_INVALID_IMAGE"
exit "$failed"
