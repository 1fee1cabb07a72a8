#!/bin/sh
# explain_gpu.sh: coll_explain --gpu: modes, counts, and times that follow from assumptions alone.
explain="$BUILD/bin/coll_explain"
export COLL_CALIBRATION=none COLL_GPU_SLOT_BYTES=4M
failed=0

# expect STATUS TEXT ARGS...: the exit status, and a text that the output must contain. Spaces and ends of lines
# count as one space.
expect() {
  status=$1 text=$2
  shift 2
  output=$("$explain" "$@" 2>&1)
  got=$?
  if [ $got -ne "$status" ]; then
    echo "coll_explain $*: exit status $got instead of $status:" "$output"
    failed=1
  fi
  case $(printf '%s' "$output" | tr -s ' \n' ' ') in
  *"$text"*) ;;
  *)
    echo "coll_explain $*: no '$text' in:" "$output"
    failed=1
    ;;
  esac
}

# Modes and their reasons.
expect 0 "mode: spin, because each rank has its own GPU" allreduce -n 4 -b 1M --gpu 4
expect 0 "mode: ordered, because ranks share a GPU" allreduce -n 4 -b 1M --gpu 2
expect 0 "mode: ordered, because ranks share a GPU" allreduce -n 4 -b 1M --gpu 1
expect 0 "mode: meet, because the ranks are threads" allreduce -n 4 -b 1M --gpu 1 --threads
expect 0 "mode: ordered, because captured calls ask the host" allreduce -n 4 -b 1M --gpu 4 --captured
expect 0 "mode: staged, because the GPUs have no peer access" allreduce -n 4 -b 1M --gpu 4 --no-peers
expect 0 "mode: staged, because the ranks are on several hosts" allreduce -n 4 -b 1M --gpu 2 --hosts 2
expect 0 "mode: staged, because the ranks are on several hosts, and the call is not divided" allreduce -n 4 -b 2044K \
  --gpu 2 --hosts 2
expect 0 "mode: staged, because the ranks are on several hosts" allreduce -n 5 -b 16M --gpu 3 --hosts 2
expect 0 "mode: staged, because the ranks are on several hosts" scan -n 4 -b 16M --gpu 2 --hosts 2
expect 0 "mode: staged, because the ranks are on several hosts" reduce_scatter -n 4 -b 1020K --gpu 2 --hosts 2
expect 0 "mode: staged, because the ranks are on several hosts" reduce -n 4 -b 2044K --gpu 2 --hosts 2
expect 0 "mode: staged, because the ranks are on several hosts" reduce -n 4 -b 16M --gpu 2 --hosts 2 --deterministic on
expect 0 "mode: staged, because the ranks are on several hosts" allreduce -n 4 -b 16M --gpu 2 --hosts 2 --deterministic on
COLL_GPU_MODE=staged expect 0 "mode: staged, because the ranks are on several hosts" allreduce -n 4 -b 16M --gpu 2 --hosts 2

# Parts across groups that the network's devices move: as many rounds as the room takes (4 MiB), pieces of a broadcast.
expect 0 "2. across groups: allreduce of 8388608 bytes, 2 groups, by messages" allreduce -n 4 -b 16M --gpu 2 --hosts 2 --rdma
expect 0 "2 rounds of up to 2097152 bytes a block, 4 steps; the busiest rank sends or receives 8388608 bytes" \
  allreduce -n 4 -b 16M --gpu 2 --hosts 2 --rdma
expect 0 "= 18 * 1 us + 4 * 2 us + 8388608 B / 10 GB/s + 12582912 B / 1000 GB/s" allreduce -n 4 -b 16M --gpu 2 --hosts 2 \
  --rdma --assume launch=1,host=2,network=10,memory=1000
expect 0 "in streams, with a rank on each host: broadcast of 67108864 bytes, 4 groups" broadcast -n 4 -b 64M --gpu 1 \
  --hosts 4 --rdma
expect 0 "8 pieces of up to 8388608 bytes along the chain of groups, 10 steps" broadcast -n 4 -b 64M --gpu 1 --hosts 4 --rdma
expect 0 "1 round of up to 1048576 bytes a block, 1 step; the busiest rank sends or receives 3145728 bytes" \
  allgather -n 4 -b 1M --gpu 1 --hosts 4 --rdma
