#!/bin/bash
# coll_calibrate: measures, writes a file that programs read, and refuses bad usage.
set -u
calibrate=$BUILD/bin/coll_calibrate explain=$BUILD/bin/coll_explain
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failed=0

# expect STATUS WORD COMMAND...: the exit status, and a word that the output must contain.
expect() {
  status=$1 word=$2
  shift 2
  "$@" >"$out/log" 2>&1
  got=$?
  if [ $got = "$status" ] && grep -q -- "$word" "$out/log"; then echo "ok: $*"; else
    echo "FAILED: $*: status $got, no '$word'?"
    tail -n 5 "$out/log"
    failed=1
  fi
}

export XDG_CACHE_HOME=$out/cache
expect 0 "typical costs" "$explain" allreduce -n 2 -b 4
COLL_ALGO=allreduce:ring expect 0 "written to $out/cache/libcoll/calibration" "$calibrate" --quick --seconds 0.2
for line in "shm  *\(apart\|crowded\)  *[0-9.]*  *[0-9.]* " "shm  *crowded" "tcp  *crowded"; do
  grep -q "$line" "$out/log" || { echo "FAILED: no '$line' is printed"; failed=1; }
done
file=$out/cache/libcoll/calibration
[ "$(grep -c '^\(shm\|tcp\)\.\(apart\|crowded\)\.[a-z_]* = [0-9.]*$' "$file")" = 16 ] &&
  grep -qx 'version = 4' "$file" && grep -qx "host = $(hostname)" "$file" ||
  { echo "FAILED: what is in the file"; cat "$file"; failed=1; }
expect 0 "measured on $(hostname) with" "$explain" allreduce -n 2 -b 4
COLL_CALIBRATION=none expect 0 "typical costs" "$explain" allreduce -n 2 -b 4
COLL_CALIBRATION=$out/nothing expect 0 "warn: calibration file $out/nothing cannot be used" "$explain" allreduce -n 2 -b 4
sed 's/^shm.apart.alpha_ns = .*/shm.apart.alpha_ns = 4321/' "$file" >"$out/mine"
COLL_CALIBRATION=$out/mine expect 0 "alpha 4321 ns" "$explain" allreduce -n 2 -b 4 --cores 2
echo "nonsense" >>"$out/mine"
COLL_CALIBRATION=$out/mine expect 0 "line 22 is malformed" "$explain" allreduce -n 2 -b 4
COLL_LOG=warn COLL_CALIBRATION=$out/mine expect 0 "line 22 is malformed" "$BUILD/bin/coll_perf" allreduce -t 2 -b 4 -e 4 -n 1
grep -q correction "$file" && { echo "FAILED: --quick measures all algorithms"; failed=1; }
expect 0 "all algorithms, tcp, 3 ranks" "$calibrate" --seconds 0.01 --ranks 3 -o "$out/all"
for line in shm.3.allreduce.ring shm.3.broadcast.chain tcp.3.alltoall.pairwise tcp.3.barrier.dissemination; do
  grep -q "^correction.$line = [0-9.]*[1-9][0-9.]* " "$out/all" || { echo "FAILED: no correction of $line"; failed=1; }
done
COLL_CALIBRATION=$out/all expect 0 "and all algorithms measured" "$explain" allreduce -n 3 -b 4
expect 2 "takes 2, 3, 4 or 8" "$calibrate" --ranks 5
expect 2 "takes 0.01 to 3600" "$calibrate" --seconds never
expect 2 "unknown argument 'now'" "$calibrate" now
expect 2 "unrecognized option" "$calibrate" --fast
expect 0 "Usage: coll_calibrate" "$calibrate" --help
expect 1 "needs ranks on several hosts" "$calibrate" --hosts
expect 1 "needs ranks on several hosts" "$BUILD/bin/collrun" -n 2 "$calibrate" --hosts
for other in --quick --verbose "--ranks 2" "--seconds 1"; do
  expect 2 "with --hosts there is only --output" "$calibrate" --hosts $other
done
expect 2 "unknown argument 'a:1'" "$calibrate" --hosts a:1
expect 2 "--output.*requires an argument" "$calibrate" --hosts --output
COLL_TIMEOUT_MS=soon expect 1 "coll_calibrate: COLL_TIMEOUT_MS" "$calibrate" --hosts

# Ranks that stand for hosts: of eight all pairs are measured, of twelve only some.
pairs() {
  expect 0 "settings that declare this" "$BUILD/bin/collrun" -n "$1" sh -c 'COLL_HOST_ID=$COLL_RANK exec "$@"' sh "$calibrate" --hosts
  found=$(sed -n 's/^hosts[a-z ]*  *\([0-9][0-9]*\)  .*/\1/p' "$out/log" | awk '{ sum += $1 } END { print sum }')
  [ "$found" -ge "$2" ] && [ "$found" -le "$3" ] || { echo "FAILED: $found pairs of $1 hosts"; failed=1; }
}
pairs 8 28 28
pairs 12 12 48
COLL_ALGORITHM=ring expect 1 "no such setting" "$calibrate" --quick --seconds 0.1
exit $failed
