#!/bin/bash
# Four hosts as network namespaces whose networks are not as they should be: long frames on all hosts or on one, interfaces
# that lead nowhere, many bridges of containers, a name that means something else on the host itself, answers that take
# another way, a host without IPv4, hosts with many IPv4 addresses that lead nowhere, an interface that comes late; and
# two jobs at once. Each time all results must be right. Needs root and ip; exits
# 77 (skipped) with a reason where they are missing.
set -u
tag=o$(($$ % 100000))
root=10.84.0.1
. "$SOURCE/tests/hosts/four_hosts.inc"
command -v unshare >/dev/null && command -v sysctl >/dev/null || skip "needs unshare (util-linux) and sysctl (procps)"

trap 'exec 3>&-; cleanup' EXIT

# on HOST COMMAND...: runs a command there.
on() {
  local host=$1
  shift
  ip netns exec "$tag-$host" "$@"
}

set_up() {
  add_networks || return 1
  for i in $hosts; do
    ip netns add "$tag-$i" && ip -n "$tag-$i" link set lo up && plug "$i" 0 10.84.0 || return 1
  done
}
set_up >"$out/setup" 2>&1 || skip "cannot make network namespaces here: $(tail -n 1 "$out/setup")"

measure=("$BUILD/bin/coll_perf" allreduce -b 8 -e 2M -f 64 -n 3 -w 1)

# expect_right WHAT: what was started ends well.
expect_right() {
  expect "all-reduce ends ($1)" all_succeed
  expect "every result is right ($1)" grep -q "Out of bounds values : 0 OK" "$out/0"
}

# try WHAT: all-reduces over all hosts.
try() {
  start_ranks 400 "${measure[@]}"
  expect_right "$1"
}

# frames HOST BYTES: how long its frames may be.
frames() {
  ip -n "$tag-$1" link set eth0 mtu "$2" && ip link set "v0$tag$1" mtu "$2"
}

# ---- lengths of frames

# try_counted WHAT: the same as try; how many frames host 2 had is in $all, and how many of them were longer than 1500 bytes
# and their header in $long.
try_counted() {
  rm -f "$out/until"
  mkfifo "$out/until"
  "$SOURCE/tests/hosts/count_frames.py" "v0${tag}2" 1514 <"$out/until" >"$out/frames" 2>&1 &
  local counter=$!
  exec 3>"$out/until"
  expect "frames are counted ($1)" await 20 grep -q ready "$out/frames"
  try "$1"
  exec 3>&-
  wait $counter
  read -r long all <<<"$(tail -n 1 "$out/frames")"
}

# Frames are made where they are counted, not behind it as network cards do.
for i in $hosts; do
  expect "host $i makes frames itself" ip -n "$tag-$i" link set eth0 gso_max_segs 1
  expect "host $i sends long frames" frames "$i" 9000
done
try_counted "frames of 9000 bytes"
expect "most frames with data are long ($long of $all are)" [ $((4 * long)) -gt "$all" ]
for i in 1 3 4; do expect "host $i sends short frames" frames "$i" 1500; done
try_counted "frames of 9000 bytes on one host only"
expect "no frame is long (of $all)" [ "$long" = 0 -a "$all" -gt 1000 ]
frames 2 1500
try_counted "frames of 1500 bytes"
expect "no frame is long (of $all)" [ "$long" = 0 -a "$all" -gt 1000 ]

# ---- interfaces that lead nowhere

# decoy HOST NAME ADDRESS: an interface whose cable ends in nothing.
decoy() {
  ip -n "$tag-$1" link add "$2" type veth peer name "end$2" && ip -n "$tag-$1" addr add "$3" dev "$2" &&
    ip -n "$tag-$1" link set "$2" up && ip -n "$tag-$1" link set "end$2" up
}
# The first is in one network on all hosts; the second has one address on all of them, as bridges of containers do:
# there a rank finds its own host.
for i in $hosts; do
  expect "host $i has interfaces that lead nowhere" eval "decoy $i aaa0 10.99.0.$i/24 && decoy $i aaa1 172.30.0.1/16"
