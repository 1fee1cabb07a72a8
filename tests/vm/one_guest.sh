# shellcheck shell=sh
# In one guest: several ranks communicate over its device. One line per case.
. "$SOURCE/tests/vm/guest.inc"
export COLL_TRANSPORT=verbs

perf() { "$BUILD/bin/collrun" -n "$1" "$BUILD/bin/coll_perf" $2; }

tcp_instead() {
  export COLL_TRANSPORT=verbs,tcp
  says 'cannot use transport verbs: .*must be locked' \
    locked_at_most 1024 "$BUILD/bin/collrun" -n 2 "$BUILD/bin/coll_topo" &&
    grep -q 'tcp, 2 links' /tmp/words
}

# In the middle of all-reduces of three ranks; all must end in time with an error that names the port.
port_taken_down() {
  packets=$(device_packets)
  COLL_TIMEOUT_MS=4000 begin 3 timeout -k 1 60 "$BUILD/bin/coll_perf" allreduce -b 1M -n 100000 -c 0 \
    >/tmp/ranks 2>&1
  await 40 carried $((packets + 5000)) || cat /tmp/ranks
  ip link set "$LINK" down
  end
  cat /tmp/ranks
  for rank in 0 1 2; do
    grep -q "libcoll \[$rank\] error: .*rxe0 port 1" /tmp/ranks || return
  done
}
bring_up() { ip link set "$LINK" up && await 20 port_is ACTIVE; }

# Slots use huge pages, if some are reserved.
huge_pages() { awk "/HugePages_$1/ { print \$2 }" /proc/meminfo; }
huge_pages_used() { [ "$(huge_pages Free)" -lt "$(huge_pages Total)" ]; }
in_huge_pages() {
  echo 32 >/proc/sys/vm/nr_hugepages
  ! huge_pages_used && begin 2 "$BUILD/bin/coll_perf" allreduce -b 64K -e 64K -n 800 -c 0
  await 30 huge_pages_used && end && ! huge_pages_used
  used=$?
  echo 0 >/proc/sys/vm/nr_hugepages
  return $used
}

# with_faults PLAN N ARGUMENTS: under the fault decorator.
with_faults() { COLL_FAULT=$1 COLL_TIMEOUT_MS=4000 perf "$2" "$3"; }

# with_check KIND PLAN ARGUMENTS: messages are checked, above the fault decorator.
with_check() { COLL_DATA_CHECK=$1 with_faults "$2" 2 "$3"; }

check "conformance" suite conformance_test_verbs 'verbs?(_fault)/*'
check "conformance, large slots" suite conformance_test_verbs \
  'verbs_large/@(pairings|buffer_in_use|flow_control|sent_without_receive|disconnect_delivers|memory_traffic)'
check "ports are shown" says '^  rxe0:1 RoCE v2 .*10\.78\.0\.1' "$BUILD/bin/coll_topo"
check "ways are shown" says '1 link .*: rxe0:1 10\.78\.0\.1 to 10\.78\.0\.1' \
  "$BUILD/bin/collrun" -n 2 "$BUILD/bin/coll_topo"
check "all-reduce, 2 ranks" perf 2 "allreduce -b 4 -e 4M -f 16 -n 5"
check "every collective, 4 ranks" perf 4 "allreduce reduce reduce_scatter broadcast allgather gather scatter alltoall \
  barrier scan exscan reduce_scatterv allgatherv gatherv scatterv alltoallv sendrecv -b 64 -e 256K -f 64 -n 3"
check "faults to bear" with_faults seed=5,again=20,pending=10,delay_us=2000 4 "allreduce -b 64 -e 256K -f 64 -n 3"
check "cut link" says 'PEER_LOST: .*broke this connection' with_faults cut=0-1@20 3 "allreduce -b 64K -n 50"
check "stalled link" says 'TIMEOUT: .*rank [01] ' with_faults stall=0-1@20 3 "allreduce -b 64K -n 50"
check "checked data" with_check mac seed=1,again=5 "allreduce -b 64 -e 256K -f 64 -n 3"
check "flipped bit, checksum" says 'PROTOCOL: .*CRC32C check: message 20 from rank 0 to rank 1 over verbs.* was altered' \
  with_check crc32c flip=0-1@20 "allreduce -b 64K -n 50"
check "repeated message, code" says 'AUTH: .*MAC check: message 21 from rank 0 to rank 1 over verbs.* message 20 came again' \
  with_check mac replay=0-1@20 "allreduce -b 64K -n 50"
check "huge pages" in_huge_pages

# If a rank cannot use the device, one line says why, and the next transport is used, if there is one.
check "locked memory" says 'must be locked for verbs, .* raise `ulimit -l`' \
  locked_at_most 1024 "$BUILD/bin/collrun" -n 2 "$BUILD/bin/coll_perf" barrier
check "little locked memory" locked_at_most 8192 "$BUILD/bin/collrun" -n 2 "$BUILD/bin/coll_perf" \
  allreduce -b 64K -e 4M -f 8 -n 2
check "locked memory, TCP takes over" tcp_instead
check "port taken down" port_taken_down
check "port down" says 'rxe0 port 1 is not active.* set its network interface up' perf 2 barrier
check "port back up" bring_up
check "all-reduce afterwards" perf 2 "allreduce -b 64 -e 64K -f 32 -n 3"
exit $failed