expect 0 "1 round of up to 1048576 bytes a block" reduce_scatter -n 4 -b 1M --gpu 1 --hosts 4 --rdma
expect 0 "mode: staged" allreduce -n 4 -b 1M --gpu 1 --hosts 4 --rdma # too short
expect 0 "mode: staged" reduce -n 8 -b 64M --gpu 1 --hosts 8 --rdma # the room is too short for eight
expect 0 "mode: staged" allreduce -n 4 -b 64M --gpu 1 --hosts 4 --rdma --captured
expect 0 "2. across groups: allreduce in streams of 8388608 bytes" allreduce -n 4 -b 16M --gpu 2 --hosts 2 --rdma --captured
expect 0 "2. across groups: allreduce in streams" allreduce -n 8 -b 64M --gpu 2 --hosts 2 --no-peers --rdma # two on a host
expect 2 "--rdma, --captured" allreduce -n 4 -b 1M --rdma

# Calls that are divided among the ranks of groups.
expect 0 "4 ranks in 2 groups of 2, whose GPUs reach" allreduce -n 4 -b 2M --gpu 2 --hosts 2
expect 0 "1. within each group: reduce_scatter in streams of 8388608 bytes" allreduce -n 4 -b 16M --gpu 2 --hosts 2
expect 0 "2. across groups: allreduce in streams of 8388608 bytes" allreduce -n 4 -b 16M --gpu 2 --hosts 2
expect 0 " 0-1 48 8388608 B 8388608 B operations" allreduce -n 4 -b 16M --gpu 2 --hosts 2 # 8 parts of 1 MiB
expect 0 "3. within each group: allgather in streams of 8388608 bytes" allreduce -n 4 -b 16M --gpu 2 --hosts 2
expect 0 "6 ranks in 2 groups of 3" broadcast -n 6 -b 12M --gpu 2 --no-peers
expect 0 "1. within the root's group: broadcast in streams of 12582912 bytes" broadcast -n 6 -b 12M --gpu 2 --no-peers
expect 0 "2. within each group, 3 times, for each group: allgather" allgather -n 6 -b 1M --gpu 2 --hosts 3
expect 0 "1. within each group: reduce_scatter in streams of 1048576 bytes" reduce -n 4 -b 2M --gpu 2 --hosts 2
expect 0 "It takes 3 rounds, because there is room for one slot (4194304 bytes). In a round: 1. within each group: \
reduce_scatter in streams of 4194176 bytes" reduce -n 4 -b 16M --gpu 2 --hosts 2
expect 0 "2. across groups: reduce in streams of 4194176 bytes" reduce -n 4 -b 16M --gpu 2 --hosts 2
expect 0 "3. within the root's group: gather in streams of 4194176 bytes" reduce -n 4 -b 16M --gpu 2 --hosts 2
expect 0 "divided among the ranks of a group, which are counted from 0 in each part: 1. within each group, 2 times, \
for each group: reduce_scatter in streams of 2097152 bytes" reduce_scatter -n 4 -b 2M --gpu 2 --hosts 2
expect 0 "It takes 8 rounds" reduce_scatter -n 4 -b 16M --gpu 2 --hosts 2
expect 0 "2. across groups: reduce_scatterv in streams of 2097152 bytes" reduce_scatterv -n 4 -b 16M --gpu 2 --hosts 2
expect 0 "mode: staged, because there are no other ranks" allreduce -n 1 -b 1M --gpu 1
expect 0 "mode: staged, because not all ranks know all counts" alltoallv -n 4 -b 1M --gpu 4
expect 0 "mode: spin" allgatherv -n 4 -b 1M --gpu 4
expect 0 "mode: spin" allreduce -n 4 -b 1M --gpu 4 --deterministic on
expect 0 "mode: spin" allreduce -n 2 -b 1M --gpu 2 --deterministic on
expect 0 "mode: spin" allreduce -n 4 -b 1M --gpu 4 --deterministic ordered
expect 0 "mode: spin" allreduce -n 4 -b 1600 --gpu 4 --type int32_loc64
COLL_GPU_MODE=staged expect 0 "mode: staged, because COLL_GPU_MODE is staged" allreduce -n 4 -b 1M --gpu 4
COLL_GPU_MODE=ordered expect 0 "mode: ordered, because COLL_GPU_MODE is ordered" allreduce -n 4 -b 1M --gpu 4
COLL_GPU_MODE=spin expect 0 "mode: staged, because COLL_GPU_MODE is spin" allreduce -n 4 -b 1M --gpu 2
COLL_GPU_MODE=meet expect 0 "mode: staged, because COLL_GPU_MODE is meet" allreduce -n 4 -b 1M --gpu 4
COLL_GPU_SLOT_BYTES=4096 expect 0 "mode: staged, because COLL_GPU_SLOT_BYTES is too small" alltoall -n 128 -b 4 --gpu 128

