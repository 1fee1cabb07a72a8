#!/bin/sh
# coll_kernels: a table, the same numbers as CSV, and messages for bad usage.
set -eu
csv=$(mktemp)
trap 'rm -f "$csv"' EXIT
table=$("$BUILD/bin/coll_kernels" --sizes 4K,12K --ms 0.01 --type float32 --csv "$csv")

fail() {
  echo "$1" >&2
  printf '%s\n' "$table" >&2
  cat "$csv" >&2
  exit 1
}

[ "$(head -1 "$csv")" = isa,type,op,form,bytes,gb_per_s,limit_gb_per_s,percent ] || fail "head of the CSV"
for form in one two in average scale; do
  for bytes in 4096 12288; do
    grep -qE "^portable,float32,sum,$form,$bytes,[0-9.]+,[0-9.]+,[0-9.]+$" "$csv" || fail "$form of $bytes"
  done
  printf '%s\n' "$table" | grep -qE "^float32 +sum +$form( +[0-9]+)+$" || fail "line of $form"
done
for op in prod min max; do
  grep -q "^portable,float32,$op,one," "$csv" || fail "$op"
done
# Nontemporal stores are measured only if the result is larger than the caches.
if grep -q ',stream,' "$csv"; then fail "stream of a small vector"; fi
"$BUILD/bin/coll_kernels" --sizes 1M --ms 0.01 --type int8 --form stream --csv "$csv" >/dev/null
grep -q '^portable,int8,sum,stream,1048576,' "$csv" || fail "stream of a large vector"

for bad in "--isa mmx" "--type complex" "--op mean" "--form three" "--sizes 1" "--sizes 4K," "--sizes 9G" \
  "--ms 0" "--ms x" "--size" "more"; do
  status=0
  # shellcheck disable=SC2086
  "$BUILD/bin/coll_kernels" $bad >/dev/null 2>&1 || status=$?
  [ "$status" -eq 2 ] || fail "$bad: status $status"
done
