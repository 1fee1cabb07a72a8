#!/bin/sh
# The Python package with 1 to 4 ranks, over shared memory and TCP.
set -eu
. "$(dirname "$0")/support.inc"
for ranks in 1 2 3 4; do
  run $ranks test_operations.py
done
COLL_TRANSPORT=tcp run 3 test_operations.py
