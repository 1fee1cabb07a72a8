#!/bin/sh
# Every operation of torch.distributed over libcoll, against gloo, under torchrun.
set -eu
. "$(dirname "$0")/support.inc"
run 3 test_operations.py
