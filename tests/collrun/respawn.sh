#!/bin/sh
# --respawn: a rank that fails is started again, alone, and joins the others.
. "$(dirname "$0")/support.inc"
TMPDIR=$scratch/tmp
export TMPDIR
mkdir "$TMPDIR"

# fail.sh TIMES CONDITION: rank 1 fails so many times; the others wait for the condition.
cat > fail.sh <<'END_OF_RANK'
echo "$COLL_RANK ${COLL_RESPAWN-no} ${COLL_SECRET_FD+secret} ${COLL_ROOT_FD+root}" >> starts
case $COLL_JOIN_FILE in "$TMPDIR"/collrun.*) [ "$(stat -c %a "${COLL_JOIN_FILE%/*}")" = 700 ] || exit 9 ;; *) exit 9 ;; esac
if [ "$COLL_RANK" = 1 ]; then
  [ "${COLL_RESPAWN-0}" -ge "$1" ] || kill -9 $$
  : > "$COLL_JOIN_FILE" && : > well
else
  await sh -c "$2"
fi
END_OF_RANK

"$collrun" --timeout 100 -n 3 --respawn 4 sh fail.sh 2 'test -e well' 2> err || fail "status $?: $(cat err)"
expect "starts" "0 no secret root,1 1  ,1 2  ,1 no secret ,2 no secret ," "$(sort starts | tr '\n' ,)"
expect_in "first" "was killed by signal 9 (Killed); starting it again (1 of 4)" err
expect_in "second" "was killed by signal 9 (Killed); starting it again (2 of 4)" err
lines err 2 || fail "messages: $(cat err)"
expect "files" "" "$(ls "$TMPDIR")"
rm starts well

# The limit is for all ranks together; then the others continue, and their status counts.
"$collrun" --timeout 100 -n 3 --respawn 2 sh fail.sh 9 'grep -q "no further" err' 2> err || fail "limit: status $?: $(cat err)"
expect "starts" 5 "$(wc -l < starts)"
expect_in "limit" "--respawn allows no further start; the others continue" err
rm starts

# With --tag, what all processes of a rank print comes through.
"$collrun" --timeout 100 -n 2 -l --respawn 2 sh -c 'echo "life ${COLL_RESPAWN-0}"
  [ "$COLL_RANK" = 0 ] && await test -e well || [ "${COLL_RESPAWN-0}" = 2 ] && : > well' > out 2> err || fail "--tag: status $?: $(cat err)"
expect "--tag" "[0] life 0,[1] life 0,[1] life 1,[1] life 2," "$(sort out | tr '\n' ,)"
rm well

# Nothing starts again once a rank is done, after a signal, and at the time limit.
"$collrun" -n 2 --respawn 5 sh -c '[ "$COLL_RANK" = 0 ] || { await test -s zero; await sh -c "! kill -0 $(cat zero) 2> note"; exit 3; }; echo $$ > zero' 2> err
expect "at the end" "0 0" "$? $(grep -c again err)"
"$collrun" --timeout 0.5 -n 2 --respawn 5 stay 2> err
expect "time limit" "124 0" "$? $(grep -c again err)"
"$collrun" -n 2 --respawn 5 sh -c 'echo $$ >> pids; exec stay' 2> err &
run=$!
wait_for lines pids 2 || fail "ranks did not start"
kill -TERM "$run"
wait "$run"
expect "signal" "143 0" "$? $(grep -c again err)"

# collrun is killed: neither processes that were started again nor the folder are left.
"$collrun" -n 2 --respawn 1 sh -c '[ "$COLL_RANK" = 0 ] || [ -n "${COLL_RESPAWN-}" ] || exit 1; stay & echo $! >> all; echo $$ >> all; wait' 2> err &
run=$!
wait_for lines all 4 || fail "ranks did not start: $(cat err)"
kill -9 "$run"
wait "$run" 2> kill_note
wait_for gone $(cat all) || fail "processes are left after kill -9"
is_empty() { [ -z "$(ls "$1")" ]; }
wait_for is_empty "$TMPDIR" || fail "a folder is left after kill -9"

# Options that do not go together.
for bad in "--respawn 0" "--respawn x" "--respawn 1 --restarts 1"; do
  # shellcheck disable=SC2086
  if "$collrun" -n 2 $bad true 2> err; then fail "$bad: accepted"; fi
done
if "$collrun" --hosts a:2 --respawn 1 true 2> err; then fail "several hosts: accepted"; fi
expect_in "several hosts" "COLL_JOIN_FILE" err

# A program that does not know of it gets an error, not a communicator of its own.
"$collrun" --timeout 100 -n 2 --respawn 1 sh -c '[ "$COLL_RANK" = 1 ] || { await grep -q INVALID_USAGE err; exit 0; }
  [ -n "${COLL_RESPAWN-}" ] || exit 1; exec "$0"' "$BUILD/bin/coll_topo" 2> err || fail "status $?: $(cat err)"
expect_in "not joined" "coll_comm_join()" err

# The trainer: a worker, rank 0, and one that is killed twice. The run ends with all ranks and the loss of one without
# an accident.
trainer=$BUILD/tests/collrun_trainer
if [ -x "$trainer" ]; then
  yes "the quick brown fox jumps over the lazy dog" | head -c 8192 > text
  # train METRICS VICTIM LIVES OPTIONS...
  train() {
    metrics=$1 VICTIM=$2 LIVES=$3
    export VICTIM LIVES
    shift 3
    "$collrun" --timeout 200 -n 3 "$@" "$trainer" --data text --model transformer --context 16 --width 8 \
      --heads 1 --blocks 1 --epochs 6 --batch 32 --lr 0.1 --quiet --metrics "$metrics" 2> err || fail "$metrics: status $?: $(cat err)"
  }
  # number NAME FILE: a member of the last line.
  number() {
    tail -1 "$2" | sed "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/"
  }
  train whole -1 0
  for case in "worker 1 1" "zero 0 1" "twice 2 2"; do
    # shellcheck disable=SC2086
    train $case --respawn 3
    name=${case%% *}
    expect "$case: starts" "${case##* }" "$(grep -c 'starting it again' err)"
    expect "$case: ranks" 3 "$(number ranks "$name")"
    expect "$case: epochs" 6 "$(number epochs "$name")"
    awk -v a="$(number train_loss whole)" -v b="$(number train_loss "$name")" \
      'BEGIN {exit !(a > 0 && b > 0 && (a - b) ^ 2 < (a / 50) ^ 2)}' ||
      fail "$case: loss $(number train_loss "$name"), without an accident $(number train_loss whole)"
  done
  # Over the fake ssh, with a file that all hosts see.
  printf '#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\ncd / && setsid --wait env -i PATH="$PATH" sh -c "$1"\n' > ssh.sh
  chmod +x ssh.sh
  COLL_JOIN_FILE=$scratch/job COLL_SSH=$scratch/ssh.sh
  export COLL_JOIN_FILE COLL_SSH
  train far 1 1 --hosts localhost:3 -x VICTIM -x LIVES --respawn 1
  expect "over ssh" "1 3 6" "$(grep -c 'starting it again' err) $(number ranks far) $(number epochs far)"
fi
finish
