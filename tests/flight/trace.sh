#!/bin/bash
# COLL_TRACE: every rank writes a file that a reader of Perfetto's format understands, alone and put together; also
# a rank that is killed. Files that exist stay; what cannot be written is an error at creation.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
collrun=$BUILD/bin/collrun
perf=$BUILD/bin/coll_perf

fail() {
  echo "$1"
  exit 1
}

# read_all FILE...: prints the trace that the files make together.
read_all() {
  cat "$@" >all
  "$SOURCE/tests/flight/read_trace.py" all
}

# Short operations take the fast path, long ones do not; both are in the trace of both ranks.
COLL_TRACE=trace "$collrun" --timeout 60 -n 2 "$perf" allreduce -b 4,1M -n 20 -w 0 >out
[ "$(echo trace*)" = "trace.0 trace.1" ] || fail "files: $(echo trace*)"
read_all trace.0 trace.1 >text
for rank in 0 1; do
  track=$(sed -n "s/^track \([0-9]*\) 0 rank $rank of 2 (host .*, pid [0-9]*)\$/\1/p" text)
  [ -n "$track" ] || fail "rank $rank has no track: $(grep ^track text)"
  for bytes in 4 1048576; do
    begun=$(grep -c "^begin [0-9]* $track allreduce .* bytes=$bytes type=float32 op=sum" text)
    [ "$begun" -ge 20 ] || fail "rank $rank: $begun all-reduces of $bytes bytes"
  done
done
[ "$(grep -c ^begin text)" = "$(grep -c ^end text)" ] || fail "not all operations ended"
grep -q ^unfinished text && fail "unfinished operations"

# The same operation of both ranks is at the same time: neither ends before the other has begun.
awk '$1 == "begin" || $1 == "end" { for (i = 5; i <= NF; i++) if ($i ~ /^number=/) key = $i
    if ($1 == "begin" && $4 == "allreduce") { if (!(key in first)) first[key] = $2; last[key] = $2 } }
  END { for (key in first) { n++; if (last[key] - first[key] > 5e9 || first[key] - last[key] > 5e9) bad++ }
    exit !(n >= 40 && !bad) }' text || fail "ranks are at different times"

# Hosts whose CLOCK_MONOTONIC differs by a day are on one clock, that of the time of day.
if unshare -T --monotonic 86400 --fork true 2>/dev/null; then
  from=$(date +%s%N)
  COLL_TRACE=day COLL_TRANSPORT=tcp "$collrun" --timeout 60 -n 2 sh -c '
    [ "$COLL_RANK" = 0 ] && exec "$0" allreduce -b 4 -e 4 -n 20 -w 0
    exec unshare -T --monotonic 86400 --fork "$0" allreduce -b 4 -e 4 -n 20 -w 0' "$perf" >out
  till=$(date +%s%N)
  read_all day.0 day.1 >text
  awk -v from="$from" -v till="$till" '$1 == "begin" { n[$3]++; bad += $2 < from || $2 > till }
    END { for (track in n) ranks++; exit !(ranks == 2 && !bad) }' text ||
    fail "not from $from to $till: $(grep -m 3 ^begin text)"
  rm day.0 day.1
fi

# A second run leaves the files of the first.
COLL_TRACE=trace "$collrun" --timeout 60 -n 2 "$perf" allreduce -b 4 -e 4 -n 1 >out
[ "$(echo trace*)" = "trace.0 trace.0.2 trace.1 trace.1.2" ] || fail "files: $(echo trace*)"
# %r, and ranks that are threads.
COLL_TRACE=by-%r-rank "$perf" broadcast -t 3 -b 8 -e 8 -n 3 >out
[ "$(echo by*)" = "by-0-rank by-1-rank by-2-rank" ] || fail "files: $(echo by*)"

# A full file says what is missing, and the job goes on.
COLL_TRACE=full COLL_TRACE_BYTES=64K "$perf" allreduce -t 2 -b 4 -e 4 -n 2000 >out
[ "$(stat -c %s full.0)" -le 65536 ] || fail "full.0 has $(stat -c %s full.0) bytes"
read_all full.0 >text
grep -q "^instant .* the trace is full: operations are missing missing=[0-9]" text || fail "nothing is missing"

# A killed rank leaves what it wrote, and the others say why they failed.
COLL_TRACE=killed "$collrun" --keep-going --timeout 60 -n 2 sh -c '
  [ "$COLL_RANK" = 0 ] || { "$0" allreduce -b 4 -e 4 -n 100000000 & pid=$!
    while ! [ -s killed.1 ] || [ "$(tr -d "\0" <killed.1 | wc -c)" -lt 4000 ]; do :; done
    kill -9 $pid; exit 0; }
  "$0" allreduce -b 4 -e 4 -n 100000000' "$perf" >out 2>err || true
read_all killed.0 >text
grep -q "^instant .* COLL_ERR_PEER_LOST message=rank 1 " text || fail "no failure: $(tail -3 text)"
read_all killed.1 >text
[ "$(grep -c ^begin text)" -gt 10 ] || fail "the killed rank left nothing"

# What cannot be written is an error at creation, which says which file and why, and leaves no file.
COLL_TRACE=nowhere/trace "$perf" allreduce -t 1 -b 4 -e 4 >out 2>err && fail "wrote to a folder that does not exist"
grep -q "COLL_TRACE=nowhere/trace: cannot create nowhere/trace.0; .*open.*No such file" err || fail "$(cat err)"
(ulimit -f 100 && COLL_TRACE=long "$perf" allreduce -t 1 -b 4 -e 4 >out 2>err) && fail "wrote more than ulimit allows"
grep -q "COLL_TRACE=long: cannot allocate 16777216 bytes for long.0; .*File too large" err || fail "$(cat err)"
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
  mkdir small
  unshare -m sh -c 'mount -t tmpfs -o size=1m none small && COLL_TRACE=small/trace "$0" allreduce -t 1 -b 4 -e 4 2>err
    status=$?; ls small >left; exit $status' "$perf" >out && fail "wrote to a full disk"
  grep -q "COLL_TRACE=small/trace: cannot allocate .*No space left" err || fail "$(cat err)"
  [ ! -s left ] || fail "left $(cat left)"
fi
[ ! -e long.0 ] || fail "left long.0"

# But survivors of a failure go on without a trace, and say so: their folder is gone by then.
mkdir gone
COLL_TRACE=gone/trace CHAOS_STOP=$dir/stop CHAOS_ID=$dir/id CHAOS_SHRINK_MS=10000 "$collrun" --keep-going --timeout 60 -n 3 sh -c '
  echo $$ >pid$COLL_RANK && exec "$0" 5' "$BUILD/tests/chaos_worker" >out 2>err &
while [ "$(grep -c "id 0 " out)" -lt 3 ]; do kill -0 $! || fail "$(cat out err)"; done
rm -r gone
kill -9 "$(cat pid2)"
while [ "$(grep -c "id 1 " out)" -lt 2 ]; do kill -0 $! || fail "$(cat out err)"; done
touch stop
wait $! || true
[ "$(grep -c "done 1 " out)" = 2 ] || fail "$(cat out err)"
grep -q "warn: COLL_TRACE=gone/trace: cannot create .*; going on without a trace" err || fail "$(cat err)"
