#!/bin/bash
# 256 ranks that are processes in 16 network namespaces on one bridge: they create a communicator, all-reduce and leave, in
# less than 20 s; two cores take 1.6 to 5. Under sanitizers, which need more of both, they are 64, and time does not
# count. Prints what each part took. Needs root and ip; exits 77 (skipped) with a reason where they are missing.
set -u
tag=m$(($$ % 100000))
bridge=b$tag
. "$SOURCE/tests/hosts/four_hosts.inc"
hosts=$(seq 16)
each=16       # ranks of a host
limit_ms=20000 # from the first start to the last end
sanitizers=$(sed -n 's/^COLL_SANITIZE:[A-Z]*=//p' "$BUILD/CMakeCache.txt")
[ -z "$sanitizers" ] || each=4 limit_ms=300000

cleanup() {
  remove_hosts
  for i in $hosts; do ip link del "v$tag-$i" 2>/dev/null; done
  ip link del "$bridge" 2>/dev/null
  rm -rf "$out"
}
trap cleanup EXIT

set_up() {
  ip link add "$bridge" type bridge && ip link set "$bridge" up || return 1
  for i in $hosts; do
    ip netns add "$tag-$i" && ip link add "v$tag-$i" type veth peer name eth0 netns "$tag-$i" &&
      ip link set "v$tag-$i" master "$bridge" up && ip -n "$tag-$i" addr add "10.86.0.$i/24" dev eth0 &&
      ip -n "$tag-$i" link set lo up && ip -n "$tag-$i" link set eth0 up || return 1
  done
}
set_up 2>"$out/setup" || skip "cannot make network namespaces here: $(tail -n 1 "$out/setup")"

# start_host HOST: its ranks; it ends when they have ended, with 0 if all have succeeded.
start_host() {
  COLL_NRANKS=$((16 * each)) COLL_ROOT=10.86.0.1:$port COLL_SECRET=$secret \
    timeout -k 1 300 ip netns exec "$tag-$1" bash -c '
      pids=
      for i in $(seq $2 $(($2 + $3 - 1))); do COLL_RANK=$i "$1" >"$4/$i" 2>&1 & pids="$pids $!"; done
      status=0
      for p in $pids; do wait "$p" || status=1; done
      exit $status' - "$BUILD/tests/hosts_many_ranks" $((($1 - 1) * each)) "$each" "$out" &
  pids="$pids $!"
}

pids=
begin=$(date +%s%N)
for i in $hosts; do start_host "$i"; done
for p in $pids; do wait "$p" || failed=1; done
took=$((($(date +%s%N) - begin) / 1000000))
cat "$out/0"
echo "$took ms from the first start to the last end"
[ $failed = 0 ] || { echo "FAILED: some ranks:" && tail -qn 1 "$out"/[0-9]* | sort | uniq -c | sort -n | tail; }
[ $took -lt $limit_ms ] || { echo "FAILED: that is longer than $limit_ms ms" && failed=1; }
grep -q "^$((16 * each)) ranks" "$out/0" || { echo "FAILED: not $((16 * each)) ranks" && failed=1; }
exit $failed
