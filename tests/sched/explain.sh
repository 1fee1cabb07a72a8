#!/bin/sh
# explain.sh: coll_explain's output, and how it refuses bad arguments.
explain="$BUILD/bin/coll_explain"
export COLL_CALIBRATION=none
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
expect 0 "output[1] op message from 5 -> rank 7" allreduce -n 8 -b 1M --algo dbtree --rank 3
expect 0 "broadcast, rank 2 of 5, root 3" broadcast -n 5 -b 1K --root 3 --rank 2 --type int8
expect 0 "allgather of 0 bytes" allgather -n 3 -b 0
expect 0 "barrier, 6 ranks over tcp on 2 cores" barrier -n 6 --transport tcp --cores 2
expect 0 "1 ranks" allreduce -n 1 -b 8 --type float64
for collective in allreduce reduce reduce_scatter broadcast allgather gather scatter alltoall scan exscan \
  reduce_scatterv allgatherv gatherv scatterv alltoallv; do
  for hosts in 1 3; do
    expect 0 "chosen: " $collective -n 7 -b 64K --hosts $hosts
    expect 0 "from (bytes)" $collective -n 7 -b 0-1M --hosts $hosts --transport tcp --cores 0
  done
done
for level in on ordered; do
  for collective in allreduce reduce reduce_scatter scan exscan; do
    expect 0 "chosen: " $collective -n 6 -b 64K --deterministic $level
  done
