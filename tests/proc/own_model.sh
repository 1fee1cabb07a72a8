#!/bin/sh
# trainer/example/own_model.c, a user's own model, trains with the trainer's strategies.
set -u
model=$BUILD/bin/own_model
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0

fail() {
  echo "own_model.sh: $1"
  sed 's/^/  | /' out
  failures=$((failures + 1))
}

# number NAME LINE: the value of NAME in the LINE-th line of the metrics.
number() {
  sed -n "$2s/.*\"$1\":\"*\([0-9a-f.e-]*\).*/\1/p" out
}

# trains RANKS STRATEGY: trains three epochs; the loss must fall. The trainer itself compares the ranks' weights.
trains() {
  if ! "$BUILD/bin/collrun" -n "$1" "$model" --epochs 3 --json --strategy "$2" >out 2>&1; then
    fail "$2, $1 ranks: failed"
    return
  fi
  first=$(number train_loss 1) last=$(number train_loss 3) accuracy=$(number test_accuracy 3)
  awk -v f="$first" -v l="$last" -v a="$accuracy" 'BEGIN { exit !(l < 0.6 * f && a > 0.9) }' ||
    fail "$2, $1 ranks: loss $first, then $last; test accuracy $accuracy"
}

export COLL_DETERMINISTIC=ordered
for ranks in 2 4; do
  trains $ranks allreduce
  whole=$(number weights_hash 3)
  trains $ranks zero1
  [ -n "$whole" ] && [ "$(number weights_hash 3)" = "$whole" ] ||
    fail "$ranks ranks: zero1 ends with other weights than allreduce, $whole"
  trains $ranks gossip
done

# Ranks cannot share layers of an unknown kind.
"$BUILD/bin/collrun" -n 2 "$model" --strategy tensor >out 2>&1 && fail "--strategy tensor was accepted"
grep -q '^own_model: .*kind radial.*only linear layers' out || fail "--strategy tensor: not the reason"

[ "$failures" -eq 0 ]
