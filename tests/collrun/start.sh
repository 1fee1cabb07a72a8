#!/bin/sh
# The environment of ranks, collrun's arguments, and the placement of ranks.
. "$(dirname "$0")/support.inc"

"$collrun" -n 3 sh -c 'echo $COLL_RANK $COLL_NRANKS $COLL_LOCAL_RANK $COLL_LOCAL_NRANKS' | sort > out
expect "ranks" "0 3 0 3,1 3 1 3,2 3 2 3," "$(tr '\n' , < out)"

# One secret for all ranks of a run, another for the next run.
read_secret='[ -z "${COLL_SECRET+set}" ] && cat "/dev/fd/$COLL_SECRET_FD"'
COLL_SECRET=outer "$collrun" -n 3 sh -c "$read_secret" | sort -u > first
"$collrun" -n 1 sh -c "$read_secret" > second
lines first 1 || fail "ranks have different secrets"
grep -Eqx '[0-9a-f]{64}' first || fail "a secret is 64 hexadecimal digits: $(cat first)"
cmp -s first second && fail "two runs share a secret"

# A rank may be a script that runs several programs.
"$collrun" -n 2 sh -c '"$0" allreduce -b 4 -n 1 >&2 && "$0" allreduce -b 4 -n 1' "$BUILD/bin/coll_perf" > out 2> err ||
  fail "two programs: $(cat err)"

# Rank 0 inherits a socket that listens on the port of COLL_ROOT; the others get none.
cat > root.sh <<'END'
port=${COLL_ROOT##*:}
case $COLL_RANK in
0) hex=$(printf %04X "$port")
   inode=$(readlink "/proc/self/fd/$COLL_ROOT_FD" | tr -dc 0-9)
   cat /proc/net/tcp /proc/net/tcp6 | awk -v p=":$hex\$" -v i="$inode" \
     '$2 ~ p && $4 == "0A" && $10 == i {print "listens"}' ;;
*) echo "fd=${COLL_ROOT_FD-none}" ;;
esac
END
expect "root socket" "fd=none,listens," "$("$collrun" -n 2 sh root.sh | sort | tr '\n' ,)"
expect "port range" "127.0.0.1:29" "$(COLL_PORT_RANGE=29410-29490 "$collrun" -n 1 sh -c 'echo ${COLL_ROOT%???}')"
list='[ "${COLL_RANK-1}" = 0 ] || { ls "/proc/$$/fd" > fds && grep -vx "${COLL_SECRET_FD-none}" fds; }; :'
expect "no other descriptors" "$(sh -c "$list" < /dev/null)" "$("$collrun" -n 2 sh -c "$list")"

# Only rank 0 gets standard input.
expect "stdin" "0 hello,1," "$(echo hello | "$collrun" -n 2 sh -c 'echo $COLL_RANK $(cat)' | sort | tr '\n' ,)"

# Arguments arrive unchanged.
expect "arguments" "[a  b][-n][\$x][]" "$("$collrun" -n 1 -- sh -c 'printf "[%s]" "$@"' - 'a  b' -n '$x' '')"

# Exit statuses.
status() {
  "$@" > out 2> err < /dev/null
  echo $?
}
expect "success" 0 "$(status "$collrun" -n 4 true)"
expect "help" 0 "$(status "$collrun" --help)"
expect "a rank's status" 7 "$(status "$collrun" -n 3 sh -c '[ $COLL_RANK != 1 ] || exit 7')"
expect_in "the failed rank" "collrun: rank 1 (pid " err
expect_in "its status" "exited with status 7" err
expect "not found" 127 "$(status "$collrun" -n 3 no-such-program)"
expect_in "not found" "no-such-program: not found" err
expect "said once" 1 "$(wc -l < err)"
echo data > plain.txt
expect "not executable" 126 "$(status "$collrun" -n 2 ./plain.txt)"
expect_in "not executable" "./plain.txt: cannot be run: Permission denied" err
for bad in 0 -1 x 1x '' 4097 99999999999999999999; do
  expect "-n '$bad'" 2 "$(status "$collrun" -n "$bad" true)"
  expect_in "-n '$bad'" "number of ranks" err
done
expect "no -n" 2 "$(status "$collrun" true)"
expect "no program" 2 "$(status "$collrun" -n 2)"
expect "unknown option" 2 "$(status "$collrun" -n 2 --nonsense true)"
expect "bad timeout" 2 "$(status "$collrun" -n 2 --timeout 0 true)"
expect "bad timeout" 2 "$(status "$collrun" -n 2 --timeout soon true)"

# Each rank is bound to one core, its own if there are enough.
allowed=$(grep Cpus_allowed_list /proc/self/status)
masks() {
  "$@" sh -c 'grep Cpus_allowed: /proc/$$/status' | sort
}
if [ "$(cores)" -ge 2 ]; then
  [ "$(masks "$collrun" -n 1)" != "$(grep Cpus_allowed: /proc/self/status)" ] || fail "a rank is not bound"
  expect "two ranks, two cores" 2 "$(masks "$collrun" --bind core -n 2 | uniq | wc -l)"
  expect "three ranks a core" "$(cores) 3" \
    "$(masks "$collrun" --bind core -n $(($(cores) * 3)) | uniq -c | awk '{n[$1]++} END {for (c in n) print n[c], c}')"
  expect "room to move" "$(echo "$allowed" | awk '{print $2}')" "$("$collrun" -n 1 sh -c 'echo "$COLL_CPUS"')"
  expect "no room with --bind" "" "$(COLL_CPUS=0 "$collrun" -n 1 --bind core sh -c 'echo "$COLL_CPUS"')"
  expect "--no-bind" "$allowed" "$("$collrun" -n 1 --no-bind sh -c 'grep Cpus_allowed_list /proc/$$/status')"
  expect "--bind none" "$allowed" "$("$collrun" -n 1 --bind none sh -c 'grep Cpus_allowed_list /proc/$$/status')"
  expect "--verbose" "collrun: rank 0 is bound to $("$collrun" -n 1 --bind core -v sh -c \
    'sed -n "s/Cpus_allowed_list:.//p" /proc/$$/status' 2> err)" "$(cat err)"
  one=$(taskset -c -p $$ | sed 's/.*: //; s/[-,].*//')
  expect "a mask is kept" "Cpus_allowed_list:	$one" \
    "$(taskset -c "$one" "$collrun" -n 1 sh -c 'grep Cpus_allowed_list /proc/$$/status')"
fi
expect "too many ranks" "$allowed" \
  "$("$collrun" -n $(($(nproc) + 1)) sh -c 'grep Cpus_allowed_list /proc/$$/status' | uniq)"

# With one NUMA node this is all of the machine.
if [ "$(ls -d /sys/devices/system/node/node[0-9]* | wc -l)" -eq 1 ]; then
  expect "--bind numa" "$allowed" "$("$collrun" -n 1 --bind numa sh -c 'grep Cpus_allowed_list /proc/$$/status')"
fi
expect "not bound" "collrun: rank 0 is not bound" "$("$collrun" -n 1 --bind none -v true 2>&1)"
expect "bad --bind" 2 "$(status "$collrun" -n 1 --bind socket true)"
expect_in "bad --bind" "--bind takes core, numa or none" err
expect "bad --map" 2 "$(status "$collrun" -n 1 --map core true)"

# Many ranks.
expect "64 ranks" 2016 "$("$collrun" -n 64 sh -c 'echo $COLL_RANK' | awk '{s += $1} END {print s}')"
finish
