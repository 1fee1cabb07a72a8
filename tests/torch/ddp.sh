#!/bin/sh
# DistributedDataParallel over libcoll, against gloo.
set -eu
. "$(dirname "$0")/support.inc"
run 2 test_ddp.py
run 3 test_ddp.py
