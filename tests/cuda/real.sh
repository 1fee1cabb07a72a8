#!/bin/sh
# Tests with TEST_GPU=real, on a fake driver that they take for the system's: one GPU, whose memory only the driver can
# reach, and none of the fake's own functions. So that they work on a real driver, too.
set -eu
lib=$(mktemp -d)
trap 'rm -rf "$lib"' EXIT
ln -s "$BUILD/tests/plugins/fake_gpu.so" "$lib/libcuda.so.1"
export LD_LIBRARY_PATH="$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" TEST_GPU=real GPU_HIDDEN=1 GPU_DEVICES=1 GPU_QUEUES=128
for name in direct_bits direct_streams programs order registered virtual parts; do
  "$SOURCE/tests/leaks.sh" "$BUILD/tests/cuda_test_$name"
done
