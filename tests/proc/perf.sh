#!/bin/bash
# coll_perf: columns, JSON, every collective, type and operation, every algorithm, levels of
# determinism, bad usage, under collrun and with -t. coll_recovery: each rank dies once.
. "$(dirname "$0")/../common/perf.inc"
recovery=$BUILD/bin/coll_recovery

for collective in allreduce reduce reduce_scatter reduce_scatterv scan exscan broadcast allgather \
  allgatherv gather gatherv scatter scatterv alltoall alltoallv barrier sendrecv reduce_broadcast; do
  check "$collective, 3 threads" "$perf" $collective -t 3 -b 4 -e 64K -f 16 -n 3
  [ $collective = barrier ] || has "values : 0 OK"
done
for collective in allreduce reduce reduce_scatter reduce_scatterv scan exscan; do
  for ranks in 1 4; do
    check "$collective, $ranks threads, all types and operations" "$perf" $collective -t $ranks -d all -o all -b 4 -e 1K -f 16 -n 1
    has "values : 0 OK"
  done
  check "$collective, 3 processes, all types and operations" "$run" -n 3 "$perf" $collective -d all -o all -b 4 -e 1K -f 16 -n 1
  has "values : 0 OK"
done
check "several collectives, 2 processes" "$run" -n 2 "$perf" allreduce reduce_scatterv alltoallv barrier sendrecv \
  -b 4 -e 64K -f 64 -n 3
[ "$(grep -c 'values : 0 OK' "$out/log")" = 5 ] || { echo "FAILED: 5 collectives give as many tables"; failed=1; }
# Windows of messages; percentiles; comma-separated values.
for pattern in ring pairs both; do
  for ranks in 1 2 3 4; do
    check "sendrecv, windows, $pattern, $ranks threads" "$perf" sendrecv -t $ranks --window 16 --pattern $pattern \
      -b 4 -e 128K -f 64 -n 3 --percentiles --csv "$out/csv"
    has "values : 0 OK" "Mmsg/s" "median"
    python3 - "$out/csv" <<'END' || failed=1
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1])))
assert [int(row["size"]) for row in rows] == [4, 256, 16384], rows
for row in rows:
    least, median, p99, most = (float(row[name + "_us"]) for name in ("min", "median", "p99", "max"))
    assert 0 <= least <= median <= p99 <= most and row["half"] == "out_of_place" and row["wrong"] == "0", row
END
  done
done
check "percentiles, 2 processes" "$run" -n 2 "$perf" allreduce -b 4 -e 1K -f 16 -n 200 --percentiles --json "$out/json" --csv "$out/csv"
has "in: min" "p99"
python3 - "$out/json" "$out/csv" <<'END' || failed=1
import csv, json, sys
lines = json.load(open(sys.argv[1]))["results"]
rows = list(csv.DictReader(open(sys.argv[2])))
assert len(rows) == 2 * len(lines) == 6
for line, row in zip((line for line in lines for half in range(2)), rows):
    half = line[row["half"]]
    assert 0 < half["min_us"] <= half["median_us"] <= half["p99_us"] <= half["max_us"]
    for name in ("time_us", "min_us", "max_us", "busbw", "wrong"):
        assert float(row[name]) == half[name], (name, row, half)
    assert row["messages_per_us"] == ""
END
refuse "a window of a collective" "sendrecv" "$perf" allreduce -t 2 --window 4
refuse "a pattern that does not exist" "ring, pairs or both" "$perf" sendrecv -t 2 --pattern star
refuse "percentiles of a comparison" "percentiles" "$perf" allreduce -t 2 --percentiles --algo all

# twice as many ranks as processors: two are bound to each
for collective in allreduce reduce reduce_scatter broadcast allgather gather scatter alltoall barrier; do
  check "$collective, 2 processes a processor, roots in turn" "$run" -n $((2 * $(nproc))) "$perf" $collective \
    -b 4 -e 64K -f 16 -n 50 $([ $collective = barrier ] || echo -r -1)
  [ $collective = barrier ] || has "values : 0 OK"
done
for collective in allreduce gatherv scan; do
  check "$collective, another root, one rank more than a power of two" "$perf" $collective -t 5 \
    -b 1K -e 1K -n 2 -r 3 -o all
