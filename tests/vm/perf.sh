#!/bin/bash
# perf/verbs/run: a tiny run's exit status, table, ratios, floors, CSV and JSON. What it measures depends on
# how fast the emulation is, so missed floors (status 3) are not a failure here.
set -u
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failed=0

fail() {
  echo "FAILED: $*"
  failed=1
}

"$SOURCE/perf/verbs/run" -b "$BUILD" --out "$out" -n 2 --sizes 4 65536 --rounds 1 >"$out/log" 2>"$out/err"
status=$?
if [ $status = 77 ]; then cat "$out/log" && exit 77; fi
[ $status = 0 ] || [ $status = 3 ] || fail "exit status $status"
for size in 4 65536; do
  grep -Eq "^ +$size +([0-9.]+ +){3}" "$out/log" || fail "no times for $size bytes"
  grep -Eq "^ +2 +$size +[0-9.]+ +([0-9.]+ +[0-9.]+ \.\. [0-9.]+ *){3}" "$out/log" || fail "no ratios for $size bytes"
  for series in libcoll libcoll-inplace libcoll-shared limit; do
    grep -Eq "^verbs,2,allreduce,$size,$series,1,[0-9.]*[1-9]" "$out/verbs.csv" || fail "no $series of $size bytes"
  done
done
grep -q "^floors of limit over libcoll: [0-9]* pass, [0-9]* miss" "$out/log" || fail "no floors"
/usr/bin/python3 -c 'import json, sys
cells = json.load(open(sys.argv[1]))["cells"]
assert len(cells) == 2 and all(cell["floors"] for cell in cells)' "$out/verbs.json" || fail "JSON content"
[ $failed = 0 ] || cat "$out/log" "$out/err"
exit $failed
