#!/bin/sh
# The tests of the fake driver again with GPU_HIDDEN=1: what they test must not depend on it.
set -eu
export GPU_HIDDEN=1
for test in "$BUILD"/tests/gpu_test_driver*; do
  "$SOURCE/tests/leaks.sh" "$test"
done
