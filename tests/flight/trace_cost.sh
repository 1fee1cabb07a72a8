#!/bin/bash
# The instructions that COLL_TRACE adds to an operation of one rank, counted by callgrind: a trace must cost less than
# 3 % of an all-reduce of 64 KiB. flight_trace_cost measures the time.
set -euo pipefail
program=$BUILD/tests/proc_plain_instructions
operations=2000
most=800 # at some 5 for each nanosecond, a sixth of a microsecond
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

. "$SOURCE/tests/common/callgrind.inc"

# count FILE: the instructions of all operations, with a trace in FILE if it is not empty.
count() {
  COLL_TRACE=$1 valgrind --tool=callgrind --callgrind-out-file="$dir/out" --collect-atstart=no \
    --toggle-collect=counted_allreduce "$program" >"$dir/log" 2>&1 || { cat "$dir/log" >&2; exit 1; }
  sed -n 's/^summary: \([0-9]*\).*/\1/p' "$dir/out"
}
without=$(count "")
with=$(count "$dir/trace")
[ -s "$dir/trace.0" ] && [ -s "$dir/trace.1" ] || { echo "no trace was written"; exit 1; }
added=$(((with - without) / operations))
echo "a trace adds $added instructions to an operation; $most are allowed"
[ "$added" -gt 0 ] && [ "$added" -le $most ]
