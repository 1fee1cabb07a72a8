#!/bin/sh
# --hosts, with a fake ssh that runs the command here, as another host's shell would.
. "$(dirname "$0")/support.inc"

cat > ssh.sh <<'END'
#!/bin/sh
echo "$@" >> ssh.log
while [ $# -gt 2 ]; do shift; done
case $1 in
unreachable) echo "ssh: connect to host unreachable: No route to host" >&2; exit 255 ;;
esac
# Another host does not have our environment, starts in another folder, and creates its own session.
cd / && setsid --wait env -i PATH="$PATH" FAKE_HOST="$1" sh -c "$2"
END
chmod +x ssh.sh
export COLL_SSH="$scratch/ssh.sh"

"$collrun" --hosts a:2,b:1,a:1 sh -c 'echo $COLL_RANK $COLL_NRANKS $FAKE_HOST $COLL_LOCAL_RANK/$COLL_LOCAL_NRANKS' | sort > out
expect "ranks by host" "0 4 a 0/3,1 4 a 1/3,2 4 b 0/1,3 4 a 2/3," "$(tr '\n' , < out)"
expect "batch mode" 4 "$(grep -c -- '-o BatchMode=yes [ab] exec' ssh.log)"
expect "-n takes the first" 2 "$("$collrun" -n 2 --hosts a:2,b:2 sh -c 'echo $FAKE_HOST' | grep -cx a)"

# By node: one rank to each host in turn, as long as it has room; a host may be in the list twice.
by_node() {
  "$collrun" "$@" --map node sh -c 'echo $COLL_RANK $FAKE_HOST $COLL_LOCAL_RANK/$COLL_LOCAL_NRANKS' | sort | tr '\n' ,
}
expect "--map node" "0 a 0/3,1 b 0/1,2 a 1/3,3 a 2/3," "$(by_node --hosts a:2,b:1,a:1)"
expect "some of them" "0 a 0/2,1 b 0/1,2 a 1/2," "$(by_node -n 3 --hosts a:3,b:3)"
expect "--map slot" "a a b" "$("$collrun" --map slot -v --hosts a:2,b sh -c true 2>&1 | sed 's/.* runs on //' | tr '\n' ' ' | sed 's/ $//')"
expect "--bind there" 2 "$("$collrun" --bind core --hosts a true 2> err; echo $?)"
expect_in "--bind there" "those on others are not bound" err

# Folder, settings and arguments are passed on, also with special characters.
expect "folder" "$scratch" "$("$collrun" --hosts a pwd)"
mkdir "it's \$HOME"
expect "strange folder" "$scratch/it's \$HOME" "$(cd "it's \$HOME" && "$collrun" --hosts a pwd)"
expect "settings" "12345 - x'y z" \
  "$(COLL_TIMEOUT_MS=12345 COLL_LOG="x'y z" "$collrun" --hosts a sh -c 'echo $COLL_TIMEOUT_MS ${COLL_SSH:--} "$COLL_LOG"')"
