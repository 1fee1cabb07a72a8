#!/bin/bash
# coll_perf: columns, JSON, every collective, type and operation, bad usage, under collrun and with -t.
set -u
perf=$BUILD/bin/coll_perf run=$BUILD/bin/collrun
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failed=0

# check WHAT COMMAND...: the command must succeed.
check() {
  what=$1
  shift
  if "$@" >"$out/log" 2>&1; then echo "ok: $what"; else
    echo "FAILED: $what"
    tail -n 5 "$out/log"
    failed=1
  fi
}

# refuse WHAT WORD COMMAND...: the command must fail with status 1 or 2 and say WORD.
refuse() {
  what=$1 word=$2
  shift 2
  "$@" >"$out/log" 2>&1
  status=$?
  if { [ $status = 1 ] || [ $status = 2 ]; } && grep -q -- "$word" "$out/log"; then echo "ok: $what"; else
    echo "FAILED: $what (status $status)"
    tail -n 5 "$out/log"
    failed=1
  fi
}

for collective in allreduce broadcast allgather barrier sendrecv; do
  check "$collective, 3 threads" "$perf" $collective -t 3 -b 4 -e 64K -f 16 -n 3
  check "$collective, 2 processes" "$run" -n 2 "$perf" $collective -b 4 -e 64K -f 64 -n 3
done
check "all types and operations" "$perf" allreduce -t 3 -b 256 -e 256 -d all -o all -n 2
grep -c '^ *[0-9]' "$out/log" | grep -qx 60 || { echo "FAILED: 12 types x 5 operations give 60 lines"; failed=1; }
check "rotating root" "$perf" broadcast -t 4 -b 1K -e 1K -r -1 -n 9
check "one rank" "$perf" allreduce -b 4 -e 1K -n 2
check "steps of bytes" "$perf" allreduce -t 2 -b 100 -e 300 -i 100 -n 2
[ "$(awk '/^ *[0-9]/ {printf "%s ", $1}' "$out/log")" = "100 200 300 " ] || { echo "FAILED: sizes 100 200 300"; failed=1; }

check "JSON" "$perf" allreduce -t 2 -b 4 -e 4K -n 2 --json "$out/json"
grep -q '"wrong": 0' "$out/json" && grep -q '"nranks": 2' "$out/json" || { echo "FAILED: JSON content"; failed=1; }
if command -v python3 >/dev/null; then check "JSON parses" python3 -c "import json,sys; json.load(open(sys.argv[1]))" "$out/json"; fi

"$perf" allreduce -t 2 -b 4 -e 4 -n 2 >"$out/log"
for word in size count type redop root time algbw busbw '#wrong' out-of-place in-place 'Avg bus bandwidth' 'Out of bounds values : 0 OK'; do
  grep -q -- "$word" "$out/log" || { echo "FAILED: '$word' is not in the table"; failed=1; }
done

refuse "no collective" usage "$perf"
refuse "unknown collective" "gatherall" "$perf" gatherall
refuse "unknown type" "float99" "$perf" allreduce -d float99
refuse "unknown operation" "xor" "$perf" allreduce -o xor
refuse "bad size" "12Q" "$perf" allreduce -b 12Q
refuse "negative size" "-5" "$perf" allreduce -b -5
refuse "bad factor" "1" "$perf" allreduce -f 1
refuse "bad root" "root 7" "$perf" broadcast -t 2 -r 7
refuse "JSON file that cannot be written" "/nonexistent/x" "$perf" allreduce -t 2 -b 4 -e 4 -n 1 --json /nonexistent/x
COLL_RANK=0 COLL_NRANKS=2 refuse "-t under a launcher" "collrun" "$perf" allreduce -t 2
exit $failed
