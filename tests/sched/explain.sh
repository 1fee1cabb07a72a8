#!/bin/sh
# explain.sh: what coll_explain prints, and how it refuses bad arguments.
explain="$BUILD/bin/coll_explain"
failed=0

# expect STATUS TEXT ARGS...: the exit status, and a text that the output must contain.
expect() {
  status=$1 text=$2
  shift 2
  output=$("$explain" "$@" 2>&1)
  got=$?
  if [ $got -ne "$status" ]; then
    echo "coll_explain $*: exit status $got instead of $status:" "$output"
    failed=1
  fi
  case $output in
  *"$text"*) ;;
  *)
    echo "coll_explain $*: no '$text' in:" "$output"
    failed=1
    ;;
  esac
  if [ "$status" -eq 2 ] && [ "$(printf '%s\n' "$output" | wc -l)" -ne 1 ]; then
    echo "coll_explain $*: more than one line:" "$output"
    failed=1
  fi
}

expect 0 "Usage: coll_explain" --help
expect 0 "* ring" allreduce -n 8 -b 64M --cores 0
expect 0 "chosen: recdbl" allreduce -n 32 -b 4 --cores 0
expect 0 "why: lowest cost by formula; the next, " allreduce -n 8 -b 1M
expect 0 "why: --algo asks for it; ring would take" allreduce -n 8 -b 64M --algo dbtree --cores 0
expect 0 "* direct" allreduce -n 40 -b 4 --algo direct
expect 0 "output[1] op message from 1 -> rank 7" allreduce -n 8 -b 1M --algo dbtree --rank 3
expect 0 "broadcast, rank 2 of 5, root 3" broadcast -n 5 -b 1K --root 3 --rank 2 --type int8
expect 0 "chosen: ring" allgather -n 3 -b 0
expect 0 "barrier, 6 ranks over tcp on 2 cores" barrier -n 6 --transport tcp --cores 2
expect 0 "1 ranks" allreduce -n 1 -b 8 --type float64
expect 2 "which collective?"
expect 2 "unknown collective 'sendrecv'" sendrecv -n 2 -b 4
expect 2 "--ranks is missing" allreduce -b 4
expect 2 "--ranks takes a number" allreduce -n 0 -b 4
expect 2 "--ranks takes a number" allreduce -n 4x -b 4
expect 2 "--bytes is missing" allreduce -n 4
expect 2 "--bytes takes a size" allreduce -n 4 -b 1T
expect 2 "--bytes takes a size" allreduce -n 4 -b -4
expect 2 "--bytes takes a size" allreduce -n 4 -b 99999999999G
expect 2 "no whole number of float32" allreduce -n 4 -b 6
expect 2 "has no --bytes" barrier -n 4 -b 4
expect 2 "unknown type 'float'" allreduce -n 4 -b 4 --type float
expect 2 "--rank 4 is not a rank" allreduce -n 4 -b 4 --rank 4
expect 2 "--root 4 is not a rank" broadcast -n 4 -b 4 --root 4
expect 2 "only a broadcast has a --root" allreduce -n 4 -b 4 --root 1
expect 2 "it has recdbl, direct, dbtree, ring" allreduce -n 4 -b 4 --algo chain
expect 2 "--transport is shm or tcp" allreduce -n 4 -b 4 --transport pigeon
expect 2 "one collective at a time" allreduce broadcast -n 4 -b 4
expect 2 "unrecognized option" allreduce -n 4 -b 4 --fast
COLL_SLOT_BYTES=lots expect 2 "COLL_SLOT_BYTES" allreduce -n 4 -b 4
exit $failed