# Staged calls in parts of 1 MiB, of which four are under way.
expect 0 "2 parts of up to 1048576 bytes, up to 4 of them under way" allreduce -n 4 -b 2M --gpu 4 --no-peers
expect 0 " 0-3 6 " allreduce -n 4 -b 2044K --gpu 4 --no-peers
expect 0 " 0-3 12 " allreduce -n 4 -b 2M --gpu 4 --no-peers
expect 0 "4 parts of up to 262144 bytes a block" alltoall -n 4 -b 1M --gpu 4 --no-peers
expect 0 " 0-3 6 " allgatherv -n 4 -b 16M --gpu 4 --no-peers
COLL_GPU_SLOT_BYTES=64K expect 0 "256 parts of up to 16384 bytes" allreduce -n 4 -b 4M --gpu 4 --no-peers

# Levels above hosts are those of the part across groups: 16 hosts at a switch. The parts add up.
expect 0 "on the host: dbtree, 202.23 us for a part by the model of coll_explain without --gpu (as assumed by --levels)" \
  allreduce --hosts 4096 --ranks-per-host 8 --gpu 8 -b 1G --levels assumed
expect 0 "on the host: dbtree, 168.37 us for a part" allreduce --hosts 512 --ranks-per-host 8 --gpu 8 -b 1G --levels assumed
expect 0 "on the host: recdbl, 9.60 us by the model of coll_explain without --gpu (as assumed by --levels)" \
  allreduce -n 64 --gpu 8 -b 8 --levels assumed
expect 0 "16 ranks on 4 GPUs of each of 4 hosts" allreduce -n 32 -b 64M --gpu 4 --levels 8:500:0.01,all:4000:0.04 --no-peers
expect 0 "time = 4 * launch + host + 1. + 2. + 3. = 4 * 1 us + 2 us + " allreduce -n 4 -b 16M --gpu 2 --hosts 2 \
  --assume launch=1,host=2