done
try "interfaces that lead nowhere"
for i in $hosts; do ip -n "$tag-$i" link del aaa0 && ip -n "$tag-$i" link del aaa1; done

# Interfaces of containers, which by their addresses come first. tried HOST: how many of its peers' addresses there it
# has looked for.
for i in $hosts; do
  expect "host $i has interfaces of containers" \
    eval "decoy $i docker0 10.9.0.$i/24 && decoy $i veth7 10.10.0.$i/24 && decoy $i virbr0 10.11.0.$i/24"
done
tried() { ip -n "$tag-$1" neigh show nud all | grep -cE "^10[.](9|10|11)[.]0[.][1-4] "; }
try "interfaces of containers"
COLL_TCP_IFNAME=^wlan try "interfaces of containers, and one is left out by name"
for i in $hosts; do expect "host $i has tried no other host's container" [ "$(tried "$i")" = 0 ]; done
COLL_TCP_IFNAME=eth,docker try "interfaces of containers are asked for"
expect "then they are tried" [ "$(tried 1)" -gt 0 ]
for i in $hosts; do for name in docker0 veth7 virbr0; do ip -n "$tag-$i" link del "$name"; done; done

# Bridges of containers with names that nobody knows, with one port each, and the same addresses on all hosts, which come
# first by speed and address. There are more of them than addresses that a host offers.
bridge_of() {
  ip -n "$tag-$1" link add "br-$2" type bridge && ip -n "$tag-$1" addr add "10.2$2.0.1/16" dev "br-$2" &&
    ip -n "$tag-$1" link add "veth$2" type veth peer name "inner$2" &&
    ip -n "$tag-$1" link set "veth$2" master "br-$2" up && ip -n "$tag-$1" link set "inner$2" addrgenmode none up &&
    ip -n "$tag-$1" link set "br-$2" addrgenmode none up
}
for i in $hosts; do for n in 1 2 3 4 5 6 7 8; do
  bridge_of "$i" $n || expect "host $i has bridge $n" false
done; done
run_all() { for i in $hosts; do [ "$(ip -n "$tag-$i" -br link show type bridge up | grep -c ' UP ')" = 8 ] || return 1; done; }
expect "all bridges run" await 20 run_all
fast() { [ "$(on 2 cat /sys/class/net/br-8/speed)" -ge "$(on 2 cat /sys/class/net/eth0/speed)" ]; }
expect "bridges say that they are as fast as the network" fast
try "eight bridges of containers"
for i in $hosts; do for n in 1 2 3 4 5 6 7 8; do
  ip -n "$tag-$i" link del "veth$n" && ip -n "$tag-$i" link del "br-$n"
done; done

# ---- a name

# As Debian's installer writes it: on the first host its own name means 127.0.1.1.
port=$((port + 1)) pids=
for i in $hosts; do
  address=$root
  [ "$i" != 1 ] || address=127.0.1.1
  printf '127.0.0.1 localhost\n%s first-host\n' "$address" >"$out/hosts$i"
  COLL_RANK=$((i - 1)) COLL_NRANKS=4 COLL_ROOT=first-host:$port COLL_SECRET=$secret \
    timeout -k 1 400 ip netns exec "$tag-$i" unshare --mount sh -c 'mount --bind "$0" /etc/hosts && exec "$@"' \
    "$out/hosts$i" "${measure[@]}" >"$out/$((i - 1))" 2>&1 &
  pids="$pids $!"
done
expect_right "a name that means 127.0.1.1 on the host itself"

# ---- ways

for i in $hosts; do
  expect "host $i has a second interface" plug "$i" 1 10.85.0
  for of in all eth0 eth1; do
    expect "host $i takes what comes another way ($of)" on "$i" sysctl -qw "net.ipv4.conf.$of.rp_filter=0"
  done
