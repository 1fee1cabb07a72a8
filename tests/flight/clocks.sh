#!/bin/bash
# COLL_TRACE on hosts whose clocks differ: ranks measure by how much, and say how well. Ranks 1 to 3 have another
# CLOCK_MONOTONIC (time namespaces; 2 and 3 share one) and another time of day than rank 0. No message arrives before it was sent.
# Also if rank 0 is lost and the others continue.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
day=86400
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0 # the clock is preloaded

fail() {
  echo "$1"
  exit 1
}
skip() {
  echo "skipped: $1"
  exit 77
}
unshare -T --monotonic $day --fork true 2>/dev/null || skip "cannot make time namespaces here"
python3 -c 'import struct; open("clock", "wb").write(struct.pack("<512q", 0, -1000, 500, 500, *[0] * 508))'

# run NAME: four ranks, of which 1 is a day ahead, and 2 and 3 are two days ahead, as clocks of hosts are.
run() {
  rm -f inside
  COLL_TRACE=$1 COLL_TRANSPORT=tcp CHAOS_CLOCK=$dir/clock "$BUILD/bin/collrun" --timeout 60 -n 4 sh -c '
    perf="env LD_PRELOAD=$1/tests/chaos_clock.so $1/bin/coll_perf allreduce -b 4 -e 64K -f 16 -n 50 -w 0"
    case $COLL_RANK in
      0) exec $perf ;;
      1) exec unshare -T --monotonic $2 --fork $perf ;;
      2) exec unshare -T --monotonic $((2 * $2)) --fork sh -c "echo \$\$ >inside && exec $perf" ;;
      3) while ! [ -s inside ]; do :; done
         exec nsenter --time="/proc/$(cat inside)/ns/time" $perf ;;
    esac' sh "$BUILD" $day >out
  cat "$1".[0-3] >all
  "$SOURCE/tests/flight/read_trace.py" all >text
}

# Each rank knows its clock, to within the error that it tells; ranks with one clock tell the same.
check_offsets() {
  awk -v day=$day '
    $1 == "track" && $3 == 0 { rank[$2] = $5 }
    $1 == "instant" && /shared clock/ {
      for (i = 4; i <= NF; i++) { split($i, part, "="); value[rank[$3], part[1]] = part[2] }
      known[rank[$3]]++
    }
    END {
      ahead[1] = 1; ahead[2] = ahead[3] = 2
      for (r = 0; r < 4; r++) {
        wrong = value[r, "offset_ns"] + ahead[r] * day * 1e9; error = value[r, "error_ns"]
        printf "rank %d: wrong by %.0f ns, error %.0f ns\n", r, wrong, error
        if (known[r] != 1 || wrong > error || -wrong > error || error > 1e8 || (r > 0) != (error > 0)) bad++
      }
      if (value[2, "offset_ns"] != value[3, "offset_ns"]) bad++
      exit bad > 0
    }' text
}

# An all-reduce brings data of each rank to all others: on no rank may it end before it has begun on another one, but
# for the largest error.
check_order() {
  awk '
    $1 == "instant" && /shared clock/ { split($NF, part, "="); if (part[2] > error) error = part[2] }
    $1 == "begin" { split($NF, part, "="); key = open[$3] = part[2]; if (!(key in begun) || $2 > begun[key]) begun[key] = $2 }
    $1 == "end" { key = open[$3]; if (!(key in ended) || $2 < ended[key]) ended[key] = $2 }
    END {
      for (key in ended) { n++; early = begun[key] - ended[key]; if (early > worst) worst = early }
      printf "%d operations, the earliest end by %.0f ns, error %.0f ns\n", n, worst, error
      exit !(n >= 150 && worst <= error + 1000) # awk counts in doubles, of 256 ns here
    }' text
}

run plain
check_order || fail "an operation ends before it begins"
check_offsets || fail "not the offset of the clocks"
COLL_TLS=1 run encrypted
check_order || fail "an operation ends before it begins, over TLS"
check_offsets || fail "not the offset of the clocks, over TLS"

# Rank 0 is lost. The others go on with its clock, as rank 1 knows it, not with rank 1's own time of day.
from=$(date +%s%N)
COLL_TRACE=lost CHAOS_CLOCK=$dir/clock CHAOS_STOP=$dir/stop CHAOS_ID=$dir/id CHAOS_SHRINK_MS=10000 \
  "$BUILD/bin/collrun" --keep-going --timeout 60 -n 3 sh -c '
  worker="env LD_PRELOAD=$1/tests/chaos_clock.so $1/tests/chaos_worker 5"
  [ "$COLL_RANK" = 0 ] || exec unshare -T --monotonic $2 --fork $worker
  echo $$ >pid0 && exec $worker' sh "$BUILD" $day >out 2>err &
while [ "$(grep -c "id 0 " out)" -lt 3 ]; do kill -0 $! || fail "$(cat out err)"; done
kill -9 "$(cat pid0)"
while [ "$(grep -c "id 1 " out)" -lt 2 ]; do kill -0 $! || fail "$(cat out err)"; done
touch stop
wait $! || true
till=$(date +%s%N)
cat lost.0.2 lost.1.2 >all
"$SOURCE/tests/flight/read_trace.py" all >text
[ "$(grep -c "^instant .* shared clock " text)" = 2 ] || fail "the survivors do not know their clock: $(head text)"
awk -v from="$from" -v till="$till" '$1 == "begin" { n[$3]++; bad += $2 < from || $2 > till }
  END { for (track in n) ranks++; exit !(ranks == 2 && !bad) }' text ||
  fail "not from $from to $till: $(grep -m 3 ^begin text)"

# Under a launcher that carries addresses, ranks check in through a tree, in which what they measure adds up. Of 24 ranks,
# half have another clock than rank 0, each its own.
command -v mpiexec.hydra >/dev/null || exit 0
COLL_TRACE=tree mpiexec.hydra -n 24 sh -c '
  perf="$1/bin/coll_perf allreduce -b 4 -e 4 -n 1 -w 0"
  [ "$PMI_RANK" -ge 12 ] || exec $perf
  exec unshare -T --monotonic $2 --fork $perf' sh "$BUILD" $day >out 2>err || fail "$(cat out err)"
cat tree.* >all
"$SOURCE/tests/flight/read_trace.py" all >text
awk -v day=$day '
  /shared clock/ {
    for (i = 4; i <= NF; i++) { split($i, part, "="); value[part[1]] = part[2] }
    wrong = value["offset_ns"] + (value["error_ns"] > 0 ? day * 1e9 : 0)
    far += value["error_ns"] > 0
    bad += wrong > value["error_ns"] || -wrong > value["error_ns"] || value["error_ns"] > 1e8
    n++
  }
  END { printf "%d ranks in a tree, %d with another clock\n", n, far; exit !(n == 24 && far == 12 && !bad) }' text ||
  fail "in a tree, not the offset of the clocks: $(grep "shared clock" text)"
