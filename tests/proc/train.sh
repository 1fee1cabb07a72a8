#!/bin/sh
# coll_train from a user's view: exit status, messages, a model of one's own, and Fashion-MNIST with two ranks.
set -u
train=$BUILD/bin/coll_train
run="$BUILD/bin/collrun -n 2"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0

fail() {
  echo "train.sh: $1"
  [ ! -s err ] || sed 's/^/  | /' err
  failures=$((failures + 1))
}

# expect STATUS WORDS ARGUMENT...: exactly one line on standard error, which contains the words.
expect() {
  wanted=$1 words=$2
  shift 2
  "$train" "$@" >out 2>err
  status=$?
  [ "$status" -eq "$wanted" ] || fail "coll_train $*: status $status, expected $wanted"
  [ "$(wc -l <err)" -eq 1 ] || fail "coll_train $*: not exactly one line of error"
  grep -q -e "$words" err || fail "coll_train $*: the error does not say '$words'"
  [ ! -s out ] || fail "coll_train $*: wrote to standard output"
}

expect 2 '--batch 0' --batch 0
expect 2 'needs --checkpoint' --resume
expect 2 'needs --join-file' --join
expect 2 '--bogus' --bogus
expect 1 "$folder/none/train-images" --data "$folder/none"
COLL_RANK=7 COLL_NRANKS=2 "$train" --quiet >out 2>err
[ $? -eq 1 ] || fail "a wrong rank was accepted"
[ "$(wc -l <err)" -eq 1 ] || fail "a wrong rank: not exactly one line of error"
"$train" --help >out 2>err || fail "--help failed"
grep -q -e '--bucket-bytes' out || fail "--help does not name all options"

# number NAME LINE: what the LINE-th line of metrics says.
number() {
  sed -n "$2s/.*\"$1\":\"*\([0-9a-f.e-]*\).*/\1/p" out
}

# trains RANKS STRATEGY PART, for trainer/example/own_model.c, a model of a user's own: three epochs, in which the loss must
# fall to that part of what it was; the trainer itself compares the ranks' weights.
trains() {
  if ! COLL_DETERMINISTIC=ordered "$BUILD/bin/collrun" -n "$1" "$BUILD/bin/own_model" --epochs 3 --json --strategy "$2" >out 2>err; then
    fail "$2, $1 ranks: failed"
    return
  fi
  first=$(number train_loss 1) last=$(number train_loss 3) accuracy=$(number test_accuracy 3)
  awk -v f="$first" -v l="$last" -v p="$3" -v a="$accuracy" 'BEGIN { exit !(l < p * f && a > 0.9) }' ||
    fail "$2, $1 ranks: loss $first, then $last; test accuracy $accuracy"
}

for ranks in 2 4; do
  trains $ranks allreduce 0.6
  whole=$(number weights_hash 3)
  trains $ranks zero1 0.6
  [ -n "$whole" ] && [ "$(number weights_hash 3)" = "$whole" ] ||
    fail "$ranks ranks: zero1 ends with other weights than allreduce, $whole"
  trains $ranks gossip 0.8 # who meets whom is left to chance
done

# A process joins, and the run, which would not end by itself, has a third rank.
"$BUILD/bin/collrun" -n 2 "$BUILD/bin/own_model" --epochs 1000000 --join-file offer --metrics joined --quiet >out 2>err &
run_pid=$!
until [ -s offer ] || ! kill -0 $run_pid 2>/dev/null; do :; done
[ "$(stat -c %a offer)" = 600 ] || fail "others can read --join-file"
"$BUILD/bin/own_model" --epochs 1000000 --join-file offer --join --quiet 2>joiner &
joiner_pid=$!
until grep -qs '"ranks":3' joined || ! kill -0 $joiner_pid 2>/dev/null || ! kill -0 $run_pid 2>/dev/null; do :; done
kill $run_pid $joiner_pid
wait $run_pid $joiner_pid
grep -q '"ranks":3' joined || fail "--join: did not join: $(cat joiner)"

# Ranks cannot share layers of a kind that they do not know.
"$BUILD/bin/collrun" -n 2 "$BUILD/bin/own_model" --strategy tensor >out 2>err && fail "--strategy tensor was accepted"
grep -q '^own_model: .*kind radial.*only linear layers' err || fail "--strategy tensor: not the reason"

data=/usr/share/datasets/fashion-mnist
if [ ! -e "$data/train-images-idx3-ubyte.gz" ]; then
  echo "train.sh: no $data (package dataset-fashion-mnist): the real run is left out"
  [ "$failures" -eq 0 ] && exit 77
  exit 1
fi
expect 1 'no-file: No such file' --join --join-file no-file
# One clear line, even if all ranks have the same problem.
mkdir broken && head -c 1000000 "$data/train-images-idx3-ubyte.gz" >broken/train-images-idx3-ubyte.gz
$run "$train" --data broken >out 2>err && fail "truncated data was accepted"
[ "$(grep -c '^coll_train: broken/train-images-idx3-ubyte.gz: truncated' err)" -eq 1 ] ||
  fail "truncated data: not exactly one line naming file and cause"

$run "$train" --epochs 2 --metrics metrics --checkpoint check >out 2>err || fail "training failed"
[ ! -s err ] || fail "training wrote to standard error"
[ "$(grep -c '^epoch ' out)" -eq 2 ] || fail "not one line for each epoch"
[ "$(wc -l <metrics)" -eq 3 ] || fail "not one metrics line for each epoch and the end"
[ -s check ] || fail "no checkpoint"
accuracy=$(sed -n 's/.*"type":"final".*"test_accuracy":\([0-9.]*\).*/\1/p' metrics)
awk -v a="$accuracy" 'BEGIN { exit !(a >= 0.86) }' || fail "test accuracy $accuracy is below 0.86"
echo "train.sh: 2 ranks, 2 epochs: test accuracy $accuracy"

# A terminal gets a moving bar.
if command -v script >/dev/null; then
  TERM=xterm script -qec "$run $train --epochs 1" /dev/null >out 2>err </dev/null || fail "training on a terminal failed"
  grep -q 'epoch 1/1 \[#' out || fail "no progress bar on a terminal"
fi
[ "$failures" -eq 0 ]