done
check "all types and operations" "$perf" allreduce -t 3 -b 256 -e 256 -d all -o all -n 2
grep -c '^ *[0-9]' "$out/log" | grep -qx 130 || { echo "FAILED: 130 pairs of type and operation give as many lines"; failed=1; }
has "values : 0 OK" "float8_e5m2 *avg" "int64_loc *maxloc" "float32_loc64 *minloc" "uint16 *lxor"
check "sums over more ranks than float8 can count" "$perf" allreduce -t 19 -b 64 -e 64 -d float8_e5m2 -o all -n 1
check "every type, moved" "$perf" alltoall -t 3 -b 4K -e 4K -d all -n 2
grep -c '^ *[0-9]' "$out/log" | grep -qx 20 || { echo "FAILED: 20 types give as many lines"; failed=1; }
check "rotating root" "$perf" broadcast -t 4 -b 1K -e 1K -r -1 -n 9
check "one rank" "$perf" allreduce -b 4 -e 1K -n 2
check "steps of bytes" "$perf" allreduce -t 2 -b 100 -e 300 -i 100 -n 2
[ "$(awk '/^ *[0-9]/ {printf "%s ", $1}' "$out/log")" = "100 200 300 " ] || { echo "FAILED: sizes 100 200 300"; failed=1; }
check "list of sizes" "$perf" allreduce -t 2 -b 4K,64,1M,8 -n 2
[ "$(awk '/^ *[0-9]/ {printf "%s ", $1}' "$out/log")" = "4096 64 1048576 8 " ] || { echo "FAILED: sizes 4096 64 1048576 8"; failed=1; }

check "JSON" "$perf" allreduce -t 2 -b 4 -e 4K -n 2 --json "$out/json"
grep -q '"wrong": 0' "$out/json" && grep -q '"nranks": 2' "$out/json" || { echo "FAILED: JSON content"; failed=1; }
if command -v python3 >/dev/null; then check "JSON parses" python3 -c "import json,sys; json.load(open(sys.argv[1]))" "$out/json"; fi

# Bus bandwidth is algorithm bandwidth times nccl-tests' factor: of 4 ranks 1.5, 0.75 or 1.
for pair in allreduce=1.5 allgather=0.75 reduce_scatter=0.75 alltoall=0.75 gather=0.75 scatter=0.75 \
  reduce=1 broadcast=1; do
  check "bus bandwidth of ${pair%=*}" "$perf" "${pair%=*}" -t 4 -b 4M -e 4M -n 2 -w 0 --json "$out/json"
  awk -v want="${pair#*=}" -F'[:,]' '/out_of_place/ {
    for (i = 1; i < NF; i++) { if ($i ~ /"algbw"/) a = $(i + 1); if ($i ~ /"busbw"/) { b = $(i + 1); break } }
    if (a > 0.05 && (b / a > want * 1.01 || b / a < want / 1.01)) exit 1 }' "$out/json" || {
    echo "FAILED: factor of ${pair%=*} is not ${pair#*=}"
    failed=1
  }
done

check "every algorithm, threads" "$perf" allreduce -t 4 -b 4 -e 64K -f 1000 -n 2 -w 1 --algo all \
  --json "$out/json"
has algorithm predicted measured ring recdbl "Chosen within 10 % of the best: [0-2] of 2 cells" "0 OK"
[ "$(grep -c '^ .* \*[a-z]' "$out/log")" = 2 ] || { echo "FAILED: one chosen in each of 2 cells"; failed=1; }
[ "$(grep -c '"chosen": true' "$out/json")" = 2 ] || { echo "FAILED: one chosen in JSON"; failed=1; }
if command -v python3 >/dev/null; then check "its JSON parses" python3 -c "import json,sys; json.load(open(sys.argv[1]))" "$out/json"; fi
check "every algorithm, processes" "$run" -n 2 "$perf" allgatherv -b 1K -e 1K -n 2 --algo all
check "every algorithm of a barrier" "$perf" barrier -t 3 -n 2 --algo all
check "one algorithm" "$perf" reduce -t 3 -b 4 -e 4 -n 2 --algo chain
check "algorithms by size" "$perf" allreduce -t 3 -b 4 -e 1K -f 256 -n 2 --algo "allreduce:-8=ring;8-=recdbl"
check "what determinism costs" "$perf" reduce_scatter -t 3 -b 1K -e 4K -n 2 --deterministic all --json "$out/json"
has ordered "Cost of determinism, mean ratio: on [0-9.]*, ordered [0-9.]*" "0 OK"
for level in off on ordered; do
  check "deterministic $level" "$perf" allreduce -t 3 -b 1K -e 1K -n 2 --deterministic $level