done
expect 0 "deterministic, 6 ranks" allreduce -n 6 -b 64K --deterministic on
expect 0 "from left to right, 6 ranks" allreduce -n 6 -b 64K --deterministic ordered
expect 0 "from left to right, 6 ranks" scan -n 6 -b 64K --deterministic on
expect 0 "6 ranks on 2 hosts over tcp" allreduce -n 6 -b 64K --hosts 2
expect 0 "6 ranks on 2 hosts over tcp on 2 cores each" allreduce -n 6 -b 64K --hosts 2 --cores 2
expect 0 "over shm on 4 cores" allreduce -n 2 -b 64K --cores 4
expect 0 "over shm on $(getconf _NPROCESSORS_ONLN) cores (those of this machine" allreduce -n 2 -b 64K
expect 0 "over shm, each on its own core" allreduce -n 2 -b 64K --cores 0
expect 0 "within a host: alpha 150 ns" allreduce -n 6 -b 64K --hosts 2 --cores 0
expect 0 "1024 bytes (1024 int8) a block" alltoall -n 5 -b 1K --type int8 --in-place
expect 0 "typical costs" allreduce -n 4 -b 4
COLL_ALGO="allreduce:0-8k=recdbl;8k-=ring" expect 0 "why: COLL_ALGO asks for it" allreduce -n 16 -b 8K --cores 0
COLL_ALGO="allreduce:0-8k=recdbl;8k-=ring" expect 0 "8192  ring" allreduce -n 16 -b 4K-1M --cores 0
COLL_TUNER="$BUILD/tests/plugins/tuner_example.so" expect 0 "4096  ring" allreduce -n 16 -b 4-1M --cores 0
COLL_TUNER="$BUILD/tests/plugins/tuner_example.so" expect 0 "why: the tuner chose it" allreduce -n 16 -b 4K --cores 0
COLL_TUNER=/nowhere expect 2 "cannot be loaded" allreduce -n 16 -b 4K
# Links are those of hosts, which are the first level.
cluster=$(mktemp)
printf 'libcoll cluster 1\nranks 4 hosts 2 levels 0 machines 1 links 2\n' >"$cluster"
expect 2 "line 2: not the numbers of ranks" allreduce --input "$cluster"
rm "$cluster"
COLL_ALGO=zigzag expect 2 "expected collective:algorithm" allreduce -n 16 -b 4K
expect 0 "| ring | " --list allreduce
expect 2 "no collective given" --list
expect 2 "no collective given"
expect 2 "unknown collective 'sendrecv'" sendrecv -n 2 -b 4
expect 2 "--ranks is missing" allreduce -b 4
expect 2 "--ranks takes a number" allreduce -n 0 -b 4
expect 2 "--ranks takes a number" allreduce -n 4x -b 4
expect 2 "--bytes is missing" allreduce -n 4
expect 2 "--bytes takes a size" allreduce -n 4 -b 1T
expect 2 "--bytes takes a size" allreduce -n 4 -b -4
expect 2 "--bytes takes a size" allreduce -n 4 -b 99999999999G
expect 2 "not a whole number of float32" allreduce -n 4 -b 6
expect 2 "has no --bytes" barrier -n 4 -b 4
expect 2 "unknown type 'float'" allreduce -n 4 -b 4 --type float
expect 2 "--rank 4 is not a rank" allreduce -n 4 -b 4 --rank 4
expect 2 "--root 4 is not a rank" broadcast -n 4 -b 4 --root 4
expect 2 "allreduce has no --root" allreduce -n 4 -b 4 --root 1
expect 2 "it has recdbl, direct, pairs, dbtree, ring" allreduce -n 4 -b 4 --algo chain
expect 2 "takes a range such as 4-16M" allreduce -n 4 -b 16M-4
expect 2 "takes a range such as 4-16M" allreduce -n 4 -b 4-8-16
expect 2 "takes one size" allreduce -n 4 -b 4-16M --rank 1
expect 2 "off, on or ordered, not 'very'" allreduce -n 4 -b 4 --deterministic very
expect 2 "is for reductions of floats" allreduce -n 4 -b 4 --deterministic on --type int32
expect 2 "is for reductions of floats" broadcast -n 4 -b 4 --deterministic on
expect 2 "these can: " allreduce -n 4 -b 4 --deterministic ordered --algo ring
expect 2 "there are only 4 ranks" allreduce -n 4 -b 4 --hosts 5
expect 2 "--in-place makes a difference" allgather -n 4 -b 4 --in-place
expect 2 "unknown collective 'allreducev'" allreducev -n 4 -b 4
expect 2 "--transport is shm or tcp" allreduce -n 4 -b 4 --transport pigeon
expect 2 "one collective at a time" allreduce broadcast -n 4 -b 4
expect 2 "unrecognized option" allreduce -n 4 -b 4 --fast
COLL_SLOT_BYTES=lots expect 2 "COLL_SLOT_BYTES" allreduce -n 4 -b 4