done
for i in 1 3 4; do
  expect "host 2 reaches host $i on another way" ip -n "$tag-2" route add "10.84.0.$i/32" via "10.85.0.$i" dev eth1 \
    src 10.84.0.2
done
try "answers that take another way, or rails"
# got HOST N: the bytes that it has got by ethN.
got() { cat "/sys/class/net/v$2$tag$1/statistics/tx_bytes"; }
before="$(sent 2 0) $(got 2 0) $(sent 2 1) $(got 2 1)"
COLL_TCP_IFNAME=eth0 try "answers that take another way"
moved=$(for now in "$(sent 2 0)" "$(got 2 0)" "$(sent 2 1)" "$(got 2 1)"; do
  echo $((now - ${before%% *}))
  before=${before#* }
done)
# other_way: host 2 sends by eth1 alone, and gets by eth0 alone; but neighbours are asked for.
other_way() { [ "$1" -lt 20000 -a "$2" -gt 4000000 -a "$3" -gt 4000000 -a "$4" -lt 20000 ]; }
expect "host 2 is answered by another interface than it sends by (bytes: ${moved//$'\n'/, })" other_way $moved
for i in $hosts; do ip -n "$tag-$i" link del eth1; done

# ---- two jobs

# With two ranks of each on every host. The first goes on until the second has ended.
hosts_of_ranks="1 1 2 2 3 3 4 4"
mkdir "$folder/first" "$folder/second"
out=$folder/first
start_until
first=$pids
all_run() { for p in $first; do kill -0 "$p" || return 1; done; }
expect "the first of two jobs is amid its all-reduces" await_sent 2 0 16
out=$folder/second
start_ranks 400 "${measure[@]}"
expect_right "the second of two jobs at once"
expect "the first one still runs" all_run
out=$folder/first pids=$first
rm "$out/goes_on"
expect "the results of the first of two jobs at once are right" all_succeed
out=$folder hosts_of_ranks=$hosts

# ---- an interface that comes late

start_ranks 400 "$BUILD/tests/hosts_calls" 262144 100 "$out/later"
expect "they are amid their all-reduces" await_sent 2 0 16
for i in $hosts; do expect "host $i gets another interface" plug "$i" 1 10.85.0; done
before=$(sent 2 1)
touch "$out/later"
expect "all-reduces are right, also on a communicator that is made later (an interface that comes late)" all_succeed
carried=$(($(sent 2 1) - before))
expect "that one uses it (for $carried bytes)" [ "$carried" -gt 10000000 ]
start_ranks 60 "$BUILD/bin/coll_topo"
expect "coll_topo runs" all_succeed
expect "it shows that a new job has two rails" ways "0 to 1" "eth0 10.84.0.1 to 10.84.0.2, eth1 10.85.0.1 to 10.85.0.2"
for i in $hosts; do ip -n "$tag-$i" link del eth1; done

# ---- families

for i in $hosts; do
  on "$i" sysctl -qw net.ipv6.conf.eth0.disable_ipv6=0
  ip -n "$tag-$i" addr add "fd84::$i/64" dev eth0 nodad
done
ip -n "$tag-3" addr del 10.84.0.3/24 dev eth0
root="[fd84::1]"
if [ -e /proc/net/if_inet6 ]; then
  try "one host has no IPv4"
  # Eight networks of IPv4 that no other host has: only IPv6 leads to others.
  for i in $hosts; do
    ip -n "$tag-$i" -4 addr flush dev eth0
    for n in 1 2 3 4 5 6 7 8; do ip -n "$tag-$i" addr add "10.1$i$n.0.1/24" dev eth0; done
  done
  try "eight IPv4 addresses that lead nowhere, and one of IPv6"
else
  echo "not tested: hosts without IPv4, as this kernel has no IPv6"
fi

exit $failed
