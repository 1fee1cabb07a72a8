#!/bin/sh
# How a run ends: failed ranks, signals, time limits, and nothing left over.
. "$(dirname "$0")/support.inc"

# Starts collrun in the background, with the signal handling of a terminal.
begin() {
  rm -f pids out err
  env --default-signal=INT,QUIT "$collrun" "$@" > out 2> err < /dev/null &
  run=$!
}

end() {
  wait "$run" 2> kill_note
  code=$?
}

# A rank that is killed is named; the others are ended, even if they ignore SIGTERM.
begin -n 3 sh -c 'trap "" TERM; echo $$ >> pids; [ $COLL_RANK = 2 ] || await false
                  await sh -c "[ \$(wc -l < pids) = 3 ]"; kill -9 $$'
end
expect "status of a killed rank" 137 "$code"
expect_in "name of a killed rank" "collrun: rank 2 (pid $(grep -o 'pid [0-9]*' err | head -1 | cut -c5-)) was killed by signal 9 (Killed); ending the others" err
gone $(cat pids) || fail "ranks are left after a failure"

# Other ranks that notice the failure may report it and end in their own way; the first failure counts.
begin -n 2 sh -c 'echo $$ >> pids; [ $COLL_RANK = 1 ] && exit 3; await grep -q "^collrun: rank 1 " err; echo lost a peer; exit 9'
end
expect "first failure" 3 "$code"
expect_in "time to find out" "lost a peer" out
expect "one report" 1 "$(grep -c 'collrun: rank' err)"

# A rank that succeeds does not end the others: rank 0 runs for a while longer.
begin -n 2 sh -c '[ $COLL_RANK = 1 ] || { sleep 0.5; echo finished; }'
end
expect "early end" "0 finished" "$code $(cat out)"

# Processes that a rank leaves behind end with it.
begin -n 2 sh -c 'stay & echo $! >> pids'
end
expect "background children" 0 "$code"
wait_for gone $(cat pids) || fail "children of ranks are left"

# Signals reach every rank.
for signal in TERM HUP USR1 USR2 INT; do
  begin -n 3 sh -c 'trap "echo got-'$signal'; exit 0" '$signal'; echo $$ >> pids; await false'
  wait_for lines pids 3 || fail "ranks did not start"
  kill -"$signal" "$run"
  end
  expect "$signal" "0 3" "$code $(grep -c "got-$signal" out)"
done
begin -n 2 sh -c 'echo $$ >> pids; exec stay'
wait_for lines pids 2
kill -TERM "$run"
end
expect "SIGTERM, not handled" 143 "$code"
gone $(cat pids) || fail "ranks are left after SIGTERM"

# With --keep-going a rank that dies does not end the others.
begin --keep-going -n 3 sh -c '[ "$COLL_RANK" != 1 ] || kill -9 $$; await grep -q "killed by" err; echo through'
end
expect "keep going" 0 "$code"
expect_in "keep going" "rank 1 " err
expect_in "keep going" "killed by signal 9 (Killed); the others continue" err
lines out 2 || fail "keep going: the others did not go on"
begin --keep-going -n 2 sh -c 'exit $((3 + COLL_RANK))'
end
[ "$code" = 3 ] || [ "$code" = 4 ] || fail "keep going, all fail: $code"

# The second SIGINT kills.
begin -n 2 sh -c 'trap "echo again" INT; echo $$ >> pids; while :; do await false; done'
wait_for lines pids 2
kill -INT "$run"
wait_for lines out 2 || fail "the first SIGINT did not reach the ranks"
kill -INT "$run"
end
expect "second SIGINT" 130 "$code"
gone $(cat pids) || fail "ranks are left after two SIGINTs"

# A time limit.
begin --timeout 0.5 -n 2 sh -c 'echo $$ >> pids; exec stay'
end
expect "time limit" 124 "$code"
expect_in "time limit" "time limit of 0.5 s has passed; ending ranks 0, 1" err
gone $(cat pids) || fail "ranks are left after the time limit"
begin --timeout 0.5 -n 2 sh -c 'trap "" TERM; echo $$ >> pids; await false'
end
expect "time limit, stubborn ranks" 124 "$code"
gone $(cat pids) || fail "stubborn ranks are left after the time limit"

# Restarts: all ranks start again, with another secret; logs have all attempts.
cat > again.sh <<'END'
cat "/dev/fd/$COLL_SECRET_FD" >> "secrets.$COLL_RANK"
echo "rank $COLL_RANK"
[ "$COLL_RANK" = 0 ] || [ "$(wc -l < secrets.1)" -gt "$1" ] || exit 3
END
"$collrun" -n 2 --restarts 3 --logs logs sh again.sh 2 2> err || fail "restarts: status $?: $(cat err)"
expect "restarts" 2 "$(grep -c '^collrun: restart [12] of 3' err)"
expect "secrets" 3 "$(sort -u secrets.0 | wc -l)"
lines logs/rank.1.log 3 || fail "restarts: $(cat logs/rank.1.log)"
rm secrets.*
"$collrun" -n 2 --restarts 1 sh again.sh 2 > out 2> err
expect "too many failures" 3 "$?"
rm secrets.*
"$collrun" -n 1 --restarts 3 /no/such/program 2> err
expect "no program" "127 0" "$? $(grep -c restart err)"
begin -n 2 --restarts 3 sh -c 'echo $$ >> pids; exec stay'
wait_for lines pids 2 || fail "ranks did not start"
kill -TERM "$run"
end
expect "a signal ends all" "143 0" "$code $(grep -c 'restart ' err)"

# collrun killed with -9: neither ranks nor their children are left.
begin -n 3 sh -c 'stay & echo $! >> pids; echo $$ >> pids; wait'
wait_for lines pids 6 || fail "ranks did not start"
kill -9 "$run"
end
wait_for gone $(cat pids) || fail "processes are left after kill -9 of collrun"
finish
