#!/bin/sh
# trainer/compare/run as a user meets it: two strategies on two ranks, the report and its numbers. What the report makes
# of rounds with different results is tested with made-up runs.
set -u
python=/usr/bin/python3
[ -x "$python" ] || { echo "train_compare.sh: no python3"; exit 77; }
[ -e /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ] ||
  { echo "train_compare.sh: no Fashion-MNIST (package dataset-fashion-mnist)"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
  echo "train_compare.sh: $1"
  cat "$folder/out"
  exit 1
}

compare() {
  "$SOURCE/trainer/compare/run" --build "$BUILD" -o "$folder" -n 2 --link none "$@" >"$folder/out" 2>&1
}

# The sum of a column of epochs.csv over the lines of a condition and strategy.
sum() {
  awk -F, -v column="$1" -v condition="$2" -v strategy="$3" '
    NR == 1 { for (i = 1; i <= NF; i++) if ($i == column) field = i }
    $1 == condition && $2 == strategy { sum += $field }
    END { printf "%.3f", sum }' "$folder/epochs.csv"
}

"$python" -B "$SOURCE/tests/proc/train_compare.py" "$SOURCE/trainer/compare" "$folder" >"$folder/out" 2>&1 ||
  fail "made-up runs"

compare --strategies allreduce,ps-async --epochs 1 --rounds 2 --slow 1:2 -- --layers 784,32,10 || fail "failed"
[ "$(wc -l <"$folder/epochs.csv")" -eq 11 ] || fail "not a line for each of 2 rounds of 5 runs"
for word in "Who won where" undisturbed "one rank" "beside one rank" "rank 1 slowed down by 2" allreduce ps-async; do
  grep -q "$word" "$folder/report.html" || fail "the report lacks '$word'"
done
# 2 ranks, 25,450 parameters, 469 steps: all-reduce sends half the vector twice, from each; in both rounds the same.
[ "$(sum sent_so_far undisturbed allreduce)" = $((2 * 2 * 25450 * 4 * 469)).000 ] || fail "allreduce sent something else"
[ "$(awk -F, '$1 == "undisturbed" && $2 == "allreduce" { print $9 }' "$folder/epochs.csv" | sort -u | wc -l)" -eq 2 ] ||
  fail "both rounds have the same loss: not a seed each"
# The time that the slow rank sleeps is in no other share, and without a slow rank nobody sleeps.
[ "$(sum slowed_share undisturbed allreduce)" = 0.000 ] || fail "a rank slept in an undisturbed run"
awk -F, '$1 ~ /slowed/ && $2 == "allreduce" && ($13 <= 0 || $12 + $13 + $14 > 1.001)' "$folder/epochs.csv" |
  grep -q . && fail "time slowed down is missing, or is counted twice"

compare --strategies pipeline --epochs 1 --rounds 1 --slow none -- --layers 784,32,10 || fail "failed with stages"
if "$python" -c "import matplotlib" 2>/dev/null; then
  grep -q "stage 1" "$folder/report.html" || fail "the report does not show when stages were at work"
fi
echo 'raise ImportError("hidden by this test")' >"$folder/matplotlib.py"
PYTHONPATH=$folder compare --strategies allreduce --epochs 1 --rounds 1 --slow none -- --layers 784,32,10 ||
  fail "failed without matplotlib"
grep -q "No pictures: they need matplotlib" "$folder/out" || fail "the missing pictures are not mentioned"
grep -q "apt-get install python3-matplotlib" "$folder/report.html" || fail "the report does not say how to get pictures"
grep -q "<svg" "$folder/report.html" && fail "pictures without matplotlib"
compare --strategies bogus --epochs 1 --rounds 1 --slow none && fail "an unknown strategy was accepted"
grep -q "bogus" "$folder/out" || fail "the unknown strategy is not named"
compare --rounds 0 && fail "no rounds at all were accepted"
exit 0
