#!/bin/sh
# Works, futures, groups and forks, with 1 to 4 ranks, over shared memory and TCP.
set -eu
. "$(dirname "$0")/support.inc"
run 1 test_works.py
run 4 test_works.py
COLL_TRANSPORT=tcp run 2 test_works.py