done

for kind in cpu device; do
  for collective in allreduce reduce_scatter broadcast allgather alltoall; do
    COLL_PROGRESS=on check "overlap of $collective with $kind work" "$perf" $collective -t 2 -b 4K -e 64K -f 16 \
      -n 2 --overlap $kind --json "$out/json"
    has "$kind work" overlap "0 OK"
    [ "$(grep -c "\"overlap\"" "$out/json")" = 2 ] || { echo "FAILED: two overlaps in JSON"; failed=1; }
  done
done
if command -v python3 >/dev/null; then check "its JSON parses" python3 -c "import json,sys; json.load(open(sys.argv[1]))" "$out/json"; fi

"$perf" allreduce -t 2 -b 4 -e 4 -n 2 >"$out/log"
for word in size count type redop root time algbw busbw '#wrong' out-of-place in-place 'Avg bus bandwidth' 'Out of bounds values : 0 OK'; do
  grep -q -- "$word" "$out/log" || { echo "FAILED: '$word' is not in the table"; failed=1; }
done

check "recovery" "$run" -n 3 "$recovery" -k 3
has "3 ranks, 3 times" '^notice' '^shrink' '^first all-reduce' '^in all'
awk '$1 == "in" { inall = $3 } $1 ~ /^(notice|shrink)$/ { sum += $2 } END { exit !(inall > 0 && sum > 0) }' "$out/log" ||
  { echo "FAILED: a time is 0"; failed=1; }
refuse "recovery of one rank" "no survivors" "$run" -n 1 "$recovery"
refuse "no repetitions" usage "$recovery" -k 0

refuse "no collective" usage "$perf"
refuse "unknown collective" "gatherall" "$perf" gatherall
refuse "unknown collective after another" "gatherall" "$perf" allreduce gatherall
refuse "JSON of several collectives" "take one collective" "$perf" allreduce reduce -t 2 --json "$out/json"
refuse "an algorithm for several collectives" "take one collective" "$perf" allreduce reduce -t 2 --algo ring
refuse "unknown type" "float99" "$perf" allreduce -d float99
refuse "unknown operation" "xor" "$perf" allreduce -o xor
refuse "operation of other types" "float" "$perf" allreduce -d float -o band
refuse "bad size" "12Q" "$perf" allreduce -b 12Q
refuse "hole in a list of sizes" "not a size" "$perf" allreduce -b 4,,8
refuse "negative size" "-5" "$perf" allreduce -b -5
refuse "bad factor" "1" "$perf" allreduce -f 1
refuse "bad root" "root 7" "$perf" broadcast -t 2 -r 7
refuse "unknown algorithm" "no such algorithm" "$perf" allreduce -t 2 --algo zigzag
refuse "algorithm that is not deterministic" "these can" "$perf" allreduce -t 3 -b 4 -e 4 --algo ring --deterministic on
refuse "no algorithms" "there are no algorithms" "$perf" sendrecv -t 2 --algo all
refuse "kind of work" "not 'gpu'" "$perf" allreduce --overlap gpu
refuse "no overlap" "is for allreduce" "$perf" barrier --overlap cpu
refuse "overlap of all algorithms" "one algorithm" "$perf" allreduce --overlap cpu --algo all
refuse "level of determinism" "not 'very'" "$perf" allreduce --deterministic very
refuse "nothing is reduced" "is for reductions" "$perf" broadcast -t 2 --deterministic all
refuse "two tables at once" "do not go together" "$perf" allreduce -t 2 --deterministic all --algo all
refuse "JSON file that cannot be written" "/nonexistent/x" "$perf" allreduce -t 2 -b 4 -e 4 -n 1 --json /nonexistent/x
COLL_RANK=0 COLL_NRANKS=2 refuse "-t under a launcher" "collrun" "$perf" allreduce -t 2
exit $failed