expect "arguments" "[a  b][it's][\$HOME][two
lines][]" "$("$collrun" --hosts a -- sh -c 'printf "[%s]" "$@"' - 'a  b' "it's" '$HOME' 'two
lines' '')"
expect "root" "a" "$("$collrun" --hosts user@a:1,b:1 sh -c 'echo ${COLL_ROOT%:*}' | sort -u)"
expect "root port" "4" "$(COLL_PORT_RANGE=30001-30008 "$collrun" --hosts a:1 sh -c 'echo ${COLL_ROOT#a:3000}' | tr 5678 4)"
read_secret='[ -z "${COLL_SECRET+set}" ] && cat "/dev/fd/$COLL_SECRET_FD"'
expect "one secret" 1 "$(COLL_SECRET=outer "$collrun" --hosts a:2,b:2 sh -c "$read_secret" | grep -Ex '[0-9a-f]{64}' | sort -u | wc -l)"
expect "tags" "[0] a,[1] b," "$("$collrun" -l --hosts a,b sh -c 'echo $FAKE_HOST' | sort | tr '\n' ,)"
expect "no input" "" "$(echo text | "$collrun" --hosts a cat)"

# A file of hosts, and variables for them.
printf 'a slots=2 # two\n\n# a comment\nb\nc:1\n' > hostfile
expect "--hostfile" "a a b c" "$("$collrun" --hostfile hostfile sh -c 'echo $FAKE_HOST' | sort | tr '\n' ' ' | sed 's/ $//')"
expect "-x" "one t'wo -" "$(first=one third=3 "$collrun" --hosts a -x first -x "SECOND=t'wo" sh -c 'echo $first "$SECOND" ${third:--}')"
expect "-np" 2 "$("$collrun" -np 2 --hostfile hostfile sh -c 'echo $FAKE_HOST' | grep -cx a)"

# The secret is in no argument list while the ranks run, on either side.
"$collrun" --hosts a:1,b:1 sh -c "$read_secret"' > secret.$COLL_RANK; await [ -f go ]' &
run=$!
wait_for test -s secret.0 || fail "rank 0 did not start"
wait_for test -s secret.1 || fail "rank 1 did not start"
for process in /proc/[0-9]*; do
  [ ! -r "$process/cmdline" ] || tr '\0' ' ' < "$process/cmdline"
done > arguments 2> /dev/null
grep -qF "$(cat secret.0)" arguments && fail "the secret is in an argument list"
grep -qF "BatchMode=yes a" arguments || fail "the check saw no ssh"
touch go
wait "$run" || fail "run failed"

# Failures.
status() {
  "$@" > out 2> err < /dev/null
  echo $?
}
expect "status" 7 "$(status "$collrun" --hosts a,b sh -c '[ $COLL_RANK = 0 ] || exit 7; stay')"
expect_in "status" "collrun: rank 1 on b exited with status 7; ending the others" err
expect "signal" 137 "$(status "$collrun" --hosts a,b sh -c '[ $COLL_RANK = 0 ] && kill -9 $$; exec stay')"
expect_in "signal" "collrun: rank 0 on a was killed by signal 9 (Killed)" err
expect "not found there" 127 "$(status "$collrun" --hosts a no-such-program)"
expect "unreachable" 255 "$(status "$collrun" --hosts unreachable true)"
expect_in "unreachable" "rank 0 on unreachable exited with status 255 (from ssh" err
expect "no ssh" 127 "$(COLL_SSH=/no/such/ssh status "$collrun" --hosts a true)"
expect_in "no ssh" "/no/such/ssh: not found" err
for bad in a:0 a:x : '' ,, -oProxyCommand=x:1 'a b:1' '[::1' a:5000; do
  expect "--hosts '$bad'" 2 "$(status "$collrun" --hosts "$bad" true)"
done
for bad in 'a slots=0' 'a slots=x' 'a 2' 'a slots=1 more' 'a,b' ''; do
  echo "$bad" > bad
  expect "a hostfile of '$bad'" 2 "$(status "$collrun" --hostfile bad true)"
done
expect "no hostfile" 2 "$(status "$collrun" --hostfile none true)"
expect_in "no hostfile" "--hostfile none: No such file or directory" err
for bad in '' = =x 1x a-b; do expect "-x '$bad'" 2 "$(status "$collrun" --hosts a -x "$bad" true)"; done
expect "too few places" 2 "$(status "$collrun" -n 4 --hosts a:2,b:1 true)"

# Signals are forwarded; stubborn ranks are killed; nothing is left when collrun is killed.
env --default-signal=INT "$collrun" --hosts a,b sh -c 'trap "echo got it; exit 0" INT; echo $$ >> pids; await false' > out &
run=$!
wait_for lines pids 2 || fail "ranks did not start"
kill -INT "$run"
wait "$run"
expect "SIGINT" "0 2" "$? $(grep -c 'got it' out)"
rm pids
expect "stubborn" 124 "$(status "$collrun" --timeout 0.5 --hosts a,b sh -c 'trap "" TERM; echo $$ >> pids; await false')"
wait_for gone $(cat pids) || fail "stubborn ranks are left"
rm pids
"$collrun" --hosts a,b sh -c 'stay & echo $! >> pids; echo $$ >> pids; wait' &
run=$!
wait_for lines pids 4 || fail "ranks did not start"
kill -9 "$run"
wait "$run" 2> /dev/null
wait_for gone $(cat pids) || fail "processes are left after kill -9 of collrun"
finish
