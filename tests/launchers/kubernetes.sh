#!/bin/sh
# Variables as in the manifest of docs/launchers.md, in network namespaces for pods: names of pods are unknown until
# they run, and the secret is a mounted file.
. "$(dirname "$0")/support.inc"
server=
tag=k$(($$ % 100000))
clean() {
  for i in 0 1 2; do
    ip netns del "$tag-$i" 2> /dev/null
    rm -rf "/etc/netns/$tag-$i"
  done
  ip link del "$tag" 2> /dev/null
  kill $server 2> /dev/null
  rm -rf "$scratch"
}
trap clean EXIT
skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" = 0 ] || skip "needs root to make network namespaces"
command -v ip > /dev/null || skip "no ip (Debian: iproute2)"

# Three pods on a bridge. ip netns exec shows each of them its own resolv.conf.
set_up() {
  ip link add "$tag" type bridge && ip addr add 10.78.0.1/24 dev "$tag" && ip link set "$tag" up || return 1
  for i in 0 1 2; do
    ip netns add "$tag-$i" && ip link add "v$tag$i" type veth peer name eth0 netns "$tag-$i" &&
      ip link set "v$tag$i" master "$tag" up && ip -n "$tag-$i" addr add "10.78.0.1$i/24" dev eth0 &&
      ip -n "$tag-$i" link set lo up && ip -n "$tag-$i" link set eth0 up || return 1
    mkdir -p "/etc/netns/$tag-$i" && echo "nameserver 10.78.0.1" > "/etc/netns/$tag-$i/resolv.conf" &&
      echo "hosts: files dns" > "/etc/netns/$tag-$i/nsswitch.conf" || return 1
  done
}
set_up 2> setup || skip "cannot make network namespaces here: $(tail -n 1 setup)"
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > secret
chmod 400 secret

# pod INDEX: the container of a pod.
pod() {
  ip netns exec "$tag-$1" env KUBERNETES_SERVICE_HOST=10.96.0.1 COLL_RANK="$1" COLL_NRANKS=3 \
    COLL_ROOT=train-0.train:29500 COLL_SECRET_FILE="$scratch/secret" COLL_HOST_ID="$1" COLL_CREATE_TIMEOUT_MS=30000 \
    "$rank" > "out.$1" 2> "err.$1"
}

# A name server that does not know the pod of rank 0 at first: each pod's first questions (for A and AAAA) find nothing.
mkfifo ready
python3 - > ready <<'END' &
import collections, socket, struct
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("10.78.0.1", 53))
print("ready", flush=True)
asked = collections.Counter()
while True:
    query, pod = server.recvfrom(512)
    end = query.index(b"\0", 12) + 5
    kind, = struct.unpack(">H", query[end - 4:end - 2])
    asked[pod[0], kind] += 1
    known, answers = asked[pod[0], kind] > 1, 0
    record = b""
    if known and kind == 1:
        answers, record = 1, struct.pack(">HHHIH4B", 0xc00c, 1, 1, 0, 4, 10, 78, 0, 10)
    server.sendto(query[:2] + struct.pack(">5H", 0x8180 if known else 0x8183, 1, answers, 0, 0) + query[12:end] + record, pod)
END
server=$!
read -r _ < ready || skip "no port for a name server"
for i in 0 1 2; do
  pod "$i" &
  eval "pod$i=$!"
done
for i in 0 1 2; do
  eval "wait \$pod$i" || fail "pod $i: $(cat "err.$i")"
  grep -qx "$i of 3: ok" "out.$i" || fail "pod $i: $(cat "out.$i" "err.$i")"
done
finish
