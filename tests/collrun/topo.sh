#!/bin/sh
# coll_topo: machines from files, placement, and in a run the ranks and their transports.
. "$(dirname "$0")/support.inc"
topo=$BUILD/bin/coll_topo

"$topo" --input "$SOURCE/tests/machines/32em64t-2n8c2t-pci-wholeio.xml" -n 4 > out || fail "a machine file"
expect_in "machine" "packages 2, NUMA nodes 2, cores 16" out
expect_in "device" "RDMA mlx5_0 at 0000:04:00.0" out
expect_in "place" "rank 2: core 8, L3 cache 1, NUMA node 1, package 1" out
"$topo" --input "numa:2 core:2 pu:1" -n 9 > out || fail "a described machine"
expect_in "too many" "not bound to cores: this process may use only 4" out
"$topo" > out || fail "this machine"
expect_in "this machine" "this machine: packages" out
expect_in "verbs" "InfiniBand and RoCE" out

for bad in /no/such.xml nonsense:3 "$SOURCE/README.md"; do
  "$topo" --input "$bad" > out 2> err && fail "took $bad"
  expect_in "bad machine" "$bad" err
done
"$topo" -n 0 2> err && fail "took -n 0"
"$topo" surplus 2> err && fail "took a surplus argument"

# In a run: each rank with its process, each pair with its transport and the reason.
"$collrun" --timeout 60 -n 3 sh -c 'echo $$ > pid.$COLL_RANK; exec "$0"' "$topo" > out 2> err || fail "in a run: $(cat err)"
for r in 0 1 2; do
  grep -Eq "^$r +[^ ]+ +$(cat pid.$r) " out || fail "no line for rank $r: $(cat out)"
done
expect_in "shared memory" "shm, 6 links (the first from 0 to 1): " out
COLL_TRANSPORT=tcp "$collrun" --timeout 60 -n 3 "$topo" > out 2> err || fail "over tcp: $(cat err)"
expect_in "tcp" "tcp, 6 links (the first from 0 to 1): " out
grep -Eq '^ +1 +tcp +- +tcp$' out || fail "no table: $(cat out)"

# Two hosts, by ranks with different host ids: shared memory within a host, TCP between them.
"$collrun" --timeout 60 -n 3 sh -c 'COLL_HOST_ID=host$((COLL_RANK / 2)) exec "$0"' "$topo" > out 2> err || fail "two hosts: $(cat err)"
expect_in "inside a host" "shm, 2 links (the first from 0 to 1): " out
expect_in "between hosts" "tcp, 4 links (the first from 0 to 2): " out
if [ "$(cores)" -ge 2 ]; then
  "$collrun" --timeout 60 -n 2 "$topo" > out 2> err || fail "two ranks: $(cat err)"
  expect "bound ranks" 2 "$(sed -n '/^rank/,/^$/p' out | awk '$1 ~ /^[01]$/ && $4 ~ /^[0-9]+$/ {print $4}' | sort -u | wc -l)"
fi

# The same over the fake ssh: rank 0 opens its own listener.
cat > ssh.sh <<'END'
#!/bin/sh
while [ $# -gt 1 ]; do shift; done
cd / && setsid --wait env -i PATH="$PATH" sh -c "$1"
END
chmod +x ssh.sh
COLL_SSH=$scratch/ssh.sh "$collrun" --timeout 60 --hosts localhost:3 "$topo" > out 2> err || fail "over ssh: $(cat err)"
expect_in "over ssh" "6 links (the first from 0 to 1): " out
finish
