#!/bin/sh
# An error that several ranks print is shown once; everything else that ranks print goes through as it is, in order.
. "$(dirname "$0")/support.inc"

# Starts a rank for each script that is given; all scripts begin at once, while collrun is stopped. run_all OPTIONS --
# SCRIPT...; the next two calls let collrun go on, or kill it.
start_all() {
  rm -rf go wrote.* script.* out err pids
  options=
  while [ "$1" != -- ]; do options="$options $1" && shift; done
  shift
  n=0
  for script; do printf '%s\n' "$script" > "script.$n" && n=$((n + 1)); done
  # shellcheck disable=SC2086
  "$collrun" --timeout 100 -n "$n" $options sh -c 'echo $$ >> pids; await test -e go; . ./script.$COLL_RANK
    : > wrote.$COLL_RANK; await test -e end' > out 2> err < /dev/null &
  run=$!
  wait_for lines pids "$n" || fail "ranks did not start"
  kill -STOP "$run"
  wait_for is_stopped || fail "collrun does not stop"
  : > go
  r=0
  while [ "$r" -lt "$n" ]; do
    wait_for test -e "wrote.$r" || fail "rank $r does not write"
    r=$((r + 1))
  done
}

is_stopped() {
  grep -q '^State:[[:space:]]*T' "/proc/$run/status"
}

end_all() {
  : > end
  kill -CONT "$run"
  wait "$run" || fail "status $?"
  rm -f end
}

error() {
  printf 'echo "libcoll [%s] error: %s" >&2' "$1" "$2"
}

lost="rank 9 (host h9, pid 7) is lost: its link to rank"
start_all -- "$(error 0 "$lost 1")" "$(error 1 "$lost 1")" "$(error 2 "$lost 2")" :
end_all
expect "one error" "libcoll [0-2] error: $lost 1" "$(cat err)"
start_all -l -- "$(error 0 "$lost 1")" : "$(error 2 "$lost 2")" "$(error 3 "$lost 2")"
end_all
expect "with --tag" "[0,2-3] libcoll [0,2-3] error: $lost 1" "$(cat err)"
start_all --logs logs -- "$(error 0 "$lost 1")" "$(error 1 "$lost 1")"
end_all
expect "with --logs" "libcoll [0] error: $lost 1,libcoll [1] error: $lost 1,," "$(cat logs/rank.0.log logs/rank.1.log err | tr '\n' ,),"

# Ranks name themselves and tell times; ranks without a number have the same error.
start_all -- "$(error 0 "rank 0 (host a, pid 1) called x, but rank 2 (host c) y; 1.5 s ago")" \
  "$(error 1 "rank 1 (host b) called x, but rank 2 (host c) y; 12 s ago")" \
  "$(error - "no such setting")" "$(error - "no such setting")"
end_all
expect "own names" "libcoll [0-1] error: rank 0 (host a, pid 1) called x, but rank 2 (host c) y; 1.5 s ago,libcoll [2-3] error: no such setting," \
  "$(sort err | tr '\n' ,)"

# Other culprits, other operations, and other lines are not the same.
start_all -- "$(error 0 "rank 4 is lost")" "$(error 1 "rank 5 is lost")" "$(error 2 "rank 4 did allreduce #7")" \
  "$(error 3 "rank 4 did allreduce #8")" 'echo "libcoll [4] warn: x" >&2' 'echo "libcoll [5] warn: x" >&2' \
  'echo same >&2' 'echo same >&2' 'echo "my libcoll [0] error: x" >&2' 'echo "my libcoll [0] error: x" >&2'
end_all
expect "others" "10 8 0" "$(wc -l < err) $(sort -u err | wc -l) $(grep -c '\[[0-9]*[-,]' err)"

# What a rank prints stays in order, before and after the error, and its second error.
first=$(error 0 one)
start_all -- "echo a0 >&2; $first; printf b0 >&2; echo c >&2; $(error 0 two); echo d0 >&2" \
  "echo a1 >&2; $(error 1 one); $(error 1 two); echo d1 >&2" \
  "$(error 2 one)"
end_all
expect "order of rank 0" "a0,libcoll [0-2] error: one,b0c,libcoll [0-1] error: two,d0," "$(grep -v '[a-d]1' err | tr '\n' ,)"
expect "order of rank 1" "a1,libcoll [0-2] error: one,libcoll [0-1] error: two,d1," "$(grep -v '[a-d]0' err | tr '\n' ,)"

# Any bytes, also incomplete lines and some that begin like an error.
head -c 300000 /dev/urandom > random
printf 'libcoll [1] error' >> random
"$collrun" -n 2 sh -c '[ "$COLL_RANK" = 1 ] || cat random >&2' 2> err
cmp random err || fail "output was changed"
"$collrun" --timeout 60 -n 2 sh -c '[ "$COLL_RANK" = 1 ] || printf "name? " >&2; await grep -q "name?" err' 2> err ||
  fail "a question without an end of line does not come"
# An error that nobody else has is shown although the others live on.
"$collrun" --timeout 60 -n 2 sh -c '[ "$COLL_RANK" = 1 ] || echo "libcoll [0] error: mine" >&2
  await grep -qxF "libcoll [0] error: mine" err' 2> err || fail "an error does not come: $(cat err)"
# One that a rank prints before it ends comes before what collrun says about that.
"$collrun" -n 3 sh -c '[ "$COLL_RANK" = 1 ] || exec stay; echo "libcoll [1] error: end" >&2; kill -9 $$' 2> err
expect "the reason first" "libcoll,collrun:," "$(cut -d ' ' -f 1 err | head -2 | tr '\n' ,)"

# collrun is killed: nothing is lost.
start_all -- "$first; echo after >&2" "$(error 1 one)" 'echo last >&2'
kill -9 "$run"
wait "$run" 2> kill_note
wait_for grep -q last err || fail "what was printed last is lost"
expect "kill -9" "after,last,libcoll [0-1] error: one," "$(sort err | tr '\n' ,)"
wait_for gone $(cat pids) || fail "ranks are left after kill -9"

# Nobody reads standard error: ranks are told. Nobody reads it for a while: signals reach them all the same.
{ "$collrun" --timeout 60 -n 2 sh -c 'exec yes >&2' 2>&1 > out; echo $? > code; } | head -1 > first
expect "broken pipe" 141 "$(cat code)"
mkfifo full
exec 9<> full
"$collrun" -n 2 sh -c 'trap "echo got >> got; exit 0" TERM; echo $$ >> pids2; yes >&2 & echo $! >> yeses; wait' 2> full &
run=$!
wait_for lines pids2 2 || fail "ranks did not start"
are_blocked() { lines yeses 2 && [ "$(for pid in $(cat yeses); do grep '^State:.S' "/proc/$pid/status"; done | wc -l)" = 2 ]; }
wait_for are_blocked || fail "there is still room"
kill -TERM "$run"
wait_for lines got 2 || fail "no signal while nobody reads"
cat full > rest 9>&- &
reader=$!
exec 9>&-
wait "$run"
wait "$reader"
finish
