#!/bin/bash
# perf/compare/run: a tiny run's table, CSV, JSON and exit status, bad usage, and with made-up samples
# its ratios, floors, marks of noise and the part of the docs that it writes.
set -u
python=/usr/bin/python3
[ -x $python ] || { echo "no $python"; exit 77; }
compare=$SOURCE/perf/compare/run
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failed=0

fail() {
  echo "FAILED: $*"
  tail -n 8 "$out/log" "$out/err"
  failed=1
}

# refuse WORD ARGUMENT...: it must fail, and print WORD.
refuse() {
  word=$1
  shift
  "$compare" "$@" >"$out/log" 2>"$out/err" && fail "accepted: $*"
  grep -q -- "$word" "$out/err" || fail "'$word' is not said of: $*"
}

"$compare" -b "$BUILD" --out "$out" --ops allreduce,gather --sizes 64,64K -n 2 --rounds 1 >"$out/log" 2>"$out/err" ||
  fail "exit status $?"
# series WORD: the CSV has a time for each operation and size of it.
series() {
  for cell in allreduce,64 allreduce,65536 gather,64 gather,65536; do
    grep -Eq "^shm,2,$cell,$1,1,[0-9.]*[1-9]" "$out/compare.csv" || fail "no time of $1 for $cell"
  done
}
for wanted in libcoll libcoll-inplace libcoll-shared limit; do series $wanted; done
for mpi in openmpi mpich; do
  if command -v mpirun.$mpi >/dev/null && mpicc.$mpi -E -include mpi.h -x c /dev/null >/dev/null 2>&1; then
    series $mpi
  fi
done
if [ -e /usr/include/gloo/config.h ]; then series gloo; fi
if pkg-config --exists ucc 2>/dev/null; then series ucc; fi
for cell in 64 65536; do # it has no column
  grep -Eq "^shm,2,allreduce,$cell,libcoll-composed,1,[0-9.]*[1-9]" "$out/compare.csv" ||
    fail "no time of reduce and broadcast for $cell"
done
grep -q "cells with a peer" "$out/log" || fail "no summary"
$python -c 'import json, sys
cells = json.load(open(sys.argv[1]))["cells"]
assert len(cells) == 4 and all(cell["median_us"]["libcoll"] > 0 for cell in cells)' "$out/compare.json" ||
  fail "JSON content"

# Over TCP the limit is the fastest use of sockets that was tried; the tables name it.
"$compare" -b "$BUILD" --out "$out/tcp" -t tcp --ops allreduce,alltoall --sizes 8,64K --rounds 1 -n 2 \
  >"$out/log" 2>"$out/err" || fail "exit status $? over TCP"
for cell in allreduce,8 allreduce,65536 alltoall,8 alltoall,65536; do
  grep -Eq "^tcp,2,$cell,limit,1,[0-9.]*[1-9]" "$out/tcp/compare.csv" || fail "no limit over TCP for $cell"
  grep -Eq "^ *${cell#*,} ${cell%,*}: [124] sockets?, [0-9]+ KiB a call" "$out/log" ||
    fail "no word which sockets were the limit of $cell"
done
"$BUILD/compare/limits_tcp" 4 40000 >"$out/log" 2>"$out/err" || fail "exit status $? of limits_tcp"
for bytes in 4 40000; do
  awk -v bytes=$bytes '$1 == "tried" && $2 == bytes { count++; if (!least || $3 < least) least = $3 }
    $1 == "exchange" && $2 == bytes { limit = $3 }
    END { exit !(count >= 24 && limit == least) }' "$out/log" || fail "the limit of $bytes bytes is not the least tried"
done
"$BUILD/compare/limits_tcp" 0 >"$out/log" 2>&1 && fail "limits_tcp takes 0 bytes"

# Between hosts: the limit is the line, and nothing is left over.
refuse "invalid shape" --hosts 4
refuse "invalid shape" --hosts 1x4
refuse "decides on -n" --hosts 2x1 -n 2
refuse "no floors for 3x3" --hosts 3x3 --floors
if [ "$(id -u)" = 0 ] && ip netns add "probe$$" 2>/dev/null && ip netns del "probe$$"; then
  "$compare" -b "$BUILD" --out "$out/hosts" --hosts 2x2@1gbit --ops allreduce --sizes 4,64K --rounds 2 \
    >"$out/log" 2>"$out/err" || fail "exit status $? between hosts"
  for cell in 4 65536; do
    for round in 1 2; do
      grep -Eq "^hosts,4,allreduce,$cell,libcoll,$round,[0-9.]*[1-9]" "$out/hosts/compare.csv" ||
        fail "no time of $cell bytes between hosts"
    done
  done
  grep -q "^hosts,4,allreduce,65536,limit,1,524.288" "$out/hosts/compare.csv" || fail "the limit of a line"
  ip netns list | grep -q "^cmp.*-[12]" && fail "namespaces are left over"
  ip link show | grep -q bcmp && fail "links are left over"
else
  "$compare" -b "$BUILD" --out "$out/hosts" --hosts 2x1 --sizes 4 >"$out/log" 2>&1 && fail "hosts without the right"
fi

refuse "no collrun" -b "$out"
refuse "is none of" --ops allgathering
refuse "invalid" -n 1
refuse "invalid" --rounds 0
refuse "invalid" --sizes 4Q

