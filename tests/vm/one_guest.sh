# shellcheck shell=sh
# In one guest: several ranks talk to each other over its device. A case is a line.
. "$SOURCE/tests/vm/guest.inc"
export COLL_TRANSPORT=verbs

perf() { "$BUILD/bin/collrun" -n "$1" "$BUILD/bin/coll_perf" $2; }

check "conformance" suite conformance_test_verbs
check "all-reduce, 2 ranks" perf 2 "allreduce -b 4 -e 4M -f 16 -n 5"

# What keeps a rank from using the device is one line; the next transport takes over, if there is one.
port_down() {
  ip link set "$LINK" down
  says "$@"
  status=$?
  ip link set "$LINK" up
  return $status
}
tcp_instead() {
  export COLL_TRANSPORT=verbs,tcp
  says 'cannot use transport verbs: .*must be locked' \
    locked_at_most 8192 "$BUILD/bin/collrun" -n 2 "$BUILD/bin/coll_topo" &&
    grep -q 'tcp, 2 links' /tmp/words
}
check "ports are shown" says '^  rxe0:1 RoCE v2 .*10\.78\.0\.1' "$BUILD/bin/coll_topo"
check "locked memory" says 'must be locked for verbs, .* raise `ulimit -l`' \
  locked_at_most 8192 "$BUILD/bin/collrun" -n 2 "$BUILD/bin/coll_perf" barrier
check "locked memory, TCP takes over" tcp_instead
check "port down" port_down 'rxe0 port 1 is not active.* set its network interface up' perf 2 barrier
check "port up again" perf 2 "barrier -n 1"
exit $failed
