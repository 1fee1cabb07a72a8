# shellcheck shell=sh
# In one guest: several ranks talk to each other over its device. A case is a line.
. "$SOURCE/tests/vm/guest.inc"
export COLL_TRANSPORT=verbs

perf() { "$BUILD/bin/collrun" -n "$1" "$BUILD/bin/coll_perf" $2; }

check "conformance" suite conformance_test_verbs
check "all-reduce, 2 ranks" perf 2 "allreduce -b 4 -e 4M -f 16 -n 5"
exit $failed
