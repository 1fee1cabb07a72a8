#!/bin/bash
# COLL_PROFILER: the example counts what the program did, alone and next to a trace; the profiler in docs/tracing.md
# compiles with only the public header and works; libraries that are not profilers are refused at creation.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
perf=$BUILD/bin/coll_perf
example=$BUILD/tests/plugins/profiler_example.so

fail() {
  echo "$1"
  exit 1
}

# Each of three ranks makes as many calls, and none fails.
COLL_PROFILER=$example "$perf" allreduce -t 3 -b 4 -e 4 -n 25 -w 0 >out 2>err
for rank in 0 1 2; do
  grep "^rank $rank: allreduce: " err | sed "s/^rank $rank: //; s/, [0-9.]* us each//" >"count.$rank"
  grep -Eq "^allreduce: [0-9]{2,} operations, 0 failed, [0-9]+ bytes\$" "count.$rank" || fail "rank $rank: $(cat err)"
done
cmp count.0 count.1 && cmp count.0 count.2
COLL_PROFILER=$example COLL_TRACE=trace "$perf" allreduce -t 3 -b 4 -e 4 -n 25 -w 0 >out 2>err
[ "$(grep -c '^rank [0-2]: allreduce: ' err)" = 3 ] && [ -s trace.2 ] || fail "both: $(cat err)"

# The page's own.
{
  printf '#include <coll/coll_profiler.h>\n#include <stdio.h>\n'
  awk '/^```c$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$SOURCE/docs/tracing.md"
} >mine.c
grep -q 'coll_profiler = ' mine.c
cc -std=c11 -Wall -Werror -shared -fPIC -I"$SOURCE/libcoll/include" -o mine.so mine.c
COLL_PROFILER=$PWD/mine.so "$perf" broadcast -t 1 -b 8 -e 8 -n 1 >out 2>err
grep -q "^broadcast [0-9]* of 8 bytes ended with status 0" err || fail "the page's: $(cat err)"

# refuse NAME SED_SCRIPT TEXT: the changed profiler is refused, and the message says why.
refuse() {
  sed "$2" mine.c >"$1.c"
  cmp -s mine.c "$1.c" && fail "$1: nothing was changed"
  cc -std=c11 -shared -fPIC -I"$SOURCE/libcoll/include" -o "$1.so" "$1.c"
  COLL_PROFILER=$PWD/$1.so "$perf" allreduce -t 1 -b 4 -e 4 >out 2>err && fail "took $1"
  grep -q "COLL_ERR_INVALID_USAGE: COLL_PROFILER=$PWD/$1.so: $3" err || fail "$1: $(cat err)"
}
refuse abi 's/COLL_PROFILER_ABI,/COLL_PROFILER_ABI + 1,/' "is a profiler of another version"
refuse short 's/sizeof(coll_profiler_ops),/sizeof(coll_profiler_ops) - 1,/' "is a profiler of another version"
refuse symbol 's/coll_profiler = /another_name = /' "exports no coll_profiler"
refuse lacks 's/note_event, NULL/NULL, NULL/' "has no name or no event function"
COLL_PROFILER=$PWD/nowhere.so "$perf" allreduce -t 1 -b 4 -e 4 >out 2>err && fail "took nothing"
grep -q "COLL_PROFILER=$PWD/nowhere.so: cannot be loaded" err || fail "$(cat err)"