expect 0 "time = 4 * launch + host + 1. + times * 2. = " allgather -n 6 -b 1M --gpu 2 --hosts 3
expect 0 "time = 4 * launch + host + times * 1. + times * 2. + times * 3. = " reduce -n 4 -b 16M --gpu 2 --hosts 2
expect 2 "--rdma has no --levels" allreduce -n 16 -b 64M --gpu 8 --levels assumed --rdma
times=$("$explain" allreduce -n 64 -b 64M --gpu 8 --levels assumed | awk '/ under these assumptions/ { time[++n] = $2 }
  END { d = time[1] + time[2] + time[3] + 0.027 - time[4]; print n, (d < 0.02 && d > -0.02 ? "agree" : "differ by " d) }')
if [ "$times" != "4 agree" ]; then
  echo "the times of parts and of all: $times"
  failed=1
fi

# A table: each size's algorithm and time, the same as that of the size alone.
expect 0 "8M dbtree " allreduce -n 4096 -b 1M-8M --gpu 8 --levels assumed --table
expect 0 "1M hier_trees " allreduce -n 4096 -b 1M-8M --gpu 8 --levels assumed --table
expect 0 "64M messages" allreduce -n 16 -b 64M-65M --gpu 8 --hosts 2 --rdma --table
expect 0 "16M dbtree, 2 parts" allreduce -n 4096 -b 16M-17M --gpu 8 --levels assumed --table
expect 0 "64K no host" allreduce -n 8 -b 64K-65K --gpu 8 --table
one=$("$explain" allreduce -n 64 -b 64M --gpu 8 --levels assumed | awk '/ in all under/ { print $2, $3 }')
expect 0 " parts $one within each group: " allreduce -n 64 -b 64M-65M --gpu 8 --levels assumed --table

# Counts. These operations are those that the fake driver was seen to get for such calls.
expect 0 "4 rounds of up to 4194304 bytes a block (slots of 4194304 bytes), folded in segments, one a rank, 8 meets" \
  allreduce -n 4 -b 16M --gpu 4
expect 0 " 0-3 21 25165824 B 37748736 B 25165824 B" allreduce -n 4 -b 16M --gpu 4
expect 0 "1 round of up to 4194304 bytes a block (slots of 4194304 bytes), 1 meet" allreduce -n 2 -b 4M --gpu 2
expect 0 " 0 11 10485760 B 10485760 B 0 B" broadcast -n 4 -b 5M --gpu 2
expect 0 " 1 9 0 B 5242880 B 5242880 B" broadcast -n 4 -b 5M --gpu 2
expect 0 "one rank reads and writes the buffers of all, after 1 meet" reduce_scatter -n 3 -b 2M --gpu 1 --threads
expect 0 " 0 8 6291456 B 2097152 B 0 B 1-2 3 6291456 B 2097152 B 0 B" reduce_scatter -n 3 -b 2M --gpu 1 --threads
expect 0 " 0 18 18874368 B 18874368 B 0 B 1-7 3 " alltoall -n 8 -b 2304K --gpu 1 --threads
expect 0 "5 rounds of up to 465984" reduce_scatter -n 9 -b 2M --gpu 1 --threads
expect 0 " 1-2 5 1048576 B 0 B" reduce -n 3 -b 1M --gpu 3 --no-peers
expect 0 " 0 3 4096 B 4096 B 0 B" exscan -n 3 -b 4K --gpu 3
expect 0 " 2 4 4096 B 8192 B 8192 B" exscan -n 3 -b 4K --gpu 3
expect 0 "1 round of up to 4194304 bytes a block (slots of 4194304 bytes), 1 meet" barrier -n 8 --gpu 8
expect 0 " 0-7 2 0 B 0 B 0 B" barrier -n 8 --gpu 8
expect 0 "1 round of up to 4194304 bytes a block (slots of 4194304 bytes), 2 meets" barrier -n 8 --gpu 8 --captured
COLL_GPU_SLOT_BYTES=64K expect 0 "17 rounds of up to 65536 bytes" allgather -n 4 -b 1048580 --gpu 4
expect 0 "16777216 rounds of up to 4194304 bytes" broadcast -n 2 -b 65536G --gpu 2
for collective in allreduce reduce reduce_scatter broadcast allgather gather scatter alltoall scan exscan \
  reduce_scatterv allgatherv gatherv scatterv alltoallv; do
  for gpus in 1 2 7; do
    expect 0 "under these assumptions" $collective -n 7 -b 64K --gpu $gpus
    expect 0 "under these assumptions" $collective -n 7 -b 0 --gpu $gpus --captured
    expect 0 "under these assumptions" $collective -n 7 -b 6M --gpu $gpus --no-peers
    expect 0 "under these assumptions" $collective -n 7 -b 6M --gpu $gpus --registered both
  done
done

# Registered buffers. These operations, too, were seen.
expect 0 "registered inputs, and segments of results, are read where they are, 3 meets" \
  allreduce -n 3 -b 5M --gpu 3 --registered both
expect 0 " 0-1 7 1747648 B 5242880 B 6990528 B" allreduce -n 3 -b 5M --gpu 3 --registered both
COLL_GPU_MODE=ordered expect 0 " 0-1 14 8738176 B 5242880 B 0 B" allreduce -n 3 -b 5M --gpu 1 --registered both
expect 0 " 0 6 5242880 B 5242880 B" allreduce -n 3 -b 5M --gpu 1 --threads --registered both
expect 0 " 0-1 14 " allreduce -n 3 -b 5M --gpu 1 --threads --registered both --deterministic on
expect 0 "registered inputs are read where they are, and folded in segments, one a rank, in slots, 2 meets" \
  allreduce -n 3 -b 5M --gpu 3 --registered input
expect 0 " 0-1 6 " allreduce -n 3 -b 5M --gpu 3 --registered input
expect 0 " 0-1 8 " allreduce -n 3 -b 5M --gpu 3 --registered both --deterministic on
expect 0 "inputs are read where they are, 2 meets" allreduce -n 2 -b 5M --gpu 2 --registered input
expect 0 " 1-2 4 0 B 0 B 0 B" reduce -n 3 -b 5M --gpu 3 --registered both
expect 0 " 0 5 5242880 B 5242880 B 10485760 B" reduce -n 3 -b 5M --gpu 3 --registered both
expect 0 " 0 5 5242880 B 5242880 B 0 B 1-2 5 0 B 5242880 B 5242880 B" broadcast -n 3 -b 5M --gpu 3 --registered both
expect 0 "registered results are read where they are" allgather -n 3 -b 5M --gpu 3 --registered both
expect 0 " 0-2 6 5242880 B 15728640 B 10485760 B" allgather -n 3 -b 5M --gpu 3 --registered result
expect 0 " 0-2 5 5242880 B 15728640 B 10485760 B" allgather -n 3 -b 5M --gpu 3 --registered input
expect 0 " 0-2 5 5242880 B 15728640 B 10485760 B" alltoall -n 3 -b 5M --gpu 3 --registered both
COLL_GPU_SLOT_BYTES=1M expect 0 "in slots, 16 meets" allreduce -n 8 -b 64M --gpu 8 --registered input --captured
expect 0 "in slots, because these take fewer meets than buffers that are registered 1 round" \
  allgather -n 3 -b 4M --gpu 3 --registered both
expect 0 "in slots, because no buffer that others could read is registered" \
  broadcast -n 3 -b 5M --gpu 3 --registered input
expect 0 "in slots, because no buffer" alltoall -n 3 -b 5M --gpu 3 --registered both --in-place
expect 0 "in slots, because no buffer" scan -n 3 -b 5M --gpu 3 --registered both
expect 0 "in slots, because no buffer" allgatherv -n 3 -b 5M --gpu 3 --registered both
expect 0 "mode: staged" allreduce -n 3 -b 5M --gpu 3 --registered both --no-peers
expect 0 "a block, 8 ranks on 8 GPUs mode: spin, because each rank has its own GPU, with access to the others \
registered inputs are read where they are, 2 meets" allreduce -n 16 -b 64M --gpu 8 --hosts 2 --registered input
expect 0 "registered results are read where they are" allreduce -n 16 -b 64M --gpu 8 --hosts 2 --registered result
expect 0 "registered inputs are read where they are" reduce -n 16 -b 64M --gpu 8 --hosts 2 --registered both
expect 2 "--registered takes input, result or both, not 'all'" allreduce -n 2 -b 4 --gpu 2 --registered all
expect 2 "--registered and --assume need --gpu" allreduce -n 2 -b 4 --registered both

# Times are assumptions, and follow from them.
expect 0 "not measured on your GPU" allreduce -n 4 -b 1M --gpu 4
expect 0 "assumed as asked" allreduce -n 4 -b 1M --gpu 4 --assume link=300
expect 0 "= 4 * 1 us + 1 * 2 us + 1000000 B / 100 GB/s + 5000000 B / 1000 GB/s = 21.00 us under" \
  allreduce -n 2 -b 1000000 --gpu 2 --assume launch=1,meet=2,link=100,memory=1000
expect 0 "= 6 * 1 us + 2 us + 1000000 B / 100 GB/s +" allreduce -n 2 -b 1000000 --gpu 2 --no-peers \
  --assume launch=1,host=2,copy=100
expect 0 "+ 15728640 B / 20 GB/s +" broadcast -n 4 -b 5M --gpu 4 # the root's link
expect 0 "+ 2000000 B / 20 GB/s" allreduce -n 5 -b 1000000 --gpu 2 --hosts 2 # two of three ranks share a GPU
expect 0 "under these assumptions" alltoall -n 9 -b 64K --gpu 4 --hosts 4
expect 2 "--assume takes" allreduce -n 2 -b 4 --gpu 2 --assume speed=1
expect 2 "--assume takes" allreduce -n 2 -b 4 --gpu 2 --assume launch
expect 2 "--assume takes" allreduce -n 2 -b 4 --gpu 2 --assume launch=0
expect 2 "--assume takes" allreduce -n 2 -b 4 --gpu 2 --assume launch=nan
expect 2 "--assume takes" allreduce -n 2 -b 4 --gpu 2 --assume launch=1,
expect 2 "--gpu takes a number" allreduce -n 2 -b 4 --gpu 0
expect 2 "--gpu takes one size" allreduce -n 2 -b 4-8K --gpu 2
expect 2 "--gpu takes one size, or a range with --table, and no --rank" allreduce -n 2 -b 4 --gpu 2 --rank 1
expect 2 "need --gpu" allreduce -n 2 -b 4 --threads
expect 2 "are on one host" allreduce -n 2 -b 4 --gpu 1 --threads --hosts 2
exit $failed
