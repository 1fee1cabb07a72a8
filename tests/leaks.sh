#!/bin/sh
# Runs a Criterion program and fails also if a sanitizer reported anything in one of its children.
set -u
log=$(mktemp)
trap 'rm -f "$log" "$log".*' EXIT
export ASAN_OPTIONS="log_path=$log.asan:${ASAN_OPTIONS:-}" LSAN_OPTIONS="log_path=$log.lsan:${LSAN_OPTIONS:-}"
"$@"
status=$?
for report in "$log".*; do
  # A forked child still lists its parent's thread; that remark alone is no finding.
  grep -qv 'was not suspended. False leaks are possible' "$report" || continue
  echo "leaks.sh: a sanitizer reported:"
  cat "$report"
  [ "$status" -ne 0 ] || status=1
done
exit "$status"
