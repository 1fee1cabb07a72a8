#!/bin/bash
# collctl on a job over two hosts: network and process namespaces with two ranks each. From each host it shows all four
# ranks, also while one that would answer is stopped, and soon says which it cannot reach. All that goes between them is
# encrypted (tests/collctl/test_service.c does without). Needs root, ip and unshare; exits 77 (skipped) with a reason
# where they are missing.
skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" = 0 ] || skip "needs root to make network namespaces"
command -v ip >/dev/null && command -v unshare >/dev/null && command -v nsenter >/dev/null ||
  skip "needs ip (iproute2), unshare and nsenter (util-linux)"

. "$(dirname "$0")/../collrun/support.inc"

tag=s$(($$ % 100000))
cleanup() {
  exec 2>/dev/null # about killed jobs
  for i in 1 2; do ip netns pids "$tag-$i" 2>/dev/null | xargs -r kill -9 2>/dev/null; done
  wait 2>/dev/null
  for i in 1 2; do
    ip netns del "$tag-$i" 2>/dev/null
    ip link del "v$tag$i" 2>/dev/null
  done
  ip link del "b$tag" 2>/dev/null
  rm -rf "$scratch"
}
trap cleanup EXIT

set_up() {
  ip link add "b$tag" type bridge && ip link set "b$tag" up || return 1
  for i in 1 2; do
    ip netns add "$tag-$i" && ip link add "v$tag$i" type veth peer name eth0 netns "$tag-$i" &&
      ip link set "v$tag$i" master "b$tag" up && ip -n "$tag-$i" addr add "10.78.0.$i/24" dev eth0 &&
      ip -n "$tag-$i" link set lo up && ip -n "$tag-$i" link set eth0 up || return 1
    ip netns exec "$tag-$i" unshare --pid --fork --mount-proc true || return 1
  done
}
set_up 2>setup || skip "cannot make namespaces here: $(tail -n 1 setup)"

secret=$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n')
for i in 1 2; do
  # Two ranks; the shell that starts them is the first process of its namespace.
  ip netns exec "$tag-$i" unshare --pid --fork --mount-proc --kill-child --uts bash -c '
    hostname "host$1"
    for r in 0 1; do
      COLL_TLS=1 COLL_HEARTBEAT_MS=60000 COLL_ROOT=10.78.0.1:24680 COLL_SECRET=$2 \
        COLL_RANK=$((2 * $1 - 2 + r)) COLL_NRANKS=4 "$3" &
    done
    wait' ranks "$i" "$secret" "$BUILD/tests/collctl_job" >"out.$i" 2>&1 &
done

# on HOST COMMAND...: runs a command on a host.
on() {
  local outside
  outside=$(ip netns pids "$tag-$1" | while read -r pid; do
    [ "$(sed -n 's/^NSpid:.*\t//p' "/proc/$pid/status" 2>/dev/null)" = 1 ] && echo "$pid"
  done)
  shift
  nsenter -t "$outside" -p -m -n "$@"
}

# sees HOST: collctl shows there that the last rank is late, and for whom the others wait.
sees() {
  on "$1" "$BUILD/bin/collctl" show dp >"seen.$1" 2>&1 && grep -q 'ranks 0-2 have waited for' "seen.$1"
}
for i in 1 2; do
  wait_for sees "$i" || fail "host $i: $(cat "seen.$i" "out.$i")"
  grep -q '^rank 3 (host host2, pid [0-9]*) has not entered allreduce #102 (4 KiB float32 sum) on' "seen.$i" ||
    fail "host $i does not name the late rank: $(cat "seen.$i")"
  grep -q 'not seen' "seen.$i" && fail "host $i does not see all: $(cat "seen.$i")"
  [ "$(grep -c '^ *[0-3]  host[12]  *[0-9]* [a-z]* ' "seen.$i")" = 4 ] || fail "host $i: $(cat "seen.$i")"
  on "$i" "$BUILD/bin/collctl" dump --json >"json.$i" || fail "dump --json on host $i"
  python3 -c 'import json, sys
comms = json.load(sys.stdin)["jobs"][0]["communicators"]
assert [m["seen"] for c in comms if c["name"] == "dp" for m in c["ranks"]] == [True] * 4
assert all(len(m["operations"]) == 64 for c in comms if c["name"] == "dp" for m in c["ranks"])' <"json.$i" ||
    fail "JSON of host $i: $(cat "json.$i")"
done

# The first rank of a host does not answer: the second one does.
on 2 kill -STOP "$(awk '$1 == 2 && $2 == "host2" {print $3}' seen.2)" || fail "cannot stop a rank"
on 1 "$BUILD/bin/collctl" show dp >seen.1 2>&1
grep -q ' host2 .* stopped ' seen.1 && ! grep -q 'not seen' seen.1 || fail "with a stopped rank: $(cat seen.1)"
on 2 "$BUILD/bin/collctl" show dp >seen.2 2>&1
grep -q ' host2 .* stopped ' seen.2 && ! grep -q 'not seen' seen.2 || fail "beside a stopped rank: $(cat seen.2)"

# A host that cannot be reached is reported as such, and does not hold up collctl.
ip -n "$tag-2" link set eth0 down
begun=$SECONDS
on 1 "$BUILD/bin/collctl" show dp >seen.1 2>&1
[ "$(grep -c 'not seen' seen.1)" = 2 ] || fail "without the other host: $(cat seen.1)"
[ $((SECONDS - begun)) -lt 20 ] || fail "it took $((SECONDS - begun)) s"
finish
