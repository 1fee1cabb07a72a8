#!/bin/sh
# --tag: each line with its rank, in one piece, on the right stream; nothing is lost.
. "$(dirname "$0")/support.inc"

"$collrun" -n 2 --tag sh -c 'echo out$COLL_RANK; echo err$COLL_RANK >&2; printf "no end"' > out 2> err
expect "standard output" "[0] no end,[0] out0,[1] no end,[1] out1," "$(sort out | tr '\n' ,)"
expect "standard error" "[0] err0,[1] err1," "$(sort err | tr '\n' ,)"

# --logs: a file for each rank.
expect "--logs" "" "$("$collrun" -n 2 --logs logs sh -c 'echo out$COLL_RANK; echo err$COLL_RANK >&2' 2>&1)"
expect "rank 0's log" "out0,err0," "$(tr '\n' , < logs/rank.0.log)"
expect "rank 1's log" "out1,err1," "$(tr '\n' , < logs/rank.1.log)"
for bad in "-l --logs logs" "--logs random/x" "--logs /dev/null"; do
  # shellcheck disable=SC2086
  if "$collrun" -n 1 $bad true 2> err; then fail "$bad: accepted"; fi
done

# A line that comes in parts is not interrupted by another rank's. (The test cannot see whether collrun has read a part.)
"$collrun" -n 3 -l sh -c 'for i in 1 2 3 4 5; do printf "begin "; sleep 0.02; printf "middle "; echo "end $i"; done' > out
expect "whole lines" 15 "$(grep -Ecx '\[[0-2]\] begin middle end [1-5]' out)"
lines out 15 || fail "lines were torn: $(cat out)"

# Much output from several ranks.
"$collrun" -n 4 -l sh -c 'seq -f "$COLL_RANK line %06g" 1 20000' > out
expect "all lines" 80000 "$(grep -Ec '^\[([0-3])\] \1 line [0-9]{6}$' out)"
expect "in order" "" "$(grep '^\[2\]' out | sort -c 2>&1)"

# All bytes are passed on, including zeros; lines longer than the buffer come in pieces, and nothing is lost.
head -c 300000 /dev/urandom > random
"$collrun" -n 1 -l sh -c 'cat random; echo' > out
{ cat random; echo; } | LC_ALL=C sed 's/^/[0] /' > wanted
LC_ALL=C cmp out wanted || fail "binary output was changed"
"$collrun" -n 1 -l sh -c 'head -c 200000 /dev/zero | tr "\0" x; echo' > out
expect "a long line" 200000 "$(sed 's/^\[0\] //' out | tr -d '\n' | wc -c)"

# If nobody reads, ranks get a broken pipe, and nothing hangs.
{ "$collrun" --timeout 20 -n 2 -l yes 2> err; echo $? > code; } | head -1 > out
expect "broken pipe" 141 "$(cat code)"
expect "one line" 1 "$(wc -l < out)"

# A rank closes its output and continues.
"$collrun" --timeout 20 -n 1 -l sh -c 'echo last; pipe=$(readlink /proc/$$/fd/1)
                         gone() { ! readlink /proc/$PPID/fd/* | grep -qxF "$pipe"; }
                         gone && exit 6; exec >&- 2>&-; until gone; do sleep 0.02; done; exit 5' > out 2> err
expect "closed output" "5 [0] last" "$? $(cat out)"

# Enough descriptors for many ranks, even if the soft limit is low.
expect "many pipes" 200 "$(ulimit -Sn 256; "$collrun" -n 200 -l sh -c 'echo $(ulimit -Sn)' | grep -c ' 256$')"
finish
