# shellcheck shell=sh
# In each of two guests: ranks on two hosts. A case is a line; both guests must run the same ones.
. "$SOURCE/tests/vm/guest.inc"
export COLL_TRANSPORT=shm,verbs

perf="$BUILD/bin/coll_perf"

check "all-reduce, 2 ranks" spread 1 "$perf" allreduce -b 4 -e 1M -f 16 -n 5
check "all-reduce, 4 ranks" spread 2 "$perf" allreduce -b 4 -e 1M -f 64 -n 3
check "all-to-all, 4 ranks" spread 2 "$perf" alltoall -b 64 -e 64K -f 32 -n 3
check "broadcast, 4 ranks" spread 2 "$perf" broadcast -b 64 -e 64K -f 32 -n 3
exit $failed
