#!/bin/bash
# The instructions of a 4-byte all-reduce of two ranks, of a 4-byte isend and irecv in a window of 64 (each with its wait;
# irecv: of a message that has arrived, post: of one that comes later), and of a duplicate of a communicator,
# counted by callgrind, have not grown by more than a tenth over tests/proc/instructions.txt.
set -euo pipefail
program=$BUILD/tests/proc_plain_instructions
stored=$SOURCE/tests/proc/instructions.txt
rounds=1000

. "$SOURCE/tests/common/callgrind.inc"
compiler=$("$(cached CMAKE_C_COMPILER)" -dumpversion | cut -d. -f1)-$(uname -m)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# Counts one function of the program. WHAT is its name in the file, DIVISOR how many it runs.
count() {
  local what=$1 function=$2 divisor=$3 before total now
  before=$(sed -n "s/^$compiler $what \([0-9]*\)\$/\1/p" "$stored")
  valgrind --tool=callgrind --callgrind-out-file="$dir/out" --collect-atstart=no \
    --toggle-collect="$function" "$program" 2>"$dir/log" || {
    cat "$dir/log"
    exit 1
  }
  total=$(sed -n 's/^summary: \([0-9]*\).*/\1/p' "$dir/out")
  now=$((total / divisor))
  echo "instructions for one $what: $now (stored: ${before:-none}, $compiler)"
  [ "$now" -gt 0 ] || exit 1
  [ -n "$before" ] || skip "no count is stored for $compiler; add the line '$compiler $what $now' to $stored"
  if [ $((now * 10)) -gt $((before * 11)) ]; then
    echo "more than a tenth more than before; find out why, or store the new count if it is worth it"
    exit 1
  fi
}

count allreduce counted_allreduce $rounds # on both ranks
count isend counted_isend $((rounds * 128))
count irecv counted_irecv $((rounds * 64))
count post 'counted_post*' $((rounds * 64))
count dup counted_dup $((rounds + 1))