$python -B - "$SOURCE/perf/compare" "$out" >"$out/log" 2>&1 <<'PYTHON' || fail "made-up samples"
import os, sys, types
sys.path.insert(0, sys.argv[1])
import cells, docs, hosts, libraries, measure, report

peer = types.SimpleNamespace(name="peer", is_peer=True, fastest={})
options = types.SimpleNamespace(command="run", transport="shm", ranks=[2], ops=["allreduce"], sizes=[4, 8192])
found = types.SimpleNamespace(all=[peer], versions={"peer": "1"})

def result(peers, handover=(1, 1, 1), ours=(1, 1, 1), size=4):
    samples = measure.Samples()
    samples.rounds = 3
    for r in range(3):
        samples.handover[2, "allreduce", r] = handover[r]
        samples.put((2, "allreduce", size), "libcoll", r, ours[r])
        samples.put((2, "allreduce", size), "peer", r, peers[r])
    floors = [("peer", ["allreduce"], [2], "shm", [(4, 1.5), (8192, 3)])]
    return cells.Result(options, found, samples, floors)

key = (2, "allreduce", 4)
good = result((2, 9, 4), ours=(1, 3, 1))
ratio = good.ratio(key, "peer")
assert (ratio.least, ratio.median, ratio.most) == (2, 3, 4)
assert good.verdicts[0].passed and good.verdicts[0].clear and not good.unclear(key)
assert "ahead in 1, behind in 0; 0 (~)" in report.foot(good)[1]
assert result((2, 2, 2), handover=(1, 1.6, 1)).unclear(key)
assert result((0.5, 2, 2)).unclear(key) and result((1.4, 2, 2)).unclear(key)
missed = result((1.2, 1.3, 1.4))
assert not missed.unclear(key) and len(missed.clearly_missed()) == 1
assert not result((1.2, 1.4, 1.6)).clearly_missed()
assert "miss  allreduce, 2 ranks, 4 bytes: 1.30" in "\n".join(report.floors(missed))
for size, floor in ((0, 1.5), (1024, 1.5), (8192, 3), (1 << 30, 3)):
    assert result((2, 2, 2), size=size).floor((2, "allreduce", size)) == floor
between = types.SimpleNamespace(transport="hosts", hosts=hosts.Shape("2x1"))
floors = [(what, ["allreduce"], [shape], "hosts", [(4, floor)])
          for what, shape, floor in (("peer", "2x1", 2), ("limit", "2x1", 0.5), ("peer", "4x1", 9))]
samples = result((1.3, 1.3, 1.3)).samples
for r in range(3):
    samples.put(key, "limit", r, 0.9)
judged = cells.Result(between, found, samples, floors)
assert [(v.what, v.passed) for v in judged.verdicts] == [("peer", False), ("limit", True)]
assert "floor 2; the limit reaches 1.44" in "\n".join(report.floors(judged))
known = cells.read_floors(os.path.join(sys.argv[1], "floors_hosts.csv"))
assert all(hosts.Shape(shape) for line in known for shape in line[2])
eight = hosts.Hosts(hosts.Shape("8x1/2@1mbit,2ms"), None)
assert [eight.host_of(rank) for rank in range(8)] == list(range(8))
eight.round = 1
assert [eight.site_of(eight.host_of(rank)) for rank in range(8)] == [0, 1] * 4
pairs = hosts.PairSockets("sockets", None, None, eight)
assert all(eight.site_of(pairs.place(rank)) != eight.site_of(pairs.place(rank + 4)) for rank in range(4))
slow = result((3000, 3000, 3000), ours=(100, 100, 100))
assert measure.is_hopeless(slow.samples, peer, key)
assert not measure.is_hopeless(result((3000, 1, 1), ours=(1000, 1, 1)).samples, peer, key)

path = os.path.join(sys.argv[2], "performance.md")
marks = [f"<!-- {word} of perf/compare/run, {t} -->\n" for t in ("shm", "tcp") for word in ("begin", "end")]
with open(path, "w") as file:
    file.write("above\n" + marks[0] + "outdated\n" + marks[1] + "between\n" + marks[2] + "kept\n" + marks[3] + "below\n")
docs.write(good, {}, sys.argv[2])
text = open(path).read()
assert "outdated" not in text and "best peer / libcoll, 2 ranks" in text and "allreduce          3.00       -" in text
assert "allreduce, 2 ranks" in open(os.path.join(sys.argv[2], "performance-shm.txt")).read()
assert text.startswith("above\n" + marks[0]) and text.endswith(marks[1] + "between\n" + marks[2] + "kept\n" + marks[3] + "below\n")

assert libraries.run_all([["sleep", "9"]], 0.1)[1].startswith("not done after")
assert libraries.run_all([["sh", "-c", "echo why >&2; exit 3"]], 5)[1] == "exit status 3: why"
sockets = types.SimpleNamespace(name="limit", is_peer=False, fastest={key: (1.5, "1 socket, 64 KiB a call")})
limited = cells.Result(options, types.SimpleNamespace(all=[peer, sockets], versions={}), good.samples, [])
assert report.limits(limited)[2] == "         4 allreduce: 1 socket, 64 KiB a call" and report.limits(good) == []
assert libraries.read_exchanges("tried 4 9 x\nexchange 4 8.5 2 sockets, in turns\n") == [(8.5, "2 sockets, in turns")]
assert libraries.read_times("x", "reduce", "noise\nreduce 8 1.5\n") == [("x", 8, 1.5)]
PYTHON
exit $failed
