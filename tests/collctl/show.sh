#!/bin/bash
# collctl on a job of four ranks, of which one waits in its own code and one is stopped: which rank is late,
# from any of the processes, as text, JSON and for Prometheus; nothing for another user; nothing after the job.
. "$(dirname "$0")/../collrun/support.inc"
collctl=$BUILD/bin/collctl
reader=$SOURCE/tests/collctl/read_output.py

"$collrun" --timeout 300 -n 4 sh -c 'echo $$ > pid.$COLL_RANK; exec "$0"' "$BUILD/tests/collctl_job" 2> job.err &
job=$!
all_there() {
  [ -s pid.0 ] && [ -s pid.1 ] && [ -s pid.2 ] && [ -s pid.3 ]
}
# stuck FILE: collctl says that the last rank is late, and who waits. Instrumented ranks are slower than wait_for.
stuck() {
  "$collctl" show "$(cat pid.0)" > "$1" 2>&1 && grep -q 'ranks 0-2 have waited' "$1"
}
wait_for all_there || fail "the ranks do not start: $(cat job.err)"
wait_for stuck out || wait_for stuck out || fail "nobody is late: $(cat out job.err)"
host=$(hostname)
expect_in "late" "rank 3 (host $host, pid $(cat pid.3)) has not entered allreduce #102 (4 KiB float32 sum) on communicator \"dp\"; ranks 0-2 have waited for " out
expect_in "late" " s; its last was broadcast #101 (1 KiB int32), finished " out
expect "late ranks" 1 "$(grep -c 'has not entered' out)"

# Stopped ranks are seen as well, and asking for them or for the stuck one gives the whole job.
kill -STOP "$(cat pid.2)"
for r in 0 1 2 3; do
  "$collctl" dump "$(cat "pid.$r")" > out 2>&1 || fail "dump of rank $r: $(cat out)"
  expect "ranks that the dump of rank $r has" 12 "$(grep -c '^rank [0-3] of ' out)"
  expect_in "stopped" " $(cat pid.2) stopped " out
  expect_in "in flight" "allreduce #102 (4 KiB float32 sum): begun " out
  expect_in "links" "  to rank 1 over shm (same host, shared memory): " out
done
"$collctl" | grep -q " $(cat pid.2)      2      4  [0-9a-f]* stopped .* \"dp\": allreduce #102" || fail "list: $("$collctl")"
"$collctl" show "$(cat pid.1)" --json | python3 -m json.tool > /dev/null || fail "show --json"
"$collctl" list --json | python3 -m json.tool > /dev/null || fail "list --json"
"$collctl" dump "$(cat pid.3)" --json > out || fail "dump --json"
"$reader" json out 4 || fail "JSON: $(cat out)"
"$collctl" "$(cat pid.3)" --prometheus > out || fail "--prometheus"
"$reader" prometheus out 4 || fail "Prometheus: $(cat out)"

# By name.
"$collctl" show 'odd "half"' > out || fail "by name"
expect "communicators of a name" 1 "$(grep -c '^communicator "odd "half"", 2 ranks$' out)"
grep -q '"dp"' out && fail "other communicators than asked for: $(cat out)"

# Bad usage, and processes that do not use libcoll.
for bad in --surplus "show 1 2" "dump 99999999999"; do
  # shellcheck disable=SC2086
  "$collctl" $bad > out 2>&1
  expect "status of '$bad'" 2 $?
done
"$collctl" show no-such-name > out 2>&1
expect "status without such a communicator" 1 $?
"$collctl" show $$ > out 2>&1
expect "status of another process" 1 $?
expect_in "another process" "this process has no communicator" out
"$collctl" --help | grep -q '^Usage: collctl' || fail "help"

# Another user sees nothing.
nobody="setpriv --reuid 65534 --regid 65534 --clear-groups"
if [ "$(id -u)" = 0 ] && $nobody "$collctl" --help > /dev/null 2>&1; then
  $nobody "$collctl" show "$(cat pid.0)" > out 2>&1
  expect "status of another user" 1 $?
  expect_in "another user" "cannot look into process $(cat pid.0): Permission denied" out
  $nobody "$collctl" show dp > out 2>&1 && fail "another user sees $(cat out)"
fi

kill -CONT "$(cat pid.2)"
kill "$job"
wait "$job"
# shellcheck disable=SC2046
wait_for gone $(cat pid.*) || fail "ranks are left"
"$collctl" show "$(cat pid.0)" > out 2>&1 && fail "a job that has ended: $(cat out)"
finish
