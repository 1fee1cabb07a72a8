#!/bin/sh
# Late ranks, limits, aborts; a killed rank, by hand and under torchrun.
set -eu
. "$(dirname "$0")/support.inc"
run 4 test_failures.py

meeting=$(mktemp -d)
trap 'rm -rf "$meeting"' EXIT
for rank in 0 1 2; do
  RANK=$rank "$python" "$folder/killed.py" "$meeting" >"$meeting/$rank.txt" 2>&1 &
  eval "pid$rank=$!"
done
status=0
wait "$pid0" || status=1
wait "$pid2" || status=1
wait "$pid1" && status=1
if [ $status != 0 ] || ! grep -q "rank 2 has gone on" "$meeting/2.txt"; then
  cat "$meeting"/*.txt
  echo "failed: killed.py"
  exit 1
fi

status=0
torchrun_for 300 2 "$folder/left.py" || status=$?
if [ $status = 0 ] || [ $status = 124 ] || ! printf '%s\n' "$said" | grep -q "KeyError: 'of the program'"; then
  printf '%s\nfailed: left.py\n' "$said"
  exit 1
fi

status=0
torchrun_for 300 3 --max_restarts 1 "$folder/restarted.py" || status=$?
if [ $status != 0 ] || [ "$(printf '%s\n' "$said" | grep -c "is done in the second attempt")" != 3 ]; then
  printf '%s\nfailed: restarted.py\n' "$said"
  exit 1
fi
