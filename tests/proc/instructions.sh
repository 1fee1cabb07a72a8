#!/bin/bash
# The instructions of a 4-byte all-reduce of two ranks, counted by callgrind, have not grown by more
# than a tenth over tests/proc/instructions.txt.
set -euo pipefail
program=$BUILD/tests/proc_plain_instructions
stored=$SOURCE/tests/proc/instructions.txt
rounds=1000

skip() {
  echo "skipped: $1"
  exit 77
}

cached() {
  sed -n "s/^$1:[A-Z]*=//p" "$BUILD/CMakeCache.txt"
}

[ -z "$(cached COLL_SANITIZE)" ] || skip "sanitizers add instructions"
[ "$(cached CMAKE_BUILD_TYPE)" = Release ] || skip "the stored count is of a Release build"
command -v valgrind >/dev/null || skip "valgrind is not installed"
compiler=$("$(cached CMAKE_C_COMPILER)" -dumpversion | cut -d. -f1)-$(uname -m)
before=$(sed -n "s/^$compiler \([0-9]*\)\$/\1/p" "$stored")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

valgrind --tool=callgrind --callgrind-out-file="$dir/out" --collect-atstart=no \
  --toggle-collect=counted_allreduce "$program" 2>"$dir/log" || {
  cat "$dir/log"
  exit 1
}
total=$(sed -n 's/^summary: \([0-9]*\).*/\1/p' "$dir/out")
now=$((total / rounds))
echo "instructions of both ranks for one all-reduce: $now (stored: ${before:-none}, $compiler)"
[ "$now" -gt 0 ] || exit 1
[ -n "$before" ] || skip "no count is stored for $compiler; add the line '$compiler $now' to $stored"
if [ $((now * 10)) -gt $((before * 11)) ]; then
  echo "more than a tenth more than before; find out why, or store the new count if it is worth it"
  exit 1
fi
