#!/bin/sh
# trainer/compare/run as a user meets it: two strategies on two ranks, the report and its numbers.
set -u
command -v python3 >/dev/null || { echo "train_compare.sh: no python3"; exit 77; }
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
  "$SOURCE/trainer/compare/run" --build "$BUILD" -o "$folder" -n 2 --epochs 2 --link none "$@" >"$folder/out" 2>&1
}

compare --strategies allreduce,ps-async --slow 1:2 -- --layers 784,32,10 || fail "failed"
[ "$(wc -l <"$folder/epochs.csv")" -eq 11 ] || fail "not a line for each of 2 epochs of 5 runs"
for word in "Who won where" undisturbed "one rank" "beside one rank" "rank 1 slowed down by 2" allreduce ps-async; do
  grep -q "$word" "$folder/report.html" || fail "the report lacks '$word'"
done
# 2 ranks, 25,450 parameters, 469 steps, 2 epochs: all-reduce sends half the vector twice, from each.
sent=$(awk -F, '$1 == "undisturbed" && $2 == "allreduce" && $3 == 2 { printf "%.0f", $6 }' "$folder/epochs.csv")
[ "$sent" = $((2 * 25450 * 4 * 469 * 2)) ] || fail "allreduce sent $sent bytes"
compare --strategies pipeline --slow none -- --layers 784,32,10 || fail "failed with stages"
if /usr/bin/python3 -c "import matplotlib" 2>/dev/null; then
  grep -q "stage 1" "$folder/report.html" || fail "the report does not show when stages were at work"
fi
compare --strategies bogus --slow none && fail "an unknown strategy was accepted"
grep -q "bogus" "$folder/out" || fail "the unknown strategy is not named"
exit 0
