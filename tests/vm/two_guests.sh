# shellcheck shell=sh
# In each of two guests: ranks on two hosts. One line per case; both guests must run the same cases.
. "$SOURCE/tests/vm/guest.inc"
export COLL_TRANSPORT=shm,verbs

perf="$BUILD/bin/coll_perf"

# during DEED PATTERN: runs two ranks in each guest, and in the middle of their all-reduces DEED in guest 1, on
# its last rank (the argument is its process). The first rank of each guest must print PATTERN in time.
during() {
  packets=$(device_packets)
  COLL_TIMEOUT_MS=6000 COLL_VERBS_TIMEOUT=15 begin 2 timeout -k 1 60 "$perf" allreduce -b 256K -n 100000 -c 0 \
    >/tmp/ranks 2>&1
  await 40 carried $((packets + 2000)) || cat /tmp/ranks
  [ "$GUEST" = 0 ] || "$1" "$(pgrep -P "${pids##* }")"
  end
  cat /tmp/ranks
  grep -qE "libcoll \[$((2 * GUEST))\] error: .*$2" /tmp/ranks
}
kill_it() { kill -KILL "$1"; }
cut() { ip link set "$LINK" down; }

# The link comes back when guest 0 has noticed, which it says by a file in the shared output folder, or after 8 s: some
# of its ranks may end only then, because packets that they sent are stuck in their interface. Then new connections
# use the link.
again() {
  if [ "$GUEST" = 0 ]; then : >"$OUT/noticed"; else await 8 test -e "$OUT/noticed" || :; fi
  ip link set "$LINK" up && await 20 port_is ACTIVE && spread 2 "$perf" allreduce -b 64K -e 64K -n 5
}

check "all-reduce, 2 ranks" spread 1 "$perf" allreduce -b 4 -e 1M -f 16 -n 5
check "all-reduce, 4 ranks" spread 2 "$perf" allreduce -b 4 -e 1M -f 64 -n 3
check "all-to-all, 4 ranks" spread 2 "$perf" alltoall -b 64 -e 64K -f 32 -n 3
check "broadcast, 4 ranks" spread 2 "$perf" broadcast -b 64 -e 64K -f 32 -n 3
check "killed rank" during kill_it 'PEER_LOST: rank 3 '
# If both wait for an acknowledgement, it times out. If they wait only for data, their deadline ends the wait, or,
# in guest 0, where that comes late, the reset that it gets once the link is back and the other ranks have given up.
others=$((2 - 2 * GUEST))$((3 - 2 * GUEST))
check "link cut" during cut "(did not answer|rxe0 port 1|(TIMEOUT: .*waiting for|PEER_LOST:) rank [$others] )"
check "link back" again
exit $failed