# Many hosts.
many="allreduce --hosts 512 --ranks-per-host 8 --levels assumed"
expect 0 "4096 ranks on 512 hosts over a network with levels, each on its own core" $many -b 8
expect 0 "within 128 ranks: alpha 2000 ns a message, beta 0.04 ns a byte" $many -b 8
expect 0 "nothing of it was measured" $many -b 8
# 13 steps of 300 ns; 3 rounds in a host, 4 at a switch, 5 beyond.
expect 0 "recdbl               33.40 us     33.40 us" $many -b 8
expect 0 "chosen: recdbl" $many -b 8
expect 0 "recdbl               33.40 us*" $many -b 8-64 --table
expect 0 "hier                 36.40 us " $many -b 8-64 --table
# Hosts without levels: the formula takes all 12 rounds as far, the replay only nine.
expect 0 "recdbl               14.40 us     14.40 us" allreduce -n 4096 --levels 8:500:0.01,all:1000:0.04 -b 8
expect 0 "512 hosts over tcp" allreduce --hosts 512 --ranks-per-host 8 -b 8-64 --table --cores 0
most="allreduce --hosts 12500 --ranks-per-host 8 --levels assumed"
expect 0 "100000 ranks on 12500 hosts" $most -b 8-12
# A GiB on 100,000 ranks. Each rank moves 7/8 of it in its host, in and out again, and sends its share of 128 MiB, which
# takes 0.04 ns a byte, up and down trees: 2 * 7/8 * 2^30 * 0.01 ns + 2 * 2^27 * 0.04 ns = 29.5 ms, and at most 5 % more
# until the first and the last bytes have come through 2 * 14 hops.
expect 0 "chosen: hier_trees" $most -b 1G
took=$(printf '%s\n' "$output" | sed -n 's/^\* hier_trees *\([0-9]*\)\.\([0-9][0-9]\) ms .*/\1\2/p')
[ "${took:-0}" -ge 2953 ] && [ "$took" -le 3100 ] || {
  echo "coll_explain $most -b 1G: takes '$took' hundredths of a ms, not 29.53 to 31.00 ms"
  failed=1
}
expect 2 "--ranks-per-host is for at most 131072 ranks" $many -n 4096 -b 8
expect 2 "--ranks-per-host is for at most 131072 ranks" allreduce --hosts 65536 --ranks-per-host 8 -b 8
expect 2 "not 4096 ranks on 3 hosts" allreduce -n 4096 --hosts 3 --levels assumed -b 8
expect 0 "bytes                       0             4            32           256            2K" allreduce -n 4 -b 0-4K --table
expect 2 "--table takes a range" $many -b 8 --table
expect 0 "(as assumed by --levels)" allreduce -n 16 --levels assumed -b 8 --gpu 4
for levels in "" 8:500:0.01 8:500:0.01,12:1000:0.01,all:2000:0.01 all:2000:0.01 8:500:0.01,8:1000:0.01,all:1:1 \
  8:500:0.01,all:2000 8:500:0.01,all:2000:0.01x 8:0:0.01,all:2000:0.01 8.5:1:1,all:1:1 8:500:0.01,all:1:1,all:1:1 \
  2:1:1,4:1:1,8:1:1,16:1:1,32:1:1,64:1:1,128:1:1,256:1:1,512:1:1,1024:1:1,all:1:1 8:nan:1,all:1:1; do
  expect 2 "--levels takes 'assumed', or 2 to 10 of RANKS:ALPHA:BETA" allreduce -n 64 --levels "$levels" -b 8
done

# Prices of as many levels as there may be are found, though groups of each have only two of the one before. It takes a few
# seconds; the limit is there only for what would never end.
deep=8:500:0.1,16:1000:0.2,32:2000:0.4,64:4000:0.8,128:8000:1,256:16000:2,512:20000:3,1024:30000:4,2048:40000:5,all:1e6:8
for coll in reduce allreduce; do
  timeout 300 "$explain" $coll -n 65536 -b 64M --levels $deep > /dev/null || { echo "$coll at 10 levels: status $?"; failed=1; }
done

# Hosts whose links differ.
slow="allreduce --hosts 8 --ranks-per-host 1 -b 64M --cores 0"
expect 0 "shares of hosts in weighted algorithms: 0 1 1 1 1 1 1 1" $slow --link-speeds 100mbit,1gbit
expect 0 "* hier_weighted" $slow --link-speeds 100mbit,1gbit
expect 0 "* ring" $slow --link-speeds 1gbit
expect 0 "14 chunks, 0 scratch, 2 lanes, 28 steps" $slow --link-speeds 1gbit,100mbit,1gbit --rank 1
for speeds in "" , 100mbit, ,100mbit 100 measure 100mbit,fast; do
  expect 2 "--link-speeds takes speeds as 100mbit" $slow --link-speeds "$speeds"
done
expect 2 "more speeds than there are hosts" $slow --link-speeds 1gbit,1gbit,1gbit,1gbit,1gbit,1gbit,1gbit,1gbit,1gbit
expect 2 "--link-speeds needs --hosts" allreduce -n 8 -b 8 --link-speeds 1gbit
expect 2 "--link-speeds needs --hosts, and no --levels" $many -b 8 --link-speeds 1gbit
exit $failed
