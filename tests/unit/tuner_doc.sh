#!/bin/bash
# The tuner in docs/choosing.md compiles with only the public header, and does what the page says.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
{
  printf '#include <coll/coll_tuner.h>\n#include <string.h>\n'
  awk '/^```c$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$SOURCE/docs/choosing.md"
} >"$dir/mine.c"
grep -q 'coll_tuner = ' "$dir/mine.c"
cc -std=c11 -Wall -shared -fPIC -I"$SOURCE/libcoll/include" -o "$dir/mine.so" "$dir/mine.c"
COLL_CALIBRATION=none COLL_TUNER=$dir/mine.so "$BUILD/bin/coll_explain" allreduce -n 16 -b 4-1M --cores 0 |
  awk '$1 + 0 > 0 && NF == 4 { print $1, $2 }' >"$dir/got"
printf '4 recdbl\n4096 ring\n' | diff - "$dir/got"
