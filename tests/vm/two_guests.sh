# shellcheck shell=sh
# In each of two guests: ranks on two hosts. A case is a line; both guests must run the same ones.
. "$SOURCE/tests/vm/guest.inc"
export COLL_TRANSPORT=verbs

perf="$BUILD/bin/coll_perf"

check "all-reduce, 2 ranks" spread 1 "$perf" allreduce -b 4 -e 1M -f 16 -n 5
exit $failed
